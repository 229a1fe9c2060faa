// What a pickle said, as plain data: numbers, texts, containers, tensors by the storage they lie
// in.  Nodes are numbered and may be shared or even contain themselves, as in Python.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero::checkpoint {

using PickleRef = uint32_t;
constexpr PickleRef kNoPickle = UINT32_MAX;

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInteger,
  kBigInteger, // beyond 64 bits: its digits
  kNumber,
  kText,
  kBytes,
  kList,
  kTuple,
  kSet,
  kDict,
  kClass, // named, not made
  kStorage,
  kTensor,
  kObject // of a class that is known: a dict of attributes
};

// Bytes of an archive that tensors look into.
struct TorchStorage {
  zero_dtype dtype = 0; // 0: an element type that libzero does not have
  std::string type; // "torch.FloatStorage"
  std::string key; // the entry data/KEY
  uint64_t elements = 0;
};

struct TorchTensor {
  uint32_t storage = 0; // index into storages
  uint64_t offset = 0; // elements
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;

  uint64_t elements() const;
  // Row by row, without holes.
  bool is_contiguous() const;
};

class PickleDocument {
 public:
  PickleRef root = kNoPickle;

  PickleKind kind(PickleRef node) const { return nodes_[node].kind; }
  bool is(PickleRef node, PickleKind kind) const {
    return node != kNoPickle && nodes_[node].kind == kind;
  }
  int64_t integer(PickleRef node) const { return nodes_[node].integer; } // also BOOL
  double number(PickleRef node) const { return nodes_[node].number; }
  // TEXT, BYTES, BIGINTEGER, and the name of a CLASS.
  const std::string& text(PickleRef node) const { return texts_[nodes_[node].index]; }
  // LIST, TUPLE, SET; DICT: keys and values by turns.
  const std::vector<PickleRef>& items(PickleRef node) const {
    return sequences_[nodes_[node].index];
  }
  const TorchTensor& tensor(PickleRef node) const { return tensors_[nodes_[node].index]; }
  const TorchStorage& storage(const TorchTensor& tensor) const { return storages_[tensor.storage]; }
  // The dict of an OBJECT's attributes, or kNoPickle; and its class.
  PickleRef attributes(PickleRef node) const { return objects_[nodes_[node].index].attributes; }
  const std::string& class_of(PickleRef node) const {
    return texts_[objects_[nodes_[node].index].name];
  }
  // The value of a text key of a DICT or OBJECT; kNoPickle where there is none, or no dict.
  PickleRef find(PickleRef dict, std::string_view key) const;

 private:
  friend class PickleReader;
  struct Node {
    PickleKind kind;
    uint32_t index;
    union {
      int64_t integer;
      double number;
    };
  };
  struct Object {
    uint32_t name;
    PickleRef attributes;
  };
  std::vector<Node> nodes_;
  std::vector<std::string> texts_;
  std::vector<std::vector<PickleRef>> sequences_;
  std::vector<TorchTensor> tensors_;
  std::vector<TorchStorage> storages_;
  std::vector<Object> objects_;
};

} // namespace zero::checkpoint

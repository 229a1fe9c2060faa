// Writes safetensors: one file, or several of a bounded size with an index, as Hugging Face names
// them.  Everything but the bytes is decided before the first one is written.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/file.h"

namespace zero::checkpoint {

struct SafetensorsTensor {
  std::string name;
  zero_dtype dtype = ZERO_DTYPE_FP32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

// A second name of a tensor that is there once: goes into __metadata__ as "alias": "owner", as
// safetensors' own save_model does.
struct SafetensorsAlias {
  std::string name;
  std::string owner;
};

struct SafetensorsFile {
  std::string name; // "model-00001-of-00003.safetensors"
  std::vector<size_t> tensors; // in the order of their data: large elements first
  std::string header; // with its length in front, padded to 8 bytes
  uint64_t data_bytes = 0;
};

struct SafetensorsLayout {
  std::vector<SafetensorsFile> files;
  std::string index; // JSON; empty for one file
};

inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";
// As Hugging Face names them: number from 1.
std::string safetensors_name(size_t number, size_t count);

// max_file_bytes 0: one file.  A tensor is never cut: one larger than that has a file of its own.
// Throws INVALID_ARGUMENT for a name that a header cannot hold ("__metadata__", no UTF-8).
SafetensorsLayout lay_out_safetensors(const std::vector<SafetensorsTensor>& tensors,
                                      const std::vector<SafetensorsAlias>& aliases,
                                      uint64_t max_file_bytes);

// What is at path is the old one or the new one, whole, whenever the process dies.  One file: a
// file at path, replaced if it is there.  Several (or a limit, even if one file holds all): a
// folder, new.
class SafetensorsWriter {
 public:
  // Opens the first file beside path.
  SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout, bool as_folder);
  ~SafetensorsWriter(); // without finish nothing is left
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Data in the order of the layout; pieces may have any size.
  void append(const void* bytes, uint64_t count);
  void finish();

 private:
  void open_next();
  void close_current();
  void flush();

  const std::string path_;
  const SafetensorsLayout& layout_;
  const bool as_folder_;
  std::string staging_; // the file, or the folder, beside path
  size_t file_ = 0;
  File current_;
  uint64_t written_ = 0; // of the current file's data, buffered included
  uint64_t position_ = 0; // in the current file, of what is flushed
  std::vector<std::byte> buffer_;
  bool finished_ = false;
};

} // namespace zero::checkpoint

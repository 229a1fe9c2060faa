// Pickles and zip archives as DeepSpeed's checkpoints consist of them, from bytes that nobody
// vouches for: plain data whose every reference holds, or an error.
// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "checkpoint/pickle_reader.h"
#include "checkpoint/zip_reader.h"

namespace {

using namespace zero::checkpoint;

// Every node that can be reached is what it says; deeper than anything real is not walked.
void walk(const PickleDocument& document, PickleRef node, int depth, int* budget) {
  if (depth > 20 || --*budget < 0) return;
  switch (document.kind(node)) {
    case PickleKind::kList:
    case PickleKind::kTuple:
    case PickleKind::kSet:
    case PickleKind::kDict:
      for (const PickleRef item : document.items(node)) walk(document, item, depth + 1, budget);
      break;
    case PickleKind::kTensor: {
      const TorchTensor& tensor = document.tensor(node);
      uint64_t last = tensor.offset;
      bool empty = false;
      for (size_t i = 0; i < tensor.shape.size(); ++i) {
        if (tensor.shape[i] == 0) {
          empty = true;
          break;
        }
        last +=
            static_cast<uint64_t>(tensor.shape[i] - 1) * static_cast<uint64_t>(tensor.stride[i]);
      }
      if (!empty && last >= document.storage(tensor).elements) std::abort();
      tensor.is_contiguous();
      break;
    }
    case PickleKind::kObject:
      if (document.attributes(node) != kNoPickle) {
        walk(document, document.attributes(node), depth + 1, budget);
      }
      document.class_of(node).size();
      break;
    default:
      break;
  }
}

void read_as_pickle(std::string_view bytes) {
  try {
    const PickleDocument document = read_pickle(bytes, "fuzz");
    int budget = 10000;
    walk(document, document.root, 0, &budget);
    document.find(document.root, "module");
  } catch (const zero::Error&) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_as_pickle(bytes);
  try {
    const ZipReader zip(std::make_unique<MemorySource>(bytes, "fuzz"));
    for (const ZipEntry& entry : zip.entries()) {
      if (zip.data_offset(entry) + entry.bytes > size) std::abort();
      try {
        read_as_pickle(zip.read_all(entry, 1 << 20));
      } catch (const zero::Error&) {
      }
    }
  } catch (const zero::Error&) {
  }
  return 0;
}

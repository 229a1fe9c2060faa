// The header of a safetensors file from bytes that nobody vouches for: tensors that lie inside the
// file and follow one another, or an error; nothing else.
// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/dtype.h"
#include "base/error.h"
#include "plan/safetensors_header.h"

// The data behind the header is not read: its length is taken from the first two bytes, so that a
// few bytes of input reach every check.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint64_t data_bytes = data[0] | static_cast<uint64_t>(data[1]) << 8;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 2), size - 2);
  try {
    zero::plan::safetensors_header_bytes(bytes, bytes.size(), "fuzz");
  } catch (const zero::Error&) {
  }
  try {
    const zero::plan::SafetensorsHeader header =
        zero::plan::parse_safetensors_header(bytes, 8 + bytes.size() + data_bytes, "fuzz");
    uint64_t end = 0;
    for (const zero::plan::TensorEntry& tensor : header.tensors) {
      uint64_t count = zero::dtype_bytes(tensor.dtype);
      for (const int64_t extent : tensor.shape) count *= static_cast<uint64_t>(extent);
      if (tensor.begin != end || tensor.end - tensor.begin != count) std::abort();
      end = tensor.end;
    }
    if (end != data_bytes) std::abort();
  } catch (const zero::Error&) {
  }
  return 0;
}

// The header of a safetensors file: names, dtypes, shapes and where the bytes lie.  Every bound is
// checked before it is believed.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zero::plan {

struct TensorEntry {
  std::string name;
  zero_dtype dtype = ZERO_DTYPE_FP32;
  std::vector<int64_t> shape;
  uint64_t begin = 0; // bytes, from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  uint64_t data_offset = 0; // bytes, from the file's start
  std::vector<TensorEntry> tensors; // in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata; // __metadata__: texts
};

// Headers above this are refused, as the format's own library does.
constexpr uint64_t kLargestSafetensorsHeader = 100000000;

// The length in the first 8 bytes, checked against the file's.  `file` names it in sentences.
uint64_t safetensors_header_bytes(std::string_view first_8_bytes, uint64_t file_bytes,
                                  const std::string& file);
// json: so many bytes behind the first 8.  Throws FILE_FORMAT, or UNSUPPORTED for a dtype that
// libzero does not have.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& file);
// NOT_FOUND, IO as well.
SafetensorsHeader read_safetensors_header(const std::string& path);

} // namespace zero::plan

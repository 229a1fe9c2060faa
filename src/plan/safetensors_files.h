// Which tensors a safetensors file, an index or a folder of them holds, and under which other
// names. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/safetensors_header.h"

namespace zero::plan {

struct SafetensorsFiles {
  struct File {
    std::string path;
    uint64_t data_offset = 0;
    std::vector<TensorEntry> tensors; // with an index: those that it names
  };
  std::vector<File> files;
  // Second names and whose they are, from __metadata__ ("alias": "owner"): owners are tensors,
  // aliases are none.
  std::vector<std::pair<std::string, std::string>> aliases;
};

// Throws NOT_FOUND, IO, FILE_FORMAT (also for a tensor that is there twice) naming the file.
SafetensorsFiles read_safetensors_files(const std::string& path);

// A text that nobody vouches for, of at most 1 GiB.
std::string read_model_text(const std::string& path);

} // namespace zero::plan

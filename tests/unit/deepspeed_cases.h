// The corpus of checkpoints that DeepSpeed wrote, and numpy's files of what is in them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/deepspeed_state.h"
#include "checkpoint/zip_reader.h"

extern "C" {
#include <cmocka.h>
}

namespace deepspeed_cases {

namespace fs = std::filesystem;

// Skips the test where there is none.
inline fs::path corpus() {
  fs::path shared;
  if (const char* named = std::getenv("LIBZERO_SHARED")) shared = named;
  for (fs::path at = fs::current_path(); shared.empty() && at != at.parent_path();
       at = at.parent_path()) {
    if (fs::exists(at / "shared" / "corpus" / "deepspeed-checkpoints")) shared = at / "shared";
  }
  const fs::path found = shared / "corpus" / "deepspeed-checkpoints";
  if (!fs::exists(found)) {
    print_message("no ../shared/corpus beside the tree; LIBZERO_SHARED can name it\n");
    skip();
  }
  return found;
}

// An array of numpy's: fp32, or one int64.
struct Array {
  std::vector<int64_t> shape;
  std::vector<float> values;
  int64_t integer = 0;
};

// The .npz of numpy.savez: a zip of stored .npy.
inline std::map<std::string, Array> read_npz(const fs::path& path) {
  std::map<std::string, Array> arrays;
  const zero::checkpoint::ZipReader zip(zero::checkpoint::open_byte_source(path.string()));
  for (const zero::checkpoint::ZipEntry& entry : zip.entries()) {
    const std::string bytes = zip.read_all(entry, 1 << 24);
    const size_t header_bytes = static_cast<unsigned char>(bytes[8]) | static_cast<size_t>(bytes[9])
                                                                           << 8;
    const std::string header = bytes.substr(10, header_bytes);
    const std::string data = bytes.substr(10 + header_bytes);
    Array array;
    const size_t open = header.find('(');
    const std::string shape = header.substr(open + 1, header.find(')') - open - 1);
    for (size_t at = 0; at < shape.size();) {
      array.shape.push_back(std::strtoll(shape.c_str() + at, nullptr, 10));
      const size_t comma = shape.find(',', at);
      at = comma == std::string::npos ? shape.size() : comma + 1;
      while (at < shape.size() && shape[at] == ' ') ++at;
    }
    if (header.find("<f4") != std::string::npos) {
      array.values.resize(data.size() / sizeof(float));
      std::memcpy(array.values.data(), data.data(), data.size());
    } else {
      assert_true(header.find("<i8") != std::string::npos);
      std::memcpy(&array.integer, data.data(), sizeof(array.integer));
    }
    arrays[entry.name.substr(0, entry.name.size() - 4)] = array;
  }
  return arrays;
}

} // namespace deepspeed_cases

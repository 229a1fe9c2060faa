// A checkpoint's manifest from bytes that nobody vouches for: sound, so that it can be laid out,
// written and read again as the same, or an error; nothing else.
// SPDX-License-Identifier: BSD-3-Clause
#include <xxhash.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_layout.h"

namespace {

// The 64 bytes before the FlatBuffer, with the checksums that a fuzzer does not guess.
std::string with_header(std::string_view buffer) {
  std::string bytes("ZEROCKPT", 8);
  const auto append = [&](uint64_t value, size_t size) {
    bytes.append(reinterpret_cast<const char*>(&value), size);
  };
  append(zero::checkpoint::kFormatVersion, 4);
  append(0, 4);
  append(buffer.size(), 8);
  append(XXH3_64bits(buffer.data(), buffer.size()), 8);
  bytes.append(24, '\0');
  append(XXH3_64bits(bytes.data(), bytes.size()), 8);
  return bytes.append(buffer);
}

// What was accepted once is accepted again.
void written_again_is_the_same(const zero::checkpoint::Manifest& manifest) {
  const std::string bytes = zero::checkpoint::encode_manifest(manifest);
  try {
    const auto again = zero::checkpoint::decode_manifest(bytes, "again");
    if (zero::checkpoint::encode_manifest(again) == bytes) return;
    std::fprintf(stderr, "it is written in two ways\n");
  } catch (const zero::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::abort();
}

void use(const std::string& bytes) {
  try {
    const zero::checkpoint::Manifest manifest = zero::checkpoint::decode_manifest(bytes, "fuzz");
    const zero::checkpoint::NameIndex names(manifest);
    uint64_t items = 0;
    for (int32_t piece = 0; piece < manifest.world_size; ++piece) {
      uint64_t end = zero::checkpoint::kPieceHeaderBytes;
      for (const auto& item : zero::checkpoint::piece_items(manifest, piece)) {
        if (item.position < end && item.bytes > 0) std::abort();
        end = item.position + item.bytes;
        ++items;
      }
      if (end > manifest.pieces[static_cast<size_t>(piece)].table_position) std::abort();
    }
    for (size_t p = 0; p < manifest.parameters.size(); ++p) {
      const auto row = static_cast<int32_t>(p);
      if (names.find(manifest.parameters[p].name) != row) std::abort();
      if (manifest.parameters[static_cast<size_t>(manifest.root_of(row))].tied_to >= 0)
        std::abort();
    }
    written_again_is_the_same(manifest);
  } catch (const zero::Error&) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  use(std::string(bytes));
  use(with_header(bytes));
  return 0;
}

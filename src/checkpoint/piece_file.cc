// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/piece_file.h"

#include <xxhash.h>

#include <cstring>

#include "base/error.h"

namespace zero::checkpoint {
namespace {

constexpr char kMagic[8] = {'Z', 'E', 'R', 'O', 'P', 'I', 'E', 'C'};
constexpr uint64_t kChecksumAt = kPieceHeaderBytes - sizeof(uint64_t);

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t rank;
  uint64_t id; // the manifest's
  uint64_t table_position;
  uint32_t ranks;
  uint32_t section_bytes;
};

} // namespace

void make_piece_header(const Manifest& manifest, int32_t piece, std::byte* out) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = manifest.format_version;
  header.rank = static_cast<uint32_t>(piece);
  header.id = manifest.id;
  header.table_position = manifest.pieces[static_cast<size_t>(piece)].table_position;
  header.ranks = static_cast<uint32_t>(manifest.world_size);
  header.section_bytes = static_cast<uint32_t>(manifest.section_bytes);
  std::memset(out, 0, kPieceHeaderBytes);
  std::memcpy(out, &header, sizeof(header));
  const uint64_t checksum = XXH3_64bits(out, kChecksumAt);
  std::memcpy(out + kChecksumAt, &checksum, sizeof(checksum));
}

void check_piece_header(const Manifest& manifest, int32_t piece, const std::byte* bytes,
                        const std::string& path) {
  uint64_t checksum;
  std::memcpy(&checksum, bytes + kChecksumAt, sizeof(checksum));
  Header header;
  std::memcpy(&header, bytes, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 ||
      XXH3_64bits(bytes, kChecksumAt) != checksum) {
    fail(ZERO_ERR_FILE_CORRUPT,
         "\"%s\": its first 4096 bytes do not have their checksum: no piece of a checkpoint, or "
         "damaged at offset 0",
         path.c_str());
  }
  if (header.id != manifest.id) {
    fail(ZERO_ERR_FILE_MISMATCH,
         "\"%s\" is a piece of another checkpoint: its id is %016llx, expected %016llx",
         path.c_str(), static_cast<unsigned long long>(header.id),
         static_cast<unsigned long long>(manifest.id));
  }
  if (header.rank != static_cast<uint32_t>(piece)) {
    fail(ZERO_ERR_FILE_MISMATCH,
         "\"%s\" is the piece of rank %u, expected the one of rank %d: a copy under another name",
         path.c_str(), header.rank, piece);
  }
  // What follows is said by the manifest too; a difference would be a bug of the writer.
  const StoredPiece& expected = manifest.pieces[static_cast<size_t>(piece)];
  if (header.version != manifest.format_version ||
      header.table_position != expected.table_position ||
      header.ranks != static_cast<uint32_t>(manifest.world_size) ||
      header.section_bytes != manifest.section_bytes) {
    fail(ZERO_ERR_FILE_FORMAT, "\"%s\": its first page contradicts the manifest", path.c_str());
  }
}

} // namespace zero::checkpoint

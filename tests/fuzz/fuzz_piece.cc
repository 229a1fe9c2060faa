// A piece of a checkpoint that somebody has changed here and there, cut or lengthened: its reader
// gives the bytes that were saved, or an error; nothing else.
// SPDX-License-Identifier: BSD-3-Clause
#include <xxhash.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/piece_writer.h"
#include "memory_files.h"

namespace {

using zero::checkpoint::Manifest;
using zero::checkpoint::PieceItem;

constexpr int32_t kRanks = 2;

// Depends on where it belongs, so that nothing can stand for anything else.
char byte_at(const PieceItem& item, uint64_t element, uint64_t byte) {
  return static_cast<char>(item.parameter * 31 + item.part * 17 +
                           static_cast<int32_t>(element % 251) * 4 + static_cast<int32_t>(byte));
}

uint64_t element_bytes(const PieceItem& item) {
  return item.parameter < 0 ? 1 : 4;
}

Manifest small_manifest() {
  Manifest manifest;
  manifest.id = 0x1122334455667788;
  manifest.run = 1;
  manifest.world_size = kRanks;
  manifest.optimizer = "Adam";
  manifest.state_names = {"first"};
  manifest.groups.push_back({"default"});
  manifest.section_bytes = 4096;
  for (const uint64_t elements : {uint64_t{70}, uint64_t{0}, uint64_t{3000}}) {
    zero::checkpoint::StoredParameter parameter;
    parameter.name = "p" + std::to_string(elements);
    parameter.shape = {static_cast<int64_t>(elements)};
    parameter.elements = elements;
    for (const zero_part kind : {ZERO_PART_MASTER, ZERO_PART_STATE}) {
      zero::checkpoint::StoredPart part;
      part.kind = kind;
      if (elements > 0) {
        part.ranges = {{0, elements / 2, 0, 0}, {elements / 2, elements - elements / 2, 0, 1}};
      }
      parameter.parts.push_back(part);
    }
    manifest.parameters.push_back(parameter);
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    manifest.blobs.push_back({"loader", rank, rank, 0, 33});
  }
  zero::checkpoint::place_ranges(&manifest);
  return manifest;
}

// The checkpoint "c", whole, in memory.
struct Whole {
  fuzz::MemoryFiles files;
  Whole() {
    zero::set_file_system(&files);
    Manifest manifest = small_manifest();
    for (int32_t piece = 0; piece < kRanks; ++piece) {
      const auto summary = zero::checkpoint::write_piece(
          "c/" + zero::checkpoint::piece_name(piece), manifest, piece,
          [](const PieceItem& item, uint64_t offset, uint64_t count, std::byte* out) {
            const uint64_t size = element_bytes(item);
            for (uint64_t i = 0; i < count * size; ++i) {
              out[i] = static_cast<std::byte>(byte_at(item, offset + i / size, i % size));
            }
          });
      manifest.pieces[static_cast<size_t>(piece)].table_checksum = summary.table_checksum;
    }
    files.files[std::string("c/") + zero::checkpoint::kManifestName] =
        zero::checkpoint::encode_manifest(manifest);
  }
};

// Reads every part and every blob; each byte must be its own.
void read_everything() {
  const zero::checkpoint::CheckpointReader reader("c");
  const Manifest& manifest = reader.manifest();
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    for (size_t i = 0; i < manifest.parameters[p].parts.size(); ++i) {
      PieceItem item;
      item.parameter = static_cast<int32_t>(p);
      item.part = static_cast<int32_t>(i);
      const uint64_t elements = manifest.parameters[p].elements;
      std::string bytes(elements * 4, '\0');
      reader.read(item.parameter, item.part, 0, elements,
                  reinterpret_cast<std::byte*>(bytes.data()));
      for (uint64_t at = 0; at < bytes.size(); ++at) {
        if (bytes[at] != byte_at(item, at / 4, at % 4)) std::abort();
      }
    }
  }
  for (size_t b = 0; b < manifest.blobs.size(); ++b) {
    PieceItem item;
    item.part = static_cast<int32_t>(b);
    const std::string bytes = reader.read_blob(item.part);
    for (uint64_t at = 0; at < bytes.size(); ++at) {
      if (bytes[at] != byte_at(item, at, 0)) std::abort();
    }
  }
}

} // namespace

// Input: which piece, what to do with its length, whether its first page gets a right checksum
// again; then changes of single bytes, three of input each.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Whole whole;
  static const std::map<std::string, std::string> kept = whole.files.files;
  if (size < 4) return 0;
  whole.files.files = kept;
  std::string& piece = whole.files.files["c/" + zero::checkpoint::piece_name(data[0] % kRanks)];
  const size_t length = data[1] | static_cast<size_t>(data[2]) << 8;
  if (data[3] % 4 == 1) piece.resize(std::min(piece.size(), length));
  if (data[3] % 4 == 2) piece.append(length, '\0');
  for (size_t at = 4; at + 3 <= size && !piece.empty(); at += 3) {
    const size_t place = data[at] | static_cast<size_t>(data[at + 1]) << 8;
    piece[place % piece.size()] = static_cast<char>(data[at + 2]);
  }
  constexpr size_t kFirstPage = zero::checkpoint::kPieceHeaderBytes;
  if (data[3] % 8 >= 4 && piece.size() >= kFirstPage) {
    const uint64_t checksum = XXH3_64bits(piece.data(), kFirstPage - 8);
    std::memcpy(piece.data() + kFirstPage - 8, &checksum, 8);
  }
  const bool changed = piece != kept.at("c/" + zero::checkpoint::piece_name(data[0] % kRanks));
  try {
    read_everything();
  } catch (const zero::Error&) {
    if (!changed) std::abort();
  }
  try {
    const auto damage = zero::checkpoint::CheckpointReader("c").verify({});
    if (damage.empty() == changed) {
      // Bytes of the first page that say nothing may change when its checksum does.
      if (data[3] % 8 < 4) std::abort();
    }
  } catch (const zero::Error&) {
    if (!changed) std::abort();
  }
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/piece_writer.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/piece_file.h"
#include "checkpoint/write_behind.h"

namespace zero::checkpoint {
namespace {

// Fills the data [kPieceHeaderBytes, table_position) in order, as much as is asked for each time.
class Filler {
 public:
  Filler(const Manifest& manifest, int32_t piece, const Source& source)
      : manifest_(manifest), items_(piece_items(manifest, piece)), source_(source) {}

  void fill(uint64_t begin, uint64_t end, std::byte* out) {
    uint64_t at = begin;
    while (at < end) {
      if (next_ == items_.size() || items_[next_].position >= end) {
        std::memset(out + (at - begin), 0, end - at);
        return;
      }
      const PieceItem& item = items_[next_];
      if (at < item.position) {
        std::memset(out + (at - begin), 0, item.position - at);
        at = item.position;
      }
      const uint64_t size = element_bytes(item);
      const uint64_t bytes = std::min(end, item.position + item.bytes) - at;
      source_(item, item.offset + (at - item.position) / size, bytes / size, out + (at - begin));
      at += bytes;
      if (at == item.position + item.bytes) ++next_;
    }
  }

 private:
  uint64_t element_bytes(const PieceItem& item) const {
    if (item.parameter < 0) return 1;
    const StoredParameter& parameter = manifest_.parameters[static_cast<size_t>(item.parameter)];
    return dtype_bytes(parameter.parts[static_cast<size_t>(item.part)].dtype);
  }

  const Manifest& manifest_;
  const std::vector<PieceItem> items_;
  const Source& source_;
  size_t next_ = 0;
};

} // namespace

PieceSummary write_piece(const std::string& path, const Manifest& manifest, int32_t piece,
                         const Source& source, const Progress& progress) {
  const StoredPiece& layout = manifest.pieces[static_cast<size_t>(piece)];
  const uint64_t section = manifest.section_bytes;
  const uint64_t sections = section_count(layout.table_position, section);
  // The table goes through the same buffers, padded to a page.
  std::vector<uint64_t> table((layout.bytes - layout.table_position) / sizeof(uint64_t), 0);
  File file = File::create(path, Caching::kDirect);
  {
    const uint64_t buffer_bytes = std::min(std::max(round_up(kPieceBufferBytes, section), section),
                                           round_up(layout.bytes, section));
    WriteBehind writer(file, buffer_bytes, kPieceBuffers);
    std::byte* header = writer.buffer();
    make_piece_header(manifest, piece, header);
    writer.write(0, kPieceHeaderBytes);
    Filler filler(manifest, piece, source);
    uint64_t at = kPieceHeaderBytes, done = 0;
    while (at < layout.table_position) {
      const uint64_t bytes = std::min(buffer_bytes, layout.table_position - at);
      std::byte* out = writer.buffer();
      filler.fill(at, at + bytes, out);
      for (uint64_t begin = 0; begin < bytes; begin += section) {
        table[done++] = XXH3_64bits(out + begin, std::min(section, bytes - begin));
      }
      writer.write(at, bytes);
      at += bytes;
      if (progress) progress(bytes);
    }
    if (done != sections) fail(ZERO_ERR_INTERNAL, "a piece has other sections than its layout");
    const auto* bytes = reinterpret_cast<const std::byte*>(table.data());
    for (uint64_t begin = 0; begin < table.size() * sizeof(uint64_t); begin += buffer_bytes) {
      const uint64_t count = std::min(buffer_bytes, table.size() * sizeof(uint64_t) - begin);
      std::memcpy(writer.buffer(), bytes + begin, count);
      writer.write(layout.table_position + begin, count);
    }
    writer.finish();
  }
  file.sync();
  file.close();
  return {layout.bytes, XXH3_64bits(table.data(), table.size() * sizeof(uint64_t))};
}

} // namespace zero::checkpoint

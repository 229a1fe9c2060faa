// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/piece_layout.h"

#include <algorithm>

#include "base/checked.h"
#include "base/dtype.h"

namespace zero::checkpoint {

uint64_t section_count(uint64_t table_position, uint64_t section_bytes) {
  return divide_up(table_position - kPieceHeaderBytes, section_bytes);
}

uint64_t piece_bytes(uint64_t table_position, uint64_t section_bytes) {
  const uint64_t table = section_count(table_position, section_bytes) * sizeof(uint64_t);
  return table_position + round_up(table, kPieceAlignment);
}

void place_ranges(Manifest* manifest) {
  const auto pieces = static_cast<size_t>(manifest->world_size);
  std::vector<uint64_t> ends(pieces, kPieceHeaderBytes);
  const auto take = [&](int32_t piece, uint64_t bytes) {
    uint64_t& end = ends[static_cast<size_t>(piece)];
    const uint64_t position = round_up(end, kRangeAlignment);
    end = checked_add(position, bytes, "bytes of a piece");
    return position;
  };
  const auto next_page = [&] {
    for (uint64_t& end : ends) end = round_up(end, kPieceAlignment);
  };
  size_t most_parts = 0;
  for (const StoredParameter& parameter : manifest->parameters) {
    most_parts = std::max(most_parts, parameter.parts.size());
  }
  for (size_t part = 0; part < most_parts; ++part) {
    for (StoredParameter& parameter : manifest->parameters) {
      if (part >= parameter.parts.size()) continue;
      const uint64_t size = dtype_bytes(parameter.parts[part].dtype);
      for (Range& range : parameter.parts[part].ranges) {
        range.position = take(range.piece, checked_multiply(range.count, size, "bytes of a range"));
      }
    }
    next_page();
  }
  for (StoredBlob& blob : manifest->blobs) blob.position = take(blob.piece, blob.bytes);
  next_page();
  manifest->pieces.assign(pieces, StoredPiece{});
  for (size_t i = 0; i < pieces; ++i) {
    StoredPiece& piece = manifest->pieces[i];
    piece.file = piece_name(static_cast<int32_t>(i));
    piece.table_position = ends[i];
    piece.bytes = piece_bytes(ends[i], manifest->section_bytes);
  }
}

std::vector<PieceItem> piece_items(const Manifest& manifest, int32_t piece) {
  std::vector<PieceItem> items;
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    const StoredParameter& parameter = manifest.parameters[p];
    for (size_t i = 0; i < parameter.parts.size(); ++i) {
      const uint64_t size = dtype_bytes(parameter.parts[i].dtype);
      for (const Range& range : parameter.parts[i].ranges) {
        if (range.piece != piece) continue;
        items.push_back({range.position, range.count * size, static_cast<int32_t>(p),
                         static_cast<int32_t>(i), range.offset, range.count});
      }
    }
  }
  for (size_t b = 0; b < manifest.blobs.size(); ++b) {
    const StoredBlob& blob = manifest.blobs[b];
    if (blob.piece != piece || blob.bytes == 0) continue;
    items.push_back({blob.position, blob.bytes, -1, static_cast<int32_t>(b), 0, blob.bytes});
  }
  std::sort(items.begin(), items.end(),
            [](const PieceItem& a, const PieceItem& b) { return a.position < b.position; });
  return items;
}

} // namespace zero::checkpoint

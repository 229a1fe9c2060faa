// Writes one rank's piece: header, data in sections with a checksum each, the table of checksums.
// Past the page cache, in large aligned writes by a second thread while the next one is filled.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>

#include "checkpoint/manifest.h"
#include "checkpoint/piece_layout.h"

namespace zero::checkpoint {

// Puts elements [offset, offset + count) of a stored part at out, in the part's dtype; of a blob
// (parameter -1, part: its number), bytes.  Called in the order of positions, on the writer's
// thread; what it throws ends the write.
using Source =
    std::function<void(const PieceItem& item, uint64_t offset, uint64_t count, std::byte* out)>;
// Bytes that have been written since the last call; what it throws ends the work.
using Progress = std::function<void(uint64_t bytes)>;

struct PieceSummary {
  uint64_t bytes = 0;
  uint64_t table_checksum = 0;
};

// The file is new, complete and synced on return.  Holds kPieceBuffers of the heap meanwhile.
inline constexpr uint64_t kPieceBufferBytes = uint64_t{4} << 20;
inline constexpr int32_t kPieceBuffers = 2;
PieceSummary write_piece(const std::string& path, const Manifest& manifest, int32_t piece,
                         const Source& source, const Progress& progress = {});

} // namespace zero::checkpoint

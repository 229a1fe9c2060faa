// Where everything lies in the pieces: ranges are put behind one another, part by part, and every
// part starts on a page.  Pure.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "checkpoint/manifest.h"

namespace zero::checkpoint {

// What the bytes at one position of a piece are.
struct PieceItem {
  uint64_t position = 0;
  uint64_t bytes = 0;
  int32_t parameter = -1; // -1: a blob
  int32_t part = 0; // index into the parameter's parts; or the blob's number
  uint64_t offset = 0; // elements from the part's start; bytes 0 for a blob
  uint64_t count = 0; // elements
};

// Which part comes first: values and masters of everything, then the first state of everything, ...
// Gives positions in piece order to ranges whose offset, count and piece are set, puts blobs
// behind, and fills `pieces` but for their checksums.  pre: world_size, section_bytes, parameters
// and blobs (key, rank, piece, bytes) are set.
void place_ranges(Manifest* manifest);

// By position; what lies between two items is padding, zero.
std::vector<PieceItem> piece_items(const Manifest& manifest, int32_t piece);

inline constexpr uint64_t kPieceHeaderBytes = 4096;
// Checksums that a piece with its table there has, and what its file then holds.
uint64_t section_count(uint64_t table_position, uint64_t section_bytes);
uint64_t piece_bytes(uint64_t table_position, uint64_t section_bytes);

} // namespace zero::checkpoint

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/reshard.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/piece_layout.h"

namespace zero::checkpoint {
namespace {

constexpr uint64_t kCut = 32; // elements

// The ranges of [0, elements) whose place among all elements starts at `begin`, shares being
// `share` elements.
std::vector<Range> cut(uint64_t begin, uint64_t elements, uint64_t share, int32_t pieces) {
  std::vector<Range> ranges;
  uint64_t at = 0;
  while (at < elements) {
    const uint64_t piece = std::min((begin + at) / share, static_cast<uint64_t>(pieces) - 1);
    const bool last = piece + 1 == static_cast<uint64_t>(pieces);
    const uint64_t end = last ? elements : std::min(elements, (piece + 1) * share - begin);
    ranges.push_back({at, end - at, 0, static_cast<int32_t>(piece)});
    at = end;
  }
  return ranges;
}

} // namespace

void lay_out_for(Manifest* manifest, int32_t world_size) {
  if (world_size < 1) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "world_size is %d, expected 1 or more", world_size);
  }
  manifest->world_size = world_size;
  uint64_t total = 0;
  for (const StoredParameter& parameter : manifest->parameters) {
    if (parameter.parts.empty()) continue;
    total = checked_add(total, round_up(parameter.elements, kCut), "elements of a checkpoint");
  }
  const uint64_t share =
      std::max(kCut, round_up(divide_up(total, static_cast<uint64_t>(world_size)), kCut));
  uint64_t begin = 0;
  for (StoredParameter& parameter : manifest->parameters) {
    if (parameter.parts.empty()) continue;
    const std::vector<Range> ranges = cut(begin, parameter.elements, share, world_size);
    for (StoredPart& part : parameter.parts) part.ranges = ranges;
    begin += round_up(parameter.elements, kCut);
  }
  for (StoredBlob& blob : manifest->blobs) blob.piece = blob.rank % world_size;
  place_ranges(manifest);
}

} // namespace zero::checkpoint

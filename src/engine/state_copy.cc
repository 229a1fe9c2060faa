// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state_copy.h"

#include <algorithm>

#include "base/checked.h"
#include "checkpoint/piece_layout.h"
#include "comm/streaming_copy.h"
#include "engine/state_ranges.h"

namespace zero::engine {
namespace {

constexpr uint64_t kCopyGrainBytes = uint64_t{1} << 20;
constexpr uint64_t kElementGrain = 32;

// What is to be copied, as one row of bytes.
struct StateCopy {
  StateRanges state;
  const checkpoint::Manifest& manifest;
  std::vector<checkpoint::PieceItem> items;
  std::vector<uint64_t> begins; // of each item in the row
  std::byte* to;
  bool in_place; // the state lies in host memory
};

// Elements [begin, end) of an item.
void copy_elements(const StateCopy& copy, const checkpoint::PieceItem& item, uint64_t begin,
                   uint64_t end) {
  if (begin >= end) return;
  const checkpoint::StoredPart& part = copy.manifest.parameters[static_cast<size_t>(item.parameter)]
                                           .parts[static_cast<size_t>(item.part)];
  const uint64_t size = item.bytes / item.count;
  std::byte* const to = copy.to + (item.position - checkpoint::kPieceHeaderBytes) + begin * size;
  const uint64_t offset = item.offset + begin;
  const std::byte* const from =
      copy.in_place ? copy.state.find(item.parameter, part.kind, part.index, offset) : nullptr;
  if (from != nullptr) {
    comm::copy_streaming(to, from, (end - begin) * size);
  } else {
    copy.state.read(item.parameter, part.kind, part.index, offset, end - begin, to);
  }
}

// Bytes [begin, end) of the row; an item that is cut is cut between elements.
void copy_part(void* context, uint64_t begin, uint64_t end, int32_t) {
  const StateCopy& copy = *static_cast<const StateCopy*>(context);
  auto i = static_cast<size_t>(std::upper_bound(copy.begins.begin(), copy.begins.end(), begin) -
                               copy.begins.begin() - 1);
  for (; i < copy.items.size() && copy.begins[i] < end; ++i) {
    const checkpoint::PieceItem& item = copy.items[i];
    const uint64_t size = item.bytes / item.count;
    const auto element_at = [&](uint64_t at) {
      const uint64_t inside = at - std::min(at, copy.begins[i]);
      return std::min(item.count, round_up(divide_up(inside, size), kElementGrain));
    };
    copy_elements(copy, item, element_at(begin), element_at(end));
  }
}

} // namespace

void copy_state(Context& context, const checkpoint::Manifest& manifest) {
  const uint64_t capacity = context.storage->checkpoint_staging_bytes();
  StateCopy copy{StateRanges(context),
                 manifest,
                 {},
                 {},
                 context.storage->checkpoint_staging(),
                 context.device->place() == ZERO_PLACE_HOST};
  uint64_t bytes = 0;
  for (const checkpoint::PieceItem& item : checkpoint::piece_items(manifest, context.rank())) {
    if (item.parameter < 0) continue;
    const uint64_t end = item.position - checkpoint::kPieceHeaderBytes + item.bytes;
    if (end > capacity) {
      fail(ZERO_ERR_INTERNAL, "the staging memory of a checkpoint is %llu bytes, %llu are needed",
           static_cast<unsigned long long>(capacity), static_cast<unsigned long long>(end));
    }
    copy.items.push_back(item);
    copy.begins.push_back(bytes);
    bytes += item.bytes;
  }
  context.device->parallel(bytes, kCopyGrainBytes, &copy_part, &copy);
}

} // namespace zero::engine

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/undo_log.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "comm/streaming_copy.h"
#include "memory/process_memory.h"

namespace zero::engine {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBlockBytes = uint64_t{16} << 20;
// Zeros are looked for and copies made in such steps.
constexpr uint64_t kStepBytes = uint64_t{256} << 10;

bool is_zero(const std::byte* memory, uint64_t bytes) {
  // Each byte equals the one before it, and the first one is 0.
  return memory[0] == std::byte{0} && std::memcmp(memory, memory + 1, bytes - 1) == 0;
}

// Others live here too: an eighth of the machine, or of what a group of processes may have, stays
// free.
bool machine_has(uint64_t bytes) {
  const memory::ProcessMemory process = memory::read_process_memory();
  const auto leaves_enough = [bytes](uint64_t available, uint64_t all) {
    return all == 0 || (available >= bytes && available - bytes >= all / 8);
  };
  return leaves_enough(process.available_bytes, process.machine_bytes) &&
         leaves_enough(process.group_available_bytes, process.group_limit_bytes);
}

} // namespace

bool UndoLog::add_block(uint64_t bytes) {
  const zero_place place = context_.device->place();
  if (!machine_has(bytes) || !context_.ledger.charge(place, bytes)) return false;
  std::byte* memory = nullptr;
  try {
    blocks_.reserve(blocks_.size() + 1);
    memory = static_cast<std::byte*>(context_.device->allocate(bytes));
  } catch (const Error&) {
    context_.ledger.discharge(place, bytes);
    return false;
  }
  context_.ledger.add(place, ZERO_MEMORY_STAGING, bytes);
  blocks_.push_back({memory, bytes});
  held_bytes_ += bytes;
  left_ = bytes;
  return true;
}

void UndoLog::add(std::byte* memory, uint64_t bytes, const std::byte* copy) {
  noted_bytes_ += bytes;
  if (!entries_.empty()) {
    Entry& last = entries_.back();
    const bool goes_on = last.memory + last.bytes == memory;
    const bool same_kind = copy == nullptr ? last.copy == nullptr
                                           : last.copy != nullptr && last.copy + last.bytes == copy;
    if (goes_on && same_kind) {
      last.bytes += bytes;
      return;
    }
  }
  entries_.push_back({memory, bytes, copy});
}

bool UndoLog::note(std::byte* memory, uint64_t bytes) {
  if (context_.device->place() != ZERO_PLACE_HOST) return false;
  while (bytes > 0) {
    uint64_t now = std::min(bytes, kStepBytes);
    if (is_zero(memory, now)) {
      add(memory, now, nullptr);
    } else {
      if (left_ == 0) {
        const uint64_t missing = std::max(most_ - std::min(most_, noted_bytes_), now);
        if (!add_block(std::min(kBlockBytes, round_up(missing, kPage)))) return false;
      }
      now = std::min(now, left_);
      std::byte* const copy = blocks_.back().memory + (blocks_.back().bytes - left_);
      comm::copy_streaming(copy, memory, now);
      left_ -= now;
      add(memory, now, copy);
    }
    memory += now;
    bytes -= now;
  }
  return true;
}

// The newest first: what was noted twice is at last what it was at first.
void UndoLog::roll_back() {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->copy == nullptr) {
      std::memset(entry->memory, 0, entry->bytes);
    } else {
      std::memcpy(entry->memory, entry->copy, entry->bytes);
    }
  }
  clear();
}

void UndoLog::clear() {
  const zero_place place = context_.device->place();
  for (const Block& block : blocks_) {
    context_.device->release(block.memory, block.bytes);
    context_.ledger.remove(place, ZERO_MEMORY_STAGING, block.bytes);
    context_.ledger.discharge(place, block.bytes);
  }
  blocks_.clear();
  entries_.clear();
  left_ = noted_bytes_ = held_bytes_ = 0;
}

} // namespace zero::engine

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/undo_log.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/clock.h"
#include "comm/streaming_copy.h"
#include "memory/process_memory.h"

namespace zero::engine {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBlockBytes = uint64_t{16} << 20;
constexpr int64_t kSlowestBlockNs = 16000000; // 1 GB/s
// Zeros are looked for and copies made in such steps.
constexpr uint64_t kStepBytes = uint64_t{256} << 10;

constexpr uint64_t kClearGrainBytes = uint64_t{1} << 20;

void clear_part(void* memory, uint64_t begin, uint64_t end, int32_t) {
  std::memset(static_cast<std::byte*>(memory) + begin, 0, end - begin);
}

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

void UndoLog::lend(std::byte* memory, uint64_t bytes, bool cleared) {
  if (memory == nullptr || bytes == 0) return;
  blocks_.push_back({memory, bytes, cleared ? Kind::kLentCleared : Kind::kLent});
}

void UndoLog::expect(const std::byte* memory, uint64_t bytes) {
  most_ += bytes;
  if (bytes > 0 && !is_zero(memory, std::min(bytes, kStepBytes))) expected_bytes_ += bytes;
}

bool UndoLog::begin() {
  if (context_.device->place() != ZERO_PLACE_HOST) return false;
  uint64_t lent = 0;
  for (const Block& block : blocks_) lent += block.bytes;
  if (expected_bytes_ <= lent) return true;
  return take_block(std::min(kBlockBytes, round_up(expected_bytes_ - lent, kPage)));
}

// On some virtual machines the first touch of memory is slower than a disk.
bool UndoLog::take_block(uint64_t bytes) {
  const int64_t begun = now_ns();
  const zero_place place = context_.device->place();
  if (!machine_has(bytes) || !context_.ledger.charge(place, bytes)) return false;
  try {
    blocks_.reserve(blocks_.size() + 1);
    auto* const memory = static_cast<std::byte*>(context_.device->allocate(bytes));
    blocks_.push_back({memory, bytes, Kind::kTaken});
  } catch (...) {
    context_.ledger.discharge(place, bytes);
    return false;
  }
  context_.ledger.add(place, ZERO_MEMORY_STAGING, bytes);
  return bytes < kBlockBytes || now_ns() - begun < kSlowestBlockNs;
}

// Where up to `bytes` go; null: nowhere.
std::byte* UndoLog::room(uint64_t bytes, uint64_t* got) {
  while (filling_ < blocks_.size() && blocks_[filling_].used == blocks_[filling_].bytes) {
    ++filling_;
  }
  if (filling_ == blocks_.size()) {
    const uint64_t missing = std::max(most_ - std::min(most_, noted_bytes_), bytes);
    if (!take_block(std::min(kBlockBytes, round_up(missing, kPage)))) return nullptr;
  }
  Block& block = blocks_[filling_];
  std::byte* const at = block.memory + block.used;
  *got = std::min(bytes, block.bytes - block.used);
  block.used += *got;
  return at;
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
  while (bytes > 0) {
    uint64_t now = std::min(bytes, kStepBytes);
    std::byte* copy = nullptr;
    if (!is_zero(memory, now)) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        copy = room(now, &now);
      }
      if (copy == nullptr) return false;
      comm::copy_streaming(copy, memory, now);
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
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
    if (block.kind == Kind::kTaken) {
      context_.device->release(block.memory, block.bytes);
      context_.ledger.remove(place, ZERO_MEMORY_STAGING, block.bytes);
      context_.ledger.discharge(place, block.bytes);
    } else if (block.kind == Kind::kLentCleared) {
      context_.device->parallel(block.used, kClearGrainBytes, &clear_part, block.memory);
    }
  }
  blocks_.clear();
  entries_.clear();
  filling_ = 0;
  noted_bytes_ = expected_bytes_ = most_ = 0;
}

} // namespace zero::engine

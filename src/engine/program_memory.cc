// Blocks from one huge page on come from the device: populated, so that a machine that is out of
// memory says so here and not at the first touch.  Smaller ones come from the heap.
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/program_memory.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/error.h"

namespace zero::engine {
namespace {

using Number = unsigned long long;

constexpr uint64_t kHugePage = UINT64_C(2) << 20;
constexpr uint64_t kDefaultAlignment = 64;
constexpr zero_place kPlace = ZERO_PLACE_HOST;

void check(zero_place place, uint64_t alignment) {
  if (place == ZERO_PLACE_PINNED || place == ZERO_PLACE_DEVICE) {
    fail(ZERO_ERR_UNSUPPORTED, "place is %d, expected 1 (host): a device is not in this build",
         place);
  }
  if (place != ZERO_PLACE_HOST) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "place is %d, expected 1 (host), 2 (pinned) or 3 (device)",
         place);
  }
  const bool power_of_two = (alignment & (alignment - 1)) == 0;
  if (!power_of_two || alignment > kHugePage) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "alignment is %llu, expected a power of two up to 2097152, or 0 for 64",
         static_cast<Number>(alignment));
  }
}

} // namespace

ProgramMemory::~ProgramMemory() {
  for (const auto& [memory, block] : blocks_) give_back(memory, block);
}

void* ProgramMemory::obtain(uint64_t bytes, uint64_t alignment, bool mapped) {
  if (mapped) return device_.allocate(bytes);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) {
    fail(ZERO_ERR_OUT_OF_MEMORY, "zero_memory_allocate: %llu bytes of host memory could not be had",
         static_cast<Number>(bytes));
  }
  return memory;
}

void ProgramMemory::give_back(void* memory, const Block& block) {
  if (block.mapped) {
    device_.release(memory, block.bytes);
  } else {
    std::free(memory);
  }
  ledger_.remove(kPlace, ZERO_MEMORY_HOST_PROGRAM, block.bytes);
  ledger_.discharge(kPlace, block.bytes);
}

void* ProgramMemory::allocate(zero_place place, uint64_t bytes, uint64_t alignment) {
  check(place, alignment);
  if (bytes == 0) return nullptr;
  const Block block{bytes, bytes >= kHugePage};
  if (!ledger_.charge(place, bytes)) {
    fail(ZERO_ERR_OUT_OF_MEMORY,
         "zero_memory_allocate: %llu bytes do not fit into libzero.memory_budget = %llu, of which "
         "%llu are taken",
         static_cast<Number>(bytes), static_cast<Number>(ledger_.budget()),
         static_cast<Number>(ledger_.charged(place)));
  }
  void* memory = nullptr;
  try {
    memory = obtain(bytes, std::max(alignment, kDefaultAlignment), block.mapped);
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.emplace(memory, block);
  } catch (...) {
    if (memory != nullptr && block.mapped) device_.release(memory, bytes);
    if (memory != nullptr && !block.mapped) std::free(memory);
    ledger_.discharge(place, bytes);
    throw;
  }
  ledger_.add(place, ZERO_MEMORY_HOST_PROGRAM, bytes);
  return memory;
}

bool ProgramMemory::free(void* memory) {
  Block block{};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return false;
    block = found->second;
    blocks_.erase(found);
  }
  give_back(memory, block);
  return true;
}

} // namespace zero::engine

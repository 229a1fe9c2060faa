// The host program's own memory, such as activations: under the same ledger and budget as
// libzero's. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "device/device.h"
#include "memory/ledger.h"

namespace zero::engine {

// Any thread.
class ProgramMemory {
 public:
  ProgramMemory(device::Device& device, memory::Ledger& ledger)
      : device_(device), ledger_(ledger) {}
  ~ProgramMemory(); // what is still held goes back
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;

  // Throws UNSUPPORTED, INVALID_ARGUMENT, or OUT_OF_MEMORY, then with nothing changed.
  void* allocate(zero_place place, uint64_t bytes, uint64_t alignment);
  // False: not from here, or free already.
  bool free(void* memory);

 private:
  struct Block {
    uint64_t bytes;
    bool mapped; // by the device
  };
  void* obtain(uint64_t bytes, uint64_t alignment, bool mapped);
  void give_back(void* memory, const Block& block);

  device::Device& device_;
  memory::Ledger& ledger_;
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_; // guarded by mutex_
};

} // namespace zero::engine

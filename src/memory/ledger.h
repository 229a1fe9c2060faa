// Every byte libzero holds, by place and use: current and peak, readable from any thread; and the
// budget, which is charged before anything is allocated.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <atomic>
#include <cstdint>

namespace zero::memory {

constexpr int32_t kPlaces = 5; // zero_place counts from 1
constexpr int32_t kUses = 16; // zero_memory_use counts from 1; 0 is the total

class Ledger {
 public:
  void plan(zero_place place, zero_memory_use use, uint64_t bytes); // once, before the first add
  void forget_plan(); // what was planned is not carried out; peaks start anew
  void add(zero_place place, zero_memory_use use, uint64_t bytes);
  void remove(zero_place place, zero_memory_use use, uint64_t bytes);
  void reset_peak();

  // Bytes that may be charged at each place on its own; 0: as many as there are.
  void set_budget(uint64_t bytes) { budget_ = bytes; }
  uint64_t budget() const { return budget_; }
  // False, and nothing charged, where it would go beyond the budget.
  bool charge(zero_place place, uint64_t bytes);
  void discharge(zero_place place, uint64_t bytes) { charged_[place] -= bytes; }
  uint64_t charged(zero_place place) const { return charged_[place]; }

  uint64_t planned(zero_place place, zero_memory_use use) const;
  uint64_t current(zero_place place, zero_memory_use use) const;
  uint64_t peak(zero_place place, zero_memory_use use) const;

  // Of what is held on the host: mapped by other processes too.
  void add_shared(uint64_t bytes) { shared_ += bytes; }
  void remove_shared(uint64_t bytes) { shared_ -= bytes; }
  uint64_t shared() const { return shared_; }

 private:
  struct Entry {
    std::atomic<uint64_t> planned{0}, current{0}, peak{0};
    void add(uint64_t bytes);
  };
  Entry& at(zero_place place, int32_t use) { return entries_[place][use]; }
  const Entry& at(zero_place place, int32_t use) const { return entries_[place][use]; }
  Entry entries_[kPlaces][kUses];
  std::atomic<uint64_t> shared_{0};
  uint64_t budget_ = 0; // set before any other thread looks
  std::atomic<uint64_t> charged_[kPlaces] = {};
};

} // namespace zero::memory

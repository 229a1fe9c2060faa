// SPDX-License-Identifier: BSD-3-Clause
#include "memory/ledger.h"

namespace zero::memory {

void Ledger::Entry::add(uint64_t bytes) {
  const uint64_t now = current.fetch_add(bytes) + bytes;
  uint64_t seen = peak.load();
  while (seen < now && !peak.compare_exchange_weak(seen, now)) {
  }
}

void Ledger::plan(zero_place place, zero_memory_use use, uint64_t bytes) {
  at(place, use).planned = bytes;
  at(place, ZERO_MEMORY_TOTAL).planned += bytes;
}

void Ledger::forget_plan() {
  for (auto& place : entries_) {
    for (Entry& entry : place) entry.planned = 0;
  }
  reset_peak();
}

void Ledger::add(zero_place place, zero_memory_use use, uint64_t bytes) {
  at(place, use).add(bytes);
  at(place, ZERO_MEMORY_TOTAL).add(bytes);
}

void Ledger::remove(zero_place place, zero_memory_use use, uint64_t bytes) {
  at(place, use).current -= bytes;
  at(place, ZERO_MEMORY_TOTAL).current -= bytes;
}

bool Ledger::charge(zero_place place, uint64_t bytes) {
  const uint64_t most = budget_ == 0 ? UINT64_MAX : budget_;
  uint64_t seen = charged_[place].load();
  do {
    if (seen > most || bytes > most - seen) return false;
  } while (!charged_[place].compare_exchange_weak(seen, seen + bytes));
  return true;
}

void Ledger::reset_peak() {
  for (auto& place : entries_) {
    for (Entry& entry : place) entry.peak = entry.current.load();
  }
}

uint64_t Ledger::planned(zero_place place, zero_memory_use use) const {
  return at(place, use).planned;
}
uint64_t Ledger::current(zero_place place, zero_memory_use use) const {
  return at(place, use).current;
}
uint64_t Ledger::peak(zero_place place, zero_memory_use use) const {
  return at(place, use).peak;
}

} // namespace zero::memory

// Raising a counter and sleeping until a peer raises its own: futexes in shared memory.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "comm/local_control.h"

namespace zero::comm {

// Counters wrap; they are never 2^31 apart.
inline bool has_reached(const Gate& gate, uint32_t target) {
  return static_cast<int32_t>(gate.count.load(std::memory_order_seq_cst) - target) >= 0;
}

void raise_gate(Gate& gate, uint32_t value);

// True when the target was reached within budget_ns of spinning.
bool spin_on_gate(const Gate& gate, uint32_t target, int64_t budget_ns);

// Sleeps until the counter changes from what it is now (and is short of target), a wake, or
// slice_ns.
void sleep_on_gate(Gate& gate, uint32_t target, int64_t slice_ns);

// Wakes whoever sleeps, although nothing was reached: they look at the failure record.
void rouse_gate(Gate& gate) noexcept;

// 0 where ranks x their threads outnumber the cores this process may use.
int64_t spin_budget_ns(int32_t local_ranks);

} // namespace zero::comm

// SPDX-License-Identifier: BSD-3-Clause
#include "comm/local_barrier.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <thread>

#include "comm/progress_watch.h"

namespace zero::comm {
namespace {

constexpr int64_t kSpinNs = 20 * 1000;
constexpr int32_t kThreadsOfARank = 3; // the caller, the reduce and the gather stream

uint32_t* futex_word(Gate& gate) {
  return reinterpret_cast<uint32_t*>(&gate.count);
}

void wake(Gate& gate) {
  syscall(SYS_futex, futex_word(gate), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

} // namespace

// The order on both sides is what makes a lost wake impossible: here the count is stored before
// the sleepers are read, there a sleeper counts itself before the kernel compares the count.
void raise_gate(Gate& gate, uint32_t value) {
  gate.count.store(value, std::memory_order_seq_cst);
  if (gate.sleepers.load(std::memory_order_seq_cst) != 0) wake(gate);
}

bool spin_on_gate(const Gate& gate, uint32_t target, int64_t budget_ns) {
  if (has_reached(gate, target)) return true;
  if (budget_ns <= 0) return false;
  const int64_t end = now_ns() + budget_ns;
  do {
    for (int i = 0; i < 32; ++i) {
      if (has_reached(gate, target)) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (now_ns() < end);
  return false;
}

void sleep_on_gate(Gate& gate, uint32_t target, int64_t slice_ns) {
  gate.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = gate.count.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    const timespec slice = {slice_ns / 1000000000, slice_ns % 1000000000};
    syscall(SYS_futex, futex_word(gate), FUTEX_WAIT, seen, &slice, nullptr, 0);
  }
  gate.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void rouse_gate(Gate& gate) noexcept {
  wake(gate);
}

int64_t spin_budget_ns(int32_t local_ranks) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  return local_ranks * kThreadsOfARank > cores ? 0 : kSpinNs;
}

} // namespace zero::comm

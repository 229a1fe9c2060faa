// What the fault tests share: a board in shared memory on which ranks write what they were told,
// and the sequence of calls in which one of them dies.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "model_values.h"
#include "ranks.h"
#include "training.h"

namespace faults {

int64_t now_ns();

inline bool is_comm_family(zero_status status) {
  return status >= ZERO_ERR_COMM && status < ZERO_ERR_DEVICE;
}

// One rank's part of the board.  Plain copies of what it saw; read by the parent when all ended.
struct Entry {
  std::atomic<int32_t> call; // number of the call it is in, or was in last; -1 before
  std::atomic<int32_t> finished; // came to the end of its calls
  std::atomic<int64_t> begun_ns; // of that call
  std::atomic<int64_t> died_ns; // just before SIGKILL
  std::atomic<int32_t> child; // pid of the child that outlives it
  int32_t status; // of the first error; OK: none
  int32_t rank_named;
  int64_t error_ns;
  int64_t destroy_ns; // how long destroy took
  char call_name[32];
  char text[952];
};
// Written to by the rank itself.
void write_error(Entry& entry, zero_status status, const char* call);

// How and when the victim dies.
enum class Moment { kBefore, kInside, kAfter };
struct KillPlan {
  int32_t victim = -1; // nobody
  int32_t call = 0;
  Moment moment = Moment::kBefore;
  int32_t delay_us = 0; // from the beginning of the call, kInside
  bool with_child = false;
};

struct Scene {
  training::RunSpec spec;
  int64_t timeout_ns = 60 * ranks::kSecond;
  KillPlan kill;
};

// Every call of a run of two steps, in order, until the first error.  names: of the calls, may be
// null.  After an error: the runtime answers FAILED, gives status and text, and is destroyed.
void run_calls(const Scene& scene, int32_t rank, const std::string& group, Entry& entry,
               std::vector<std::string>* names);

} // namespace faults

// What to change when the memory does not fit: the cheapest changes that do, each with the total of
// the plan that it leads to.  Pure.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// In order of what they cost.
enum class AdviceKind {
  kSmallerBuckets, // less room for gradients and loans in flight; the same bits
  kRemainderMasters, // bf16: 2 1/8 bytes a master instead of 4; the same bits
  kNextStage, // the same bits; stage 3 communicates half as much again
  kOffload, // of a device: the optimizer, or that and parameters, to the host; the same bits
  kMoreRanks,
  kSmallerMicroBatch // more accumulation; helps where the host program's memory is the matter
};

struct MemoryQuestion {
  PlanSettings settings; // what does not fit
  uint64_t limit = 0; // bytes there are at the settings' place, for the plan and the host program
  uint64_t program_bytes = 0; // the host program's, held
  uint64_t failed_bytes = 0; // and what it asked for besides
  // Staging that the communicator itself needs at this number of ranks.
  std::function<uint64_t(int32_t ranks)> own_staging_bytes;
  int64_t micro_batch = 0; // samples; 0: not known
  int64_t accumulation_steps = 1;
};

struct Advice {
  AdviceKind kind;
  PlanSettings settings; // with the change
  // Keys of the config and their new values, as zero_config_set takes them.
  std::vector<std::pair<std::string, std::string>> changes;
  int64_t micro_batch_divisor = 1;
  uint64_t plan_bytes = 0; // at the settings' place
  uint64_t host_bytes = 0; // of the plan beside that, in host memory
  uint64_t total_bytes = 0; // with the host program's, its failed_bytes included
  std::string text() const; // one line
};

// At most one of each kind, cheapest first; empty where nothing fits.  smallest: what the least
// total that was tried needs, whether it fits or not.
std::vector<Advice> memory_advice(const MemoryQuestion& question, const ParameterTable& model,
                                  Advice* smallest);

} // namespace zero::plan

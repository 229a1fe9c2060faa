// DeepSpeed's own estimates of model states (deepspeed.runtime.zero: estimate_zero2_... and
// estimate_zero3_model_states_mem_needs_all_cold), and where ours differ.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan_rows.h"

namespace zero::cli {

struct Estimate {
  int32_t stage = 2;
  Offload offload = Offload::kNone;
  bool zero_init = true; // stage 3: the model is built sharded
  uint64_t gpu_bytes = 0;
  uint64_t host_bytes = 0; // of a machine, with DeepSpeed's safety factor of 1.5
  const char* difference = ""; // a sentence: why ours is another number
};

// In the order in which DeepSpeed prints them.
std::vector<Estimate> deepspeed_estimates(const ModelCounts& counts, const PlanLimits& limits);

} // namespace zero::cli

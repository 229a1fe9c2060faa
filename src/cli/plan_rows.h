// One row for each stage and choice of offload: what a rank holds and the largest micro-batch.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan_model.h"

namespace zero::cli {

enum class Offload { kNone, kOptimizer, kOptimizerAndParams };
const char* offload_name(Offload offload); // "-", "optimizer", "optimizer+params"

constexpr size_t kMemoryUses = 9; // zero_memory_use, TOTAL to TABLES
const char* memory_use_word(size_t use);

struct PlanLimits {
  int32_t world = 1;
  int32_t ranks_per_host = 1;
  bool on_host = false; // ranks train in host memory: one place, and tables count
  uint64_t gpu_bytes = 0; // of a rank; 0: not given
  uint64_t host_bytes = 0; // of a machine; 0: not given
  uint64_t reserve_bytes = 0; // of the GPU: contexts, libraries, other programs
  uint64_t activation_bytes = 0; // a sample; 0: not given
};

struct PlanRow {
  int32_t stage = 0;
  Offload offload = Offload::kNone;
  bool is_configs = false; // what the file itself asks for
  bool runs = false; // in this build
  std::array<uint64_t, kMemoryUses> device{}; // bytes of a rank by use; [0] is their sum
  std::array<uint64_t, kMemoryUses> host{};
  uint64_t free_bytes = 0; // of the GPU, for activations
  bool fits = false; // model states alone
  int64_t micro_batch = -1; // samples; -1: not known
  std::string binds; // what there is too little of for one more sample
};

// False where a stage cannot be planned; *error then says why.  Leaves config changed.
bool plan_rows(zero_config* config, const PlannedModel& model, const PlanLimits& limits,
               std::vector<PlanRow>* rows, std::string* error);

} // namespace zero::cli

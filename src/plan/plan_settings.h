// Every number a plan depends on, beside the model itself.  Pure values; nothing here knows a rank.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>

namespace zero::plan {

// The ranks that share a class of parameters.  Today there is one; a class asks its own, so that
// expert and tensor parallel groups need no new layout.
struct RankGroup {
  int32_t ranks = 1;
  zero_comm_kind kind = ZERO_COMM_SELF;
  // What the communicator needs in pieces: 0 where nothing is copied (local, self).
  uint64_t own_staging_bytes = 0;
};

struct PlanSettings {
  int32_t stage = 0;
  RankGroup group;

  uint64_t alignment = 32; // elements; parameters start and shards are cut at multiples of it
  uint64_t reduce_bucket_elements = 500000000; // a ceiling; 0: one parameter a bucket
  uint64_t prefetch_elements = 50000000;
  uint64_t persistence_threshold_elements = 100000;
  uint64_t model_persistence_elements = UINT64_MAX;
  uint64_t max_live_elements = 1000000000;
  uint64_t live_elements = 0; // 0: the plan's default
  int32_t open_buckets = 4; // 0: all
  uint64_t staging_segment_bytes = uint64_t{4} << 20;

  int32_t optimizer_states = 0; // fp32 values a trained element beside its master
  bool optimizer_present = false; // no optimizer: no master either
  bool all_gradients_at_once = false; // an optimizer that looks at all before it steps
  bool gathers_directions = false; // Muon: whole buckets of directions, two at a time
  uint64_t matrix_workspace_elements = 0; // Muon: fp32
  zero_dtype accumulation_dtype = ZERO_DTYPE_FP32;
  // Of 16-bit parameters: fp32, or their own dtype (then there is no master beside them).
  zero_dtype master_dtype = ZERO_DTYPE_FP32;
  bool master_is_remainder = false; // bf16: 16 bits and a bit for ties complete the parameter
  zero_dtype state_dtype = ZERO_DTYPE_FP32;
  bool reproducible_stage = false; // stages 0 and 1 keep an extra shard
  bool param_norms = false;
  bool checkpoint_background = false; // staging memory for a copy of what a rank saves
  bool own_allocator = false; // the host program's: exchanges go through staging
  zero_place place = ZERO_PLACE_HOST;
  // To host memory; without effect where place is the host, and at stages that shard nothing of it.
  bool offload_optimizer = false, offload_param = false;
  bool offload_pinned = false; // masters and states
};

} // namespace zero::plan

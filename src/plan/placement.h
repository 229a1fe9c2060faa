// What a stage is: where parameters, gradients and optimizer state live between uses.  One row of
// the table of the ZeRO paper (Rajbhandari et al. 2020, section 5).  No other code asks for the
// stage's number.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::plan {

struct Placement {
  bool optimizer_sharded = false; // from stage 1: master and state are this rank's shard
  bool gradients_sharded = false; // from stage 2: reduced when a bucket is complete, pool of slots
  bool parameters_sharded = false; // stage 3: whole only on loan

  static constexpr Placement of_stage(int32_t stage) {
    return Placement{stage >= 1, stage >= 2, stage >= 3};
  }
};

} // namespace zero::plan

// What a stage is: where parameters, gradients and optimizer state live between uses.  One row of
// the table of the ZeRO paper (Rajbhandari et al. 2020, section 5), and what of it is offloaded
// from a device to the host.  No other code asks for the stage's number. SPDX-License-Identifier:
// BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::plan {

struct Placement {
  bool optimizer_sharded = false; // from stage 1: master and state are this rank's shard
  bool gradients_sharded = false; // from stage 2: reduced when a bucket is complete, pool of slots
  bool parameters_sharded = false; // stage 3: whole only on loan
  // Shards of masters, states and gradients are the host's, and so is the update.
  bool optimizer_on_host = false;
  bool parameters_on_host = false; // with parameters_sharded

  static constexpr Placement of_stage(int32_t stage) {
    return Placement{stage >= 1, stage >= 2, stage >= 3, false, false};
  }
};

} // namespace zero::plan

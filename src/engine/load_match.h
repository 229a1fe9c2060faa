// Which parameter of a checkpoint each parameter of the model is read from, and everything in which
// the two do not fit.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "engine/context.h"
#include "engine/stepper.h"

namespace zero::engine {

struct LoadOptions {
  bool weights_only = false;
  bool allow_missing = false;
  bool allow_extra = false;
};

struct MatchedParameter {
  zero_param_id root = -1; // of the model
  int32_t row = -1; // of the checkpoint
  bool with_state = false; // its states and its step count come too
};

// Throws FILE_MISMATCH with one sentence that lists all differences.
std::vector<MatchedParameter> match_parameters(const checkpoint::CheckpointReader& reader,
                                               const Context& context, Stepper& stepper,
                                               const LoadOptions& options);

} // namespace zero::engine

// The loss scale of fp16 training: static, or the dynamic state machine of DeepSpeed's
// DynamicLossScaler (section 2.9 of the behaviour reference; Micikevicius et al. 2018,
// section 3.2). Plain values and functions, the same on every rank. SPDX-License-Identifier:
// BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::optim {

struct LossScaleRules {
  bool dynamic = false;
  double initial = 1; // or the static scale
  double minimum = 1;
  int64_t window = 1000; // clean steps to a growth
  int64_t hysteresis = 1;
  bool consecutive_hysteresis = false; // each clean step refills the credits
};

struct LossScale {
  double scale = 1;
  int64_t credits = 1; // overflows tolerated before the scale is halved, and one
  int64_t iteration = 0;
  int64_t last_overflow = -1;
};

LossScale initial_loss_scale(const LossScaleRules& rules);

// False: an overflow at the smallest scale that no credit excuses; nothing was changed.
bool may_overflow(const LossScaleRules& rules, const LossScale& state);
// After a step.  pre: overflow implies may_overflow
void update_loss_scale(const LossScaleRules& rules, bool overflow, LossScale* state);

} // namespace zero::optim

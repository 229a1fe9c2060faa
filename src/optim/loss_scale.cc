// SPDX-License-Identifier: BSD-3-Clause
#include "optim/loss_scale.h"

#include <algorithm>

namespace zero::optim {
namespace {

bool halves(const LossScaleRules& rules, const LossScale& state) {
  return rules.hysteresis == 1 || state.credits == 1;
}

} // namespace

LossScale initial_loss_scale(const LossScaleRules& rules) {
  LossScale state;
  state.scale = rules.initial;
  state.credits = rules.hysteresis;
  return state;
}

bool may_overflow(const LossScaleRules& rules, const LossScale& state) {
  if (!rules.dynamic) return true;
  return !halves(rules, state) || state.scale > rules.minimum;
}

void update_loss_scale(const LossScaleRules& rules, bool overflow, LossScale* state) {
  if (!rules.dynamic) return;
  if (overflow) {
    if (halves(rules, *state)) {
      state->scale = std::max(state->scale / 2, rules.minimum);
    } else {
      --state->credits;
    }
    state->last_overflow = state->iteration;
  } else {
    if (rules.consecutive_hysteresis) state->credits = rules.hysteresis;
    const int64_t clean = state->iteration - state->last_overflow - 1;
    if (clean > 0 && clean % rules.window == 0) {
      state->credits = rules.hysteresis;
      state->scale *= 2;
    }
  }
  ++state->iteration;
}

} // namespace zero::optim

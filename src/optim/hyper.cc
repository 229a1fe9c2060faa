// SPDX-License-Identifier: BSD-3-Clause
#include "optim/hyper.h"

#include <cmath>

namespace zero::optim {

AdamStep adam_step(const HyperParameters& hyper, int64_t t, bool bias_correction) {
  AdamStep step;
  step.step_size = hyper.lr;
  step.inverse_root_correction2 = 1;
  if (bias_correction) {
    step.step_size = hyper.lr / (1 - power(hyper.beta1, t));
    step.inverse_root_correction2 = 1 / std::sqrt(1 - power(hyper.beta2, t));
  }
  step.decay_factor = 1 - hyper.lr * hyper.weight_decay;
  return step;
}

GradientScale gradient_scale(double raw_norm, double average, double loss_scale, double clipping) {
  GradientScale scale;
  const double unscale = average / loss_scale;
  scale.norm = raw_norm * unscale;
  // The guard keeps DeepSpeed's arithmetic; without it a norm just above the limit would differ.
  const double excess = clipping > 0 ? (scale.norm + 1e-6) / clipping : 1;
  if (excess > 1) scale.clip_scale = 1 / excess;
  scale.factor = unscale * scale.clip_scale;
  return scale;
}

} // namespace zero::optim

// Hyper-parameters of one group at one update, and what follows from them and a step count: bias
// corrections, the clip factor.  Pure; nothing transcendental but the square root.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::optim {

struct HyperParameters {
  double lr = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0, momentum = 0;
};

// base^exponent by squaring, in double: the same bits on host and device.  pre: exponent >= 0
constexpr double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

// Kingma & Ba 2015, section 2 (the order of computation at its end): step size and root with the
// bias corrections folded in.
struct AdamStep {
  double step_size; // lr / (1 - beta1^t)
  double inverse_root_correction2; // 1 / sqrt(1 - beta2^t)
  double decay_factor; // 1 - lr * weight_decay
};
AdamStep adam_step(const HyperParameters& hyper, int64_t t, bool bias_correction);

// What the averaged, still scaled gradient is multiplied by in the fused pass.
struct GradientScale {
  double norm = 0; // of the unscaled gradient, before clipping
  double clip_scale = 1; // 1 where nothing was clipped
  double factor = 1; // unscale x 1/divisor x clip
};
// raw_norm: of the gradients as they were handed over, averaged over ranks and added over
// micro-batches.  average: what turns their sum into the mean (1/micro-batches, or
// ranks/gradient_divisor).  clipping 0: off.  As DeepSpeed's combined factor:
// 1 / (loss_scale * max(1, (norm + 1e-6) / clipping)).
GradientScale gradient_scale(double raw_norm, double average, double loss_scale, double clipping);

} // namespace zero::optim

// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_plain_update.h"

#include <math.h>

void gpt_adam_update(const gpt_adam* adam, float* values, const float* gradients, float* first,
                     float* second, uint64_t count) {
  const gpt_adam a = *adam;
  for (uint64_t i = 0; i < count; i++) {
    const float g = gradients[i] * a.factor;
    first[i] = a.beta1 * first[i] + (1 - a.beta1) * g;
    second[i] = a.beta2 * second[i] + (1 - a.beta2) * g * g;
    const float size = sqrtf(second[i]) / a.correction2 + a.epsilon;
    values[i] -= a.decay * values[i] + a.lr / a.correction1 * first[i] / size;
  }
}

void gpt_mean_of(float* out, const float* parts, uint64_t stride, int ranks, uint64_t count) {
  const float share = 1.0f / (float)ranks;
  for (uint64_t i = 0; i < count; i++) {
    float sum = parts[i];
    for (int r = 1; r < ranks; r++) sum += parts[(uint64_t)r * stride + i];
    out[i] = sum * share;
  }
}

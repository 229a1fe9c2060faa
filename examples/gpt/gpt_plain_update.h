// The loops of gpt_plain.c, built so that square roots become vector code.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_PLAIN_UPDATE_H
#define GPT_PLAIN_UPDATE_H

#include <stdint.h>

typedef struct gpt_adam {
  float lr, beta1, beta2, epsilon;
  float decay; // lr x weight decay
  float correction1, correction2; // 1 - beta^t, the second one's square root
  float factor; // clipping
} gpt_adam;

void gpt_adam_update(const gpt_adam* adam, float* values, const float* gradients, float* first,
                     float* second, uint64_t count);
// out = (parts[0] + parts[1] + ...) / ranks; part r begins r x stride elements behind parts.
void gpt_mean_of(float* out, const float* parts, uint64_t stride, int ranks, uint64_t count);

#endif

// 03  Micro-batches.  A step may gather gradients of several micro-batches before it updates: the
// mean over micro-batches and ranks, or, where micro-batches hold unequal numbers of tokens, sums
// divided by gradient_divisor.
// SPDX-License-Identifier: BSD-3-Clause
#include <math.h>
#include <zero.h>

#include "must.h"

enum { MICRO_BATCHES = 4 };

static const float tokens[MICRO_BATCHES] = {10, 30, 20, 20}; // of which each gradient is a mean
static const float means[MICRO_BATCHES] = {1, 2, 3, 5};

// Hands one micro-batch's gradient over.  Asked with *add = 1, it must be added to what is there.
static void hand_over(zero_runtime* runtime, zero_param_id w, float gradient) {
  zero_buffer buffer;
  int32_t add = 0;
  must(zero_grad_buffer(runtime, w, NULL, &buffer, &add));
  float* at = buffer.data;
  *at = add ? *at + gradient : gradient;
  must(zero_grad_ready(runtime, &w, 1, NULL));
}

int main(void) {
  const float first = 100;
  zero_model* model = must_model();
  const zero_param_id w = must_add(model, "w", 1, -1, &first);
  zero_runtime* runtime = must_shard(
      "{\"gradient_accumulation_steps\": 4, "
      "\"zero_optimization\": {\"stage\": 2},"
      " \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1}}}",
      NULL, model);

  // Equal weights: every micro-batch counts the same.
  for (int i = 0; i < MICRO_BATCHES; i++) {
    must(zero_micro_begin(runtime, /*is_last=*/i + 1 == MICRO_BATCHES));
    hand_over(runtime, w, means[i]);
    must(zero_micro_end(runtime, NULL));
  }
  must(zero_step(runtime, NULL, NULL, NULL));
  float equal = 0;
  must(zero_param_get(runtime, w, ZERO_PART_VALUE, 0, &equal, sizeof equal));

  // Equal tokens: hand over sums, and say how many tokens all of them are.
  zero_step_options by_tokens;
  zero_step_options_init(&by_tokens, sizeof by_tokens);
  by_tokens.gradient_divisor = 80;
  for (int i = 0; i < MICRO_BATCHES; i++) {
    must(zero_micro_begin(runtime, /*is_last=*/i + 1 == MICRO_BATCHES));
    hand_over(runtime, w, means[i] * tokens[i]);
    must(zero_micro_end(runtime, NULL));
  }
  must(zero_step(runtime, &by_tokens, NULL, NULL));
  float weighted = 0;
  must(zero_param_get(runtime, w, ZERO_PART_VALUE, 0, &weighted, sizeof weighted));

  printf("mean of micro-batches %g, mean of tokens %g\n", (double)(first - equal),
         (double)(equal - weighted));
  must_end(runtime, NULL);
  // (1 + 2 + 3 + 5) / 4, and (10 * 1 + 30 * 2 + 20 * 3 + 20 * 5) / 80
  return equal != first - 2.75f || fabsf(equal - weighted - 2.875f) > 1e-5f;
}

// Plain data parallelism, to compare with: a whole replica on every rank, gradients all-reduced
// through buckets as PyTorch's DDP holds them, AdamW of its own.  Of libzero only the communicator,
// the configuration and the memory under the budget are used.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_PLAIN_H
#define GPT_PLAIN_H

#include <zero.h>

#include "gpt_model.h"

typedef struct gpt_plain gpt_plain;

// Five fp32 values a parameter - itself, gradient, two moments, its place in a bucket - through
// zero_memory_allocate; ends the program where they do not fit.  The configuration's AdamW, its
// schedule and its clipping.
gpt_plain* gpt_plain_create(zero_runtime* runtime, const zero_config* config,
                            const gpt_shape* shape, uint64_t seed);
gpt_store gpt_plain_store(gpt_plain* plain);
// Mean of the gradients over the ranks, clipping, AdamW. [collective]
void gpt_plain_step(gpt_plain* plain, zero_step_info* info);
uint64_t gpt_plain_weights_hash(const gpt_plain* plain);
void gpt_plain_destroy(gpt_plain* plain);

#endif

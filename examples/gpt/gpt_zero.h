// The model in libzero's hands: registers its parameters, and lends values and takes gradients
// through <zero.h>.  All that ties the trainer to ZeRO is in this file and in gpt_train.c.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_ZERO_H
#define GPT_ZERO_H

#include <zero.h>

#include "gpt_model.h"

// What the program ends with when libzero says OUT_OF_MEMORY.
enum { GPT_DOES_NOT_FIT = 3 };
// Ends the program with libzero's sentence unless status is ZERO_OK.
void gpt_must(zero_status status, const char* doing);
// malloc that ends the program when there is none.
void* gpt_allocate(uint64_t bytes, const char* what);

// zero_memory_allocate: activations count in the budget.  Ends the program where they do not fit.
void* gpt_zero_activations(zero_runtime* runtime, uint64_t bytes);
// Every parameter with its first values; the caller destroys the model and frees *values after
// zero_shard_params has read them.
zero_model* gpt_zero_model(const gpt_shape* shape, uint64_t seed, gpt_real** values);
// The same calls at every stage: below stage 3 a loan is the parameter itself.
gpt_store gpt_zero_store(zero_runtime* runtime);
// XXH3-64 over all values in the order of registration. [collective]
uint64_t gpt_zero_weights_hash(zero_runtime* runtime);

#endif

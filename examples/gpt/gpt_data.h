// The text: bytes of a file, cut into a training part and a validation part, read in windows.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include <stdint.h>

typedef struct gpt_text {
  uint8_t* bytes;
  uint64_t count;
  uint64_t training; // bytes up to here train, the rest validates
} gpt_text;

// path NULL: the King James Bible, as Debian's package bible-kjv prints it.  Returns NULL, or a
// sentence that says what went wrong.
const char* gpt_text_load(const char* path, int window, gpt_text* text);
void gpt_text_free(gpt_text* text);

// rows windows of the training part.  number counts batches over steps, micro-batches and ranks,
// so the same windows are seen however a batch is split among ranks.
void gpt_training_batch(const gpt_text* text, uint64_t seed, uint64_t number, int rows, int window,
                        uint8_t* tokens, uint8_t* targets);
// Batch number of total, spread evenly over the validation part; the same in every run.
void gpt_validation_batch(const gpt_text* text, uint64_t number, uint64_t total, int rows,
                          int window, uint8_t* tokens, uint8_t* targets);

#endif

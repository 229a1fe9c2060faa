// The command line of the trainer.  How to train - batch, rate, clipping, stage - is not here: it
// is in the configuration file.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include <stdint.h>

#include "gpt_model.h"

typedef struct gpt_options {
  const char* config; // DeepSpeed-style JSON
  const char* data; // NULL: the book of gpt_data.h
  const char* size;
  const char* json; // NULL: no result row is written
  gpt_shape shape;
  int window; // tokens of a training sequence
  int sample; // bytes written by the trained model at the end
  const char* list; // NULL: train; else where the list of parameters is written
  int is_plain; // plain data parallelism instead of ZeRO, to compare with
  int validation; // sequences a rank and validation; 0: four batches
  int64_t steps;
  uint64_t seed;
} gpt_options;

// Ends the program with a sentence, or after --help.
void gpt_options_read(int argc, char** argv, gpt_options* options);

#endif

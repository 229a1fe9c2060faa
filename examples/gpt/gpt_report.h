// What a run tells: the progress line, memory by use, and the result as one JSON object.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <stdint.h>
#include <zero.h>

#include "gpt_options.h"

enum { GPT_MEMORY_USES = 9 }; // ZERO_MEMORY_TOTAL to ZERO_MEMORY_TABLES

typedef struct gpt_result {
  int stage;
  int ranks;
  uint64_t parameters;
  double planned[GPT_MEMORY_USES]; // bytes, by use, of the rank that has most
  double measured[GPT_MEMORY_USES]; // the same: the peak that the runtime counted
  double activations; // the program's own, through zero_memory_allocate
  double process; // largest proportional set size of a rank, activations and text included
  double step_seconds; // median
  double tokens_per_second; // of all ranks
  double loss; // training, mean over the last steps and all ranks
  double validation_loss;
  uint64_t weights;
} gpt_result;

double gpt_seconds(void);
// Bytes of this process; shared pages count in parts. 0 where the system does not say.
double gpt_process_bytes(void);
double gpt_median(double* values, int64_t count); // sorts them

void gpt_report_progress(int64_t step, int64_t steps, double loss, const zero_step_info* info,
                         double tokens_per_second, double seconds_left);
// scale is that of the step, info what zero_step said of it.
void gpt_report_skipped(int64_t step, double scale, const zero_step_info* info);
// Largest of all ranks. [collective]
void gpt_report_memory(const zero_runtime* runtime, double process, gpt_result* result);
// Writes options->list, prints one JSON line of bytes; returns the program's exit code.
int gpt_report_list(const gpt_options* options);
void gpt_report_table(const gpt_result* result);
// One line; returns 0 when the file cannot be written.
int gpt_report_json(const char* path, const gpt_options* options, const gpt_result* result);

#endif

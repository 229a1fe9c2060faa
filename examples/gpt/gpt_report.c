// See gpt_report.h.
// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpt_zero.h"

static const char* const use_names[GPT_MEMORY_USES] = {
    "total", "params", "grads", "master", "optimizer", "gathered", "buckets", "staging", "tables"};

double gpt_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double gpt_process_bytes(void) {
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  if (!file) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "Pss: %llu kB", &kib) == 1) break;
  fclose(file);
  return (double)kib * 1024;
}

static int in_order(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

double gpt_median(double* values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, in_order);
  return values[count / 2];
}

void gpt_report_progress(int64_t step, int64_t steps, double loss, const zero_step_info* info,
                         double tokens_per_second, double seconds_left) {
  printf("step %5lld/%lld  loss %.4f  lr %.2e  norm %.3f  %.0f tokens/s  %.0f s left\n",
         (long long)step, (long long)steps, loss, info->lr, info->grad_norm, tokens_per_second,
         seconds_left);
  fflush(stdout);
}

void gpt_report_skipped(int64_t step, double scale, const zero_step_info* info) {
  printf("step %5lld skipped: gradients not finite at loss scale %g, next %g\n", (long long)step,
         scale, info->loss_scale);
  fflush(stdout);
}

void gpt_report_memory(const zero_runtime* runtime, double process, gpt_result* result) {
  double values[2 * GPT_MEMORY_USES + 2];
  zero_memory_info info;
  zero_memory_info_init(&info, sizeof info);
  for (int use = 0; use < GPT_MEMORY_USES; use++) {
    gpt_must(zero_memory_usage(runtime, ZERO_PLACE_HOST, use, &info), "memory");
    values[2 * use] = (double)info.planned;
    values[2 * use + 1] = (double)info.peak;
  }
  gpt_must(zero_memory_usage(runtime, ZERO_PLACE_HOST, ZERO_MEMORY_HOST_PROGRAM, &info), "memory");
  values[2 * ZERO_MEMORY_TOTAL + 1] -= (double)info.peak; // what is left is libzero's
  values[2 * GPT_MEMORY_USES] = process;
  values[2 * GPT_MEMORY_USES + 1] = (double)info.peak;
  gpt_must(zero_comm_all_reduce(zero_runtime_comm(runtime), values, 2 * GPT_MEMORY_USES + 2,
                                ZERO_REDUCE_MAX),
           "largest memory of all ranks");
  for (int use = 0; use < GPT_MEMORY_USES; use++) {
    result->planned[use] = values[2 * use];
    result->measured[use] = values[2 * use + 1];
  }
  result->process = values[2 * GPT_MEMORY_USES];
  result->activations = values[2 * GPT_MEMORY_USES + 1];
}

void gpt_report_table(const gpt_result* result) {
  printf("\nbytes a rank        planned       measured (peak)\n");
  for (int i = 1; i <= GPT_MEMORY_USES; i++) {
    const int use = i % GPT_MEMORY_USES; // the total last
    if (result->planned[use] == 0 && result->measured[use] == 0) continue;
    printf("  %-10s %14.0f %14.0f\n", use_names[use], result->planned[use], result->measured[use]);
  }
  printf("  %-10s %14s %14.0f\n", "program", "", result->activations);
  printf("  %-10s %14s %14.0f  (with activations and text)\n", "process", "", result->process);
  printf("step %.4f s (median), %.0f tokens/s\n", result->step_seconds, result->tokens_per_second);
}

static void write_uses(FILE* file, const char* name, const double* bytes) {
  fprintf(file, "\"%s\": {", name);
  for (int use = 1; use < GPT_MEMORY_USES; use++)
    fprintf(file, "%s\"%s\": %.0f", use == 1 ? "" : ", ", use_names[use], bytes[use]);
  fprintf(file, "}, ");
}

int gpt_report_json(const char* path, const gpt_options* options, const gpt_result* result) {
  FILE* file = fopen(path, "w");
  if (!file) return 0;
  fprintf(file, "{\"stage\": %d, \"ranks\": %d, \"size\": \"%s\", \"parameters\": %llu, ",
          result->stage, result->ranks, options->size, (unsigned long long)result->parameters);
  fprintf(file, "\"steps\": %lld, \"seed\": %llu, ", (long long)options->steps,
          (unsigned long long)options->seed);
  fprintf(file, "\"planned_bytes\": %.0f, \"measured_bytes\": %.0f, ",
          result->planned[ZERO_MEMORY_TOTAL], result->measured[ZERO_MEMORY_TOTAL]);
  write_uses(file, "planned", result->planned);
  write_uses(file, "measured", result->measured);
  fprintf(file, "\"program_bytes\": %.0f, ", result->activations);
  fprintf(file, "\"process_bytes\": %.0f, \"step_seconds\": %.6f, \"tokens_per_second\": %.1f, ",
          result->process, result->step_seconds, result->tokens_per_second);
  fprintf(file, "\"loss\": %.9g, \"validation_loss\": %.9g, \"weights\": \"%016llx\"}\n",
          result->loss, result->validation_loss, (unsigned long long)result->weights);
  return fclose(file) == 0;
}

int gpt_report_list(const gpt_options* options) {
  FILE* file = fopen(options->list, "w");
  if (!file) {
    fprintf(stderr, "gpt: --list: \"%s\" cannot be written\n", options->list);
    return 1;
  }
  fprintf(file, "name\tshape\tdtype\tunit\n");
  gpt_parameter parameter;
  uint64_t parameters = 0;
  for (int i = 0; i < gpt_parameter_count(&options->shape); i++) {
    gpt_parameter_describe(&options->shape, i, &parameter);
    fprintf(file, "%s\t%lld", parameter.name, (long long)parameter.shape[0]);
    if (parameter.dimensions == 2) fprintf(file, "x%lld", (long long)parameter.shape[1]);
    fprintf(file, "\tfp32\t%d\n", parameter.unit);
    parameters += parameter.elements;
  }
  const uint64_t one = gpt_activation_bytes(&options->shape, 1, options->window);
  const uint64_t sample = gpt_activation_bytes(&options->shape, 2, options->window) - one;
  printf("{\"parameters\": %llu, \"sample_bytes\": %llu, \"fixed_bytes\": %llu}\n",
         (unsigned long long)parameters, (unsigned long long)sample,
         (unsigned long long)(one - sample));
  return fclose(file) == 0 ? 0 : 1;
}

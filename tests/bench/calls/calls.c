// What a call of libzero takes in C; the other languages are compared with this.
// SPDX-License-Identifier: BSD-3-Clause
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <zero.h>

enum { ROUNDS = 21, CALLS = 200000 };

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static volatile int64_t kept; // so that no call is left out

#define TIME(name, call)                             \
  do {                                               \
    double times[ROUNDS];                            \
    for (int round = 0; round < ROUNDS; round++) {   \
      const double from = now_ns();                  \
      for (int i = 0; i < CALLS; i++) kept = (call); \
      times[round] = (now_ns() - from) / CALLS;      \
    }                                                \
    qsort(times, ROUNDS, sizeof times[0], by_size);  \
    printf("%s %.2f\n", name, times[ROUNDS / 2]);    \
  } while (0)

int main(void) {
  static const float values[1000];
  static const char text[] =
      "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\"}}";
  const int64_t shape[] = {1000};
  zero_config* config = NULL;
  zero_model* model = NULL;
  zero_comm* comm = NULL;
  zero_runtime* runtime = NULL;
  zero_param_options param;
  zero_init_options init;
  zero_param_id id = -1;
  zero_buffer buffer;
  zero_param_options_init(&param, sizeof param);
  zero_init_options_init(&init, sizeof init);
  param.dtype = ZERO_DTYPE_FP32;
  param.data = values;
  if (zero_config_load_text(text, sizeof text - 1, &config) != ZERO_OK ||
      zero_model_create(&model) != ZERO_OK ||
      zero_param_add(model, "w", shape, 1, &param, &id) != ZERO_OK ||
      zero_comm_create_self(&comm) != ZERO_OK) {
    return 1;
  }
  init.comm = comm;
  if (zero_init(config, &init, &runtime) != ZERO_OK || zero_shard_params(runtime, model) != ZERO_OK)
    return 1;
  TIME("version_number", zero_version_number());
  TIME("comm_rank", zero_comm_rank(comm));
  TIME("step_count", (int64_t)zero_step_count(runtime));
  TIME("loss_scale", (int64_t)zero_loss_scale(runtime));
  TIME("param_find", zero_param_find(runtime, "w", &id));
  TIME("param_buffer", zero_param_buffer(runtime, 0, &buffer));
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
  zero_model_destroy(model);
  zero_config_destroy(config);
  return 0;
}

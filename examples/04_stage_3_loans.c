// 04  Stage 3: each rank keeps a part of every parameter, and a layer is whole only while it is on
// loan.  acquire before a layer is used, release right after; prefetch says what comes next.
// SPDX-License-Identifier: BSD-3-Clause
#include <zero.h>

#include "must.h"

enum { LAYERS = 16, WIDTH = 4096 };

static zero_param_id layers[LAYERS];

// One layer's pass: borrow, look at every value, give back.
static int visit(zero_runtime* runtime, int layer, int next, float expected, int backward) {
  zero_buffer whole, gradient;
  int wrong = 0, add = 0;
  must(zero_params_acquire(runtime, &layers[layer], 1, NULL, &whole));
  if (next >= 0 && next < LAYERS) must(zero_params_prefetch(runtime, &layers[next], 1));
  const float* w = whole.data;
  for (int i = 0; i < WIDTH; i++) wrong |= w[i] != expected;
  if (backward) {
    must(zero_grad_buffer(runtime, layers[layer], NULL, &gradient, &add));
    for (int i = 0; i < WIDTH; i++) ((float*)gradient.data)[i] = 1;
    must(zero_grad_ready(runtime, &layers[layer], 1, NULL));
  }
  must(zero_params_release(runtime, &layers[layer], 1, /*keep_changes=*/0, NULL));
  return wrong;
}

int main(void) {
  pid_t child;
  zero_comm* comm = must_fork("example-04", &child);
  zero_model* model = must_model();
  static float first[LAYERS][WIDTH];
  for (int layer = 0; layer < LAYERS; layer++) {
    char name[32];
    snprintf(name, sizeof name, "layer.%d", layer);
    for (int i = 0; i < WIDTH; i++) first[layer][i] = (float)(10 * layer);
    layers[layer] = must_add(model, name, WIDTH, /*unit=*/layer, first[layer]);
  }
  zero_runtime* runtime = must_shard(
      "{\"optimizer\": {\"type\": \"SGD\", \"params\": "
      "{\"lr\": 1}}, \"zero_optimization\":"
      " {\"stage\": 3, \"stage3_param_persistence_threshold\": 0}}",
      comm, model);

  int wrong = 0;
  for (int step = 0; step < 3; step++) { // a gradient of 1 and a rate of 1: down by 1 each step
    for (int k = 0; k < LAYERS; k++) wrong |= visit(runtime, k, k + 1, (float)(10 * k - step), 0);
    for (int k = LAYERS - 1; k >= 0; k--)
      wrong |= visit(runtime, k, k - 1, (float)(10 * k - step), 1);
    must(zero_step(runtime, NULL, NULL, NULL));
  }

  zero_memory_info info;
  zero_memory_info_init(&info, sizeof info);
  must(zero_memory_usage(runtime, ZERO_PLACE_HOST, ZERO_MEMORY_GATHERED, &info));
  if (zero_comm_rank(comm) == 0)
    printf("whole at one time: %llu bytes at most, of a model of %zu\n",
           (unsigned long long)info.peak, sizeof first);
  wrong |= info.peak == 0 || info.peak > sizeof first / 4;
  must_end(runtime, comm);
  return must_join(child, wrong);
}

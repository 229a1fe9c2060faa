// 06  An optimizer of the program's own.  Type "libzero.host" keeps the states it asks for, sharded
// as ever; between step_begin and step_end the program updates this rank's part.  The rule here:
// sign of the momentum, one state.
// SPDX-License-Identifier: BSD-3-Clause
#include <math.h>
#include <zero.h>

#include "must.h"

enum { N = 1000, STEPS = 4 };

static float* part_of(zero_runtime* runtime, zero_param_id id, zero_part part, uint64_t* count) {
  zero_buffer buffer;
  must(zero_shard_buffer(runtime, id, part, /*index=*/0, &buffer));
  *count = buffer.count;
  return buffer.data;
}

static void own_step(zero_runtime* runtime, zero_param_id id) {
  zero_step_info info;
  zero_step_info_init(&info, sizeof info);
  must(zero_step_begin(runtime, NULL, NULL, &info));
  uint64_t count = 0; // 0 where this rank owns none of it
  const float* g = part_of(runtime, id, ZERO_PART_GRAD, &count); // averaged and clipped
  float* w = part_of(runtime, id, ZERO_PART_MASTER, &count);
  float* m = part_of(runtime, id, ZERO_PART_STATE, &count);
  for (uint64_t i = 0; i < count && !info.skipped; i++) {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    w[i] -= (float)info.lr * copysignf(1, m[i]);
  }
  must(zero_step_end(runtime, NULL));
}

int main(void) {
  pid_t child;
  zero_comm* comm = must_fork("example-06", &child);
  const int rank = zero_comm_rank(comm);
  zero_model* model = must_model();
  const zero_param_id id = must_add(model, "w", N, -1, NULL);
  zero_runtime* runtime = must_shard(
      "{\"optimizer\": {\"type\": \"libzero.host\", "
      "\"params\": {\"states\": 1, \"lr\": 0.25}},"
      " \"zero_optimization\": {\"stage\": 2}}",
      comm, model);

  for (int step = 0; step < STEPS; step++) {
    zero_buffer g;
    int32_t add = 0;
    must(zero_grad_buffer(runtime, id, NULL, &g, &add));
    for (int i = 0; i < N; i++) ((float*)g.data)[i] = i < 500 ? (float)(3 * rank - 1) : -1;
    must(zero_grad_ready(runtime, &id, 1, NULL));
    own_step(runtime, id);
  }

  float w[N], m[N];
  must(zero_param_get(runtime, id, ZERO_PART_VALUE, 0, w, sizeof w));
  must(zero_param_get(runtime, id, ZERO_PART_STATE, 0, m, sizeof m));
  if (rank == 0) printf("w[0] = %g, w[999] = %g\n", (double)w[0], (double)w[999]);
  int wrong = 0; // the mean gradient is (-1 + 2) / 2 in the first half, -1 in the second
  for (int i = 0; i < N; i++) {
    wrong |= w[i] != (i < 500 ? -1.0f : 1.0f);
    wrong |= !(fabsf(m[i] - (i < 500 ? 0.5f : -1.0f) * (1 - powf(0.9f, STEPS))) < 1e-6f);
  }
  must_end(runtime, comm);
  return must_join(child, wrong);
}

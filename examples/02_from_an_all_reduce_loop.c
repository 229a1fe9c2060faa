// 02  From an all-reduce loop to libzero.  A plain data-parallel program sums gradients and steps
// an Adam of its own, whole on every rank:
//
//   -  MPI_Allreduce(MPI_IN_PLACE, g, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
//   -  for (int i = 0; i < N; i++) g[i] /= ranks;
//   -  adam(w, g, m, v, step);                         // 4 + 4 + 8 bytes a parameter, everywhere
//   +  zero_grad_buffer(runtime, id, NULL, &g, &add);  // ask where the gradient goes,
//   +  zero_grad_ready(runtime, &id, 1, NULL);         // say that it is written,
//   +  zero_step(runtime, NULL, NULL, NULL);           // and step; the states are sharded
//
// Here two forked ranks run the new loop, and the old one runs beside it as the check.
// SPDX-License-Identifier: BSD-3-Clause
#include <math.h>
#include <zero.h>

#include "must.h"

enum { N = 1000, STEPS = 20 };

static void gradient_of_rank(int rank, const float* w, float* g) { // each rank has its own data
  for (int i = 0; i < N; i++) g[i] = w[i] - sinf((float)(i + rank * N));
}

static void old_loop(float* w) {
  static float g[2][N], m[N], v[N];
  for (int step = 1; step <= STEPS; step++) {
    for (int rank = 0; rank < 2; rank++) gradient_of_rank(rank, w, g[rank]);
    for (int i = 0; i < N; i++) {
      const float mean = (g[0][i] + g[1][i]) / 2; // MPI_Allreduce
      m[i] = 0.9f * m[i] + 0.1f * mean;
      v[i] = 0.999f * v[i] + 0.001f * mean * mean;
      const double m_hat = m[i] / (1 - pow(0.9, step)), v_hat = v[i] / (1 - pow(0.999, step));
      w[i] -= (float)(0.01 * m_hat / (sqrt(v_hat) + 1e-8));
    }
  }
}

int main(void) {
  pid_t child;
  zero_comm* comm = must_fork("example-02", &child);
  const int rank = zero_comm_rank(comm);
  static float start[N], old[N];
  zero_model* model = must_model();
  const zero_param_id id = must_add(model, "w", N, -1, start);
  zero_runtime* runtime = must_shard(
      "{\"optimizer\": {\"type\": \"Adam\", \"params\": "
      "{\"lr\": 0.01}},"
      " \"zero_optimization\": {\"stage\": 1}}",
      comm, model);
  zero_buffer w, g;
  must(zero_param_buffer(runtime, id, &w));

  for (int step = 0; step < STEPS; step++) {
    int32_t add = 0;
    must(zero_grad_buffer(runtime, id, NULL, &g, &add));
    gradient_of_rank(rank, w.data, g.data);
    must(zero_grad_ready(runtime, &id, 1, NULL));
    must(zero_step(runtime, NULL, NULL, NULL));
  }

  old_loop(old);
  const float* now = w.data;
  int wrong = 0;
  for (int i = 0; i < N; i++) wrong |= !(fabsf(now[i] - old[i]) <= 1e-6f);
  if (rank == 0) printf("w[7] = %.7f, by the old loop %.7f\n", (double)now[7], (double)old[7]);
  must_end(runtime, comm);
  return must_join(child, wrong);
}

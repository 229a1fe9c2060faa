// 05  A communicator of the program's own.  libzero asks for two operations, all_gather and
// all_to_all of bytes, and adds itself: so the weights have the same bits as with its own one.
// Here the ranks are threads that show each other where their bytes are.
// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>
#include <zero.h>

#include "must.h"

enum { RANKS = 2, N = 1000 };

static pthread_barrier_t meeting;
static const char* shown[RANKS];

// Copies from rank i what it shows at offset; both ends wait until all have read.
static void exchange(int rank, const void* send, uint64_t offset, char* recv, uint64_t bytes) {
  shown[rank] = send;
  pthread_barrier_wait(&meeting);
  for (uint64_t i = 0; i < RANKS; i++) memmove(recv + i * bytes, shown[i] + offset, bytes);
  pthread_barrier_wait(&meeting);
}

static zero_status all_gather(void* rank, int32_t channel, const void* send, void* recv,
                              uint64_t bytes_each, zero_place place, void* stream) {
  (void)channel, (void)place, (void)stream; // one channel, host memory
  exchange(*(int*)rank, send, 0, recv, bytes_each);
  return ZERO_OK;
}

static zero_status all_to_all(void* rank, int32_t channel, const void* send, void* recv,
                              uint64_t bytes_each, zero_place place, void* stream) {
  (void)channel, (void)place, (void)stream;
  const int me = *(int*)rank;
  exchange(me, send, (uint64_t)me * bytes_each, recv, bytes_each);
  return ZERO_OK;
}

static zero_comm* own_comm(int* rank) {
  zero_comm_callbacks own;
  zero_comm_callbacks_init(&own, sizeof own);
  own.channels = 1;
  own.all_gather = all_gather;
  own.all_to_all = all_to_all;
  zero_comm* comm = NULL;
  must(zero_comm_create_user(*rank, RANKS, &own, rank, &comm));
  return comm;
}

static float results[2][RANKS][N]; // by libzero's own communicator, and by this one

static void* run_rank(void* number) {
  int* rank = number;
  for (int kind = 0; kind < 2; kind++) {
    zero_comm* comm = kind == 1 ? own_comm(rank) : must_meet("example-05", getpid(), *rank, RANKS);
    zero_model* model = must_model();
    const zero_param_id w = must_add(model, "w", N, -1, NULL);
    zero_runtime* runtime = must_shard("{\"optimizer\": {\"type\": \"AdamW\"}}", comm, model);
    for (int step = 0; step < 5; step++) {
      float gradient[N];
      for (int i = 0; i < N; i++) gradient[i] = 1 / ((float)(i - step + *rank) + 0.3f);
      must_step(runtime, w, gradient, N);
    }
    must(zero_param_get(runtime, w, ZERO_PART_VALUE, 0, results[kind][*rank], sizeof(float[N])));
    must_end(runtime, comm);
  }
  return NULL;
}

int main(void) {
  int numbers[RANKS] = {0, 1};
  pthread_t other;
  pthread_barrier_init(&meeting, NULL, RANKS);
  if (pthread_create(&other, NULL, run_rank, &numbers[1]) != 0) return 1;
  run_rank(&numbers[0]);
  pthread_join(other, NULL);
  printf("w[7] = %.9g and %.9g\n", (double)results[0][0][7], (double)results[1][0][7]);
  return results[1][0][7] == 0 || memcmp(results[0], results[1], sizeof results[0]) != 0;
}

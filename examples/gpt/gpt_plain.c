// See gpt_plain.h.  The all-reduce goes through a piece of shared memory with a slot for each rank,
// so that it costs what libzero's exchange costs: no sockets on one side alone.
// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_plain.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "gpt_plain_update.h"
#include "gpt_zero.h"

enum { SLOT = 1 << 18 }; // floats

struct gpt_plain {
  zero_runtime* runtime;
  const zero_config* config;
  zero_comm* comm;
  int ranks, rank, count;
  uint64_t total; // elements
  uint64_t* offsets;
  uint8_t* is_decayed;
  uint8_t* is_written; // this micro-batch's gradients
  float *values, *gradients, *first, *second, *bucket;
  float* shared; // a slot a rank
  int64_t step;
};

static double number(const zero_config* config, const char* key) {
  char text[64];
  uint64_t length = 0;
  gpt_must(zero_config_get(config, key, text, sizeof text, &length), key);
  return strtod(text, NULL);
}

static float* hold(gpt_plain* plain, const char* what) {
  void* memory = NULL;
  const uint64_t bytes = plain->total * sizeof(float);
  gpt_must(zero_memory_allocate(plain->runtime, ZERO_PLACE_HOST, bytes, 64, &memory), what);
  memset(memory, 0, bytes);
  return memory;
}

// Rank 0 makes it, all map it, and then it has no name any more.
static void share(gpt_plain* plain) {
  char name[64] = "";
  int file = -1;
  if (plain->rank == 0) {
    snprintf(name, sizeof name, "/libzero-gpt-plain-%ld", (long)getpid());
    file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0 && ftruncate(file, (off_t)plain->ranks * SLOT * (off_t)sizeof(float)) != 0) {
      close(file);
      file = -1;
    }
  }
  gpt_must(zero_comm_broadcast(plain->comm, name, sizeof name, 0), "shared memory");
  if (plain->rank != 0) file = shm_open(name, O_RDWR, 0600);
  const size_t bytes = (size_t)plain->ranks * SLOT * sizeof(float);
  void* memory =
      file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  gpt_must(zero_comm_barrier(plain->comm), "shared memory");
  if (plain->rank == 0) shm_unlink(name);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "gpt: no shared memory for gradients: %zu bytes of %s\n", bytes, name);
    exit(1);
  }
  plain->shared = memory;
}

gpt_plain* gpt_plain_create(zero_runtime* runtime, const zero_config* config,
                            const gpt_shape* shape, uint64_t seed) {
  gpt_plain* plain = gpt_allocate(sizeof *plain, "the replica");
  memset(plain, 0, sizeof *plain);
  plain->runtime = runtime;
  plain->config = config;
  plain->comm = zero_runtime_comm(runtime);
  plain->rank = zero_comm_rank(plain->comm);
  plain->ranks = zero_comm_size(plain->comm);
  plain->count = gpt_parameter_count(shape);
  const size_t count = (size_t)plain->count;
  plain->offsets = gpt_allocate((count + 1) * sizeof *plain->offsets, "offsets");
  plain->is_decayed = gpt_allocate(count, "decays");
  plain->is_written = gpt_allocate(count, "marks");
  memset(plain->is_written, 0, count);
  gpt_parameter parameter;
  for (int i = 0; i < plain->count; i++) {
    gpt_parameter_describe(shape, i, &parameter);
    plain->offsets[i] = plain->total;
    plain->is_decayed[i] = (uint8_t)parameter.is_decayed;
    plain->total += parameter.elements;
  }
  plain->offsets[count] = plain->total;
  plain->values = hold(plain, "parameters of the replica");
  plain->gradients = hold(plain, "gradients of the replica");
  plain->first = hold(plain, "first moments of the replica");
  plain->second = hold(plain, "second moments of the replica");
  plain->bucket = hold(plain, "buckets of the replica");
  for (int i = 0; i < plain->count; i++)
    gpt_parameter_initialize(shape, i, seed, plain->values + plain->offsets[i]);
  share(plain);
  return plain;
}

// ---- the store: everything is always there ----

static void lend(void* context, int first, int count, const gpt_real** values) {
  const gpt_plain* plain = context;
  for (int i = 0; i < count; i++) values[i] = plain->values + plain->offsets[first + i];
}

static void give_back(void* context, int first, int count) {
  (void)context, (void)first, (void)count;
}

static gpt_real* gradient_open(void* context, int index, int* add) {
  gpt_plain* plain = context;
  *add = plain->is_written[index];
  plain->is_written[index] = 1;
  return plain->gradients + plain->offsets[index];
}

static void gradient_done(void* context, int index) {
  (void)context, (void)index;
}

static void* allocate(void* context, uint64_t bytes) {
  return gpt_zero_activations(((const gpt_plain*)context)->runtime, bytes);
}

static void release(void* context, void* memory) {
  zero_memory_free(((const gpt_plain*)context)->runtime, memory);
}

gpt_store gpt_plain_store(gpt_plain* plain) {
  const gpt_store store = {plain,         lend,          give_back, give_back,
                           gradient_open, gradient_done, allocate,  release};
  return store;
}

// ---- the step ----

static void all_reduce(gpt_plain* plain) {
  memcpy(plain->bucket, plain->gradients, plain->total * sizeof(float));
  for (uint64_t at = 0; at < plain->total; at += SLOT) {
    const uint64_t left = plain->total - at, count = left < SLOT ? left : SLOT;
    memcpy(plain->shared + (size_t)plain->rank * SLOT, plain->bucket + at, count * sizeof(float));
    gpt_must(zero_comm_barrier(plain->comm), "all-reduce");
    gpt_mean_of(plain->bucket + at, plain->shared, SLOT, plain->ranks, count);
    gpt_must(zero_comm_barrier(plain->comm), "all-reduce");
  }
  memcpy(plain->gradients, plain->bucket, plain->total * sizeof(float));
}

static double norm_of(const gpt_plain* plain) {
  double sum = 0;
  for (uint64_t i = 0; i < plain->total; i++)
    sum += (double)plain->gradients[i] * (double)plain->gradients[i];
  return sqrt(sum);
}

void gpt_plain_step(gpt_plain* plain, zero_step_info* info) {
  if (plain->ranks > 1) all_reduce(plain);
  const zero_config* config = plain->config;
  const int64_t step = ++plain->step;
  char betas[64];
  uint64_t length = 0;
  double beta1 = 0, beta2 = 0;
  gpt_must(zero_config_get(config, "optimizer.params.betas", betas, sizeof betas, &length),
           "betas");
  if (sscanf(betas, "[%lf, %lf]", &beta1, &beta2) != 2) gpt_must(ZERO_ERR_USER, betas);
  const double clipping = number(config, "gradient_clipping");
  double lr = 0;
  gpt_must(zero_schedule_at(config, step, &lr, NULL), "schedule");
  const double norm = norm_of(plain);
  gpt_adam adam = {0};
  adam.lr = (float)lr;
  adam.beta1 = (float)beta1;
  adam.beta2 = (float)beta2;
  adam.epsilon = (float)number(config, "optimizer.params.eps");
  adam.correction1 = (float)(1 - pow(beta1, (double)step));
  adam.correction2 = (float)sqrt(1 - pow(beta2, (double)step));
  adam.factor = clipping > 0 && norm > clipping ? (float)(clipping / (norm + 1e-6)) : 1;
  const double decay = lr * number(config, "optimizer.params.weight_decay");
  for (int i = 0; i < plain->count; i++) {
    const uint64_t from = plain->offsets[i];
    adam.decay = plain->is_decayed[i] ? (float)decay : 0;
    gpt_adam_update(&adam, plain->values + from, plain->gradients + from, plain->first + from,
                    plain->second + from, plain->offsets[i + 1] - from);
    plain->is_written[i] = 0;
  }
  info->lr = lr;
  info->grad_norm = norm;
  info->skipped = 0;
}

uint64_t gpt_plain_weights_hash(const gpt_plain* plain) {
  return XXH3_64bits(plain->values, plain->total * sizeof(float));
}

void gpt_plain_destroy(gpt_plain* plain) {
  if (!plain) return;
  munmap(plain->shared, (size_t)plain->ranks * SLOT * sizeof(float));
  zero_memory_free(plain->runtime, plain->values);
  zero_memory_free(plain->runtime, plain->gradients);
  zero_memory_free(plain->runtime, plain->first);
  zero_memory_free(plain->runtime, plain->second);
  zero_memory_free(plain->runtime, plain->bucket);
  free(plain->offsets);
  free(plain->is_decayed);
  free(plain->is_written);
  free(plain);
}

// What every numbered example shares: a status is checked, and said in libzero's own words.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zero.h>

static inline void must(zero_status status) {
  if (status == ZERO_OK) return;
  zero_error_info why;
  zero_error_info_init(&why, sizeof why);
  zero_last_error(&why);
  fprintf(stderr, "%s: %s\n", zero_status_name(status), why.message);
  exit(1);
}

// A checked configuration from JSON text, of one sample a rank and without clipping (DeepSpeed's
// default clips at 1), which the examples would otherwise say each.
static inline zero_config* must_configure(const char* text) {
  zero_config* config = NULL;
  must(zero_config_load_text(text, strlen(text), &config));
  must(zero_config_set(config, "train_micro_batch_size_per_gpu", "1"));
  must(zero_config_set(config, "gradient_clipping", "0"));
  must(zero_config_check(config));
  return config;
}

static inline zero_model* must_model(void) {
  zero_model* model = NULL;
  must(zero_model_create(&model));
  return model;
}

// One fp32 vector more.  unit: see the example on loans; -1 elsewhere.
static inline zero_param_id must_add(zero_model* model, const char* name, int64_t elements,
                                     int unit, const float* first) {
  zero_param_options options;
  zero_param_options_init(&options, sizeof options);
  options.dtype = ZERO_DTYPE_FP32;
  options.unit = unit;
  options.data = (void*)first; // only read
  zero_param_id id = -1;
  must(zero_param_add(model, name, &elements, 1, &options, &id));
  return id;
}

// A runtime that has taken the model over; 01_smallest_run.c shows the single calls.
static inline zero_runtime* must_shard(const char* config_text, zero_comm* comm,
                                       zero_model* model) {
  zero_config* config = must_configure(config_text);
  zero_init_options init;
  zero_init_options_init(&init, sizeof init);
  init.comm = comm;
  zero_runtime* runtime = NULL;
  must(zero_init(config, &init, &runtime));
  must(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  zero_config_destroy(config);
  return runtime;
}

static inline void must_end(zero_runtime* runtime, zero_comm* comm) {
  must(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
}

// A step with a gradient that lies in the program's own array.
static inline void must_step(zero_runtime* runtime, zero_param_id id, float* gradient,
                             uint64_t count) {
  zero_buffer buffer = {
      gradient, count * sizeof *gradient, count, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
  must(zero_grad_submit(runtime, id, &buffer, NULL));
  must(zero_step(runtime, NULL, NULL, NULL));
}

// One of the ranks of this machine; run makes the name they meet under this run's own.
static inline zero_comm* must_meet(const char* name, pid_t run, int rank, int ranks) {
  char group[64];
  snprintf(group, sizeof group, "%s-%ld", name, (long)run);
  zero_comm* comm = NULL;
  must(zero_comm_create_local(group, rank, ranks, 10000000000, &comm));
  return comm;
}

// Two ranks: the parent is rank 0, its child rank 1.  Call it before anything of libzero.
static inline zero_comm* must_fork(const char* name, pid_t* child) {
  const pid_t run = getpid();
  fflush(NULL);
  *child = fork();
  if (*child < 0) exit(1);
  return must_meet(name, run, *child == 0, 2);
}

// The exit status: wrong if this rank is, or the child was.
static inline int must_join(pid_t child, int wrong) {
  int status = 0;
  if (child == 0) return wrong;
  return wrong || waitpid(child, &status, 0) != child || status != 0;
}

#endif

// What the contract tests share: a status with its sentence, small models, runs on one rank.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef CONTRACT_HELP_H
#define CONTRACT_HELP_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zero.h>

static inline const char* last_message(void) {
  static _Thread_local zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  return info.message;
}

static inline void ok_at(zero_status status, const char* call, const char* file, int line) {
  if (status == ZERO_OK) return;
  print_error("%s is %s: %s\n", call, zero_status_name(status), last_message());
  _fail(file, line);
}
#define OK(call) ok_at((call), #call, __FILE__, __LINE__)

// The call fails with this status, and the last error's sentence holds both words.
static inline void refused_at(zero_status status, zero_status expected, const char* word,
                              const char* other, const char* call, const char* file, int line) {
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  const int as_expected = status == expected && info.status == expected &&
                          strstr(info.message, word) != NULL && strstr(info.message, other) != NULL;
  if (as_expected) return;
  print_error("%s is %s, expected %s naming '%s' and '%s'; it says: %s\n", call,
              zero_status_name(status), zero_status_name(expected), word, other, info.message);
  _fail(file, line);
}
#define REFUSED(call, status, word, other)                                                 \
  refused_at((zero_set_last_error(ZERO_OK, ""), (call)), (status), (word), (other), #call, \
             __FILE__, __LINE__)
#define BAD_ARGUMENT(call, word, other) REFUSED(call, ZERO_ERR_INVALID_ARGUMENT, word, other)
#define BAD_STATE(call, word, other) REFUSED(call, ZERO_ERR_INVALID_STATE, word, other)

static inline zero_config* config_of(const char* text) {
  zero_config* config = NULL;
  OK(zero_config_load_text(text, strlen(text), &config));
  return config;
}

static inline zero_model* new_model(void) {
  zero_model* model = NULL;
  OK(zero_model_create(&model));
  return model;
}

static inline zero_param_options param_options(const float* data) {
  zero_param_options options;
  zero_param_options_init(&options, sizeof options);
  options.data = (void*)data; // read, or CALLER
  return options;
}

static inline zero_param_id add_with(zero_model* model, const char* name, int64_t elements,
                                     const zero_param_options* options) {
  zero_param_id id = -1;
  OK(zero_param_add(model, name, &elements, 1, options, &id));
  return id;
}

// A trained fp32 vector; data may be NULL (zeros).
static inline zero_param_id add_vector(zero_model* model, const char* name, int64_t elements,
                                       const float* data) {
  const zero_param_options options = param_options(data);
  return add_with(model, name, elements, &options);
}

// One rank.  The handles of the config and the communicator end here: the runtime keeps its own.
static inline zero_runtime* start_with(const char* config_text, zero_init_options options) {
  zero_config* config = config_of(config_text);
  zero_comm* comm = NULL;
  if (options.comm == NULL) {
    OK(zero_comm_create_self(&comm));
    options.comm = comm;
  }
  zero_runtime* runtime = NULL;
  OK(zero_init(config, &options, &runtime));
  zero_comm_destroy(comm);
  zero_config_destroy(config);
  return runtime;
}

static inline zero_init_options init_options(void) {
  zero_init_options options;
  zero_init_options_init(&options, sizeof options);
  return options;
}

static inline zero_runtime* start(const char* config_text) {
  return start_with(config_text, init_options());
}

// A runtime that holds the model; the model's handle ends here.
static inline zero_runtime* run_of(const char* config_text, zero_model* model) {
  zero_runtime* runtime = start(config_text);
  OK(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  return runtime;
}

// Config text: SGD of rate 1 without clipping, so that a step subtracts the mean gradient.
// more: keys that follow, ", \"key\": value", or "".
static inline const char* sgd_text(int stage, const char* more) {
  static _Thread_local char text[1024];
  snprintf(text, sizeof text,
           "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1}}, \"gradient_clipping\": 0,"
           " \"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 0}%s}",
           stage, more);
  return text;
}

// A complete gradient that is value everywhere.
static inline void give(zero_runtime* runtime, zero_param_id param, float value) {
  zero_buffer buffer;
  int32_t add = -1;
  OK(zero_grad_buffer(runtime, param, NULL, &buffer, &add));
  float* out = buffer.data;
  for (uint64_t i = 0; i < buffer.count; i++) out[i] = add ? out[i] + value : value;
  OK(zero_grad_ready(runtime, &param, 1, NULL));
}

static inline zero_step_info step_of(zero_runtime* runtime) {
  zero_step_info info;
  zero_step_info_init(&info, sizeof info);
  OK(zero_step(runtime, NULL, NULL, &info));
  return info;
}

static inline float element_of(zero_runtime* runtime, zero_param_id param, zero_part part,
                               int32_t index, uint64_t element, uint64_t elements) {
  float* values = calloc(elements + 1, sizeof *values);
  OK(zero_param_get(runtime, param, part, index, values, elements * sizeof *values));
  const float value = values[element];
  free(values);
  return value;
}

// The first element of a vector.
static inline float first_of(zero_runtime* runtime, zero_param_id param, uint64_t elements) {
  return element_of(runtime, param, ZERO_PART_VALUE, 0, 0, elements);
}

static inline void end(zero_runtime* runtime) {
  OK(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
}

#endif

// See gpt_zero.h.  One unit a block, so that stage 3 holds a block or two whole at a time.
// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_zero.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

void gpt_must(zero_status status, const char* doing) {
  if (status == ZERO_OK) return;
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  char text[8192]; // the whole of it, where message is cut
  uint64_t length = 0;
  const int whole = zero_last_error_text(text, sizeof text, &length) == ZERO_OK;
  fprintf(stderr, "gpt: %s: %s: %s\n", doing, zero_status_name(status),
          whole ? text : info.message);
  exit(status == ZERO_ERR_OUT_OF_MEMORY ? GPT_DOES_NOT_FIT : 1);
}

void* gpt_allocate(uint64_t bytes, const char* what) {
  void* memory = malloc(bytes);
  if (memory) return memory;
  fprintf(stderr, "gpt: no memory for %s: %llu bytes\n", what, (unsigned long long)bytes);
  exit(1);
}

zero_model* gpt_zero_model(const gpt_shape* shape, uint64_t seed, gpt_real** values) {
  zero_model* model = NULL;
  gpt_must(zero_model_create(&model), "model");

  // Norms and biases are not pulled to zero.
  zero_group_options group;
  zero_group_options_init(&group, sizeof group);
  group.weight_decay = 0;
  zero_group_id undecayed = 0;
  gpt_must(zero_group_add(model, "undecayed", &group, &undecayed), "group");

  const int count = gpt_parameter_count(shape);
  uint64_t total = 0;
  gpt_parameter parameter;
  for (int i = 0; i < count; i++) {
    gpt_parameter_describe(shape, i, &parameter);
    total += parameter.elements;
  }
  gpt_real* at = *values = gpt_allocate(total * sizeof **values, "the first values");
  for (int i = 0; i < count; i++) {
    gpt_parameter_describe(shape, i, &parameter);
    gpt_parameter_initialize(shape, i, seed, at);
    zero_param_options options;
    zero_param_options_init(&options, sizeof options);
    // Also where the file enables fp16: fp32 parameters are allowed beside it, and their gradients
    // then carry the loss scale.
    options.dtype = ZERO_DTYPE_FP32;
    options.group = parameter.is_decayed ? 0 : undecayed;
    options.unit = parameter.unit;
    options.data = at;
    zero_param_id id = -1; // becomes i: ids follow the order of registration
    gpt_must(
        zero_param_add(model, parameter.name, parameter.shape, parameter.dimensions, &options, &id),
        parameter.name);
    at += parameter.elements;
  }
  return model;
}

// Ids of count parameters from first on.
typedef struct id_list {
  zero_param_id ids[GPT_BLOCK_PARAMETERS];
} id_list;

static id_list ids_from(int first) {
  id_list list;
  for (int i = 0; i < GPT_BLOCK_PARAMETERS; i++) list.ids[i] = first + i;
  return list;
}

static void lend(void* runtime, int first, int count, const gpt_real** values) {
  const id_list params = ids_from(first);
  zero_buffer buffers[GPT_BLOCK_PARAMETERS];
  gpt_must(zero_params_acquire(runtime, params.ids, (uint64_t)count, NULL, buffers), "acquire");
  for (int i = 0; i < count; i++) values[i] = buffers[i].data;
}

static void give_back(void* runtime, int first, int count) {
  const id_list params = ids_from(first);
  gpt_must(zero_params_release(runtime, params.ids, (uint64_t)count, /*keep_changes=*/0, NULL),
           "release");
}

static void expect(void* runtime, int first, int count) {
  const id_list params = ids_from(first);
  gpt_must(zero_params_prefetch(runtime, params.ids, (uint64_t)count), "prefetch");
}

static gpt_real* gradient_open(void* runtime, int index, int* add) {
  zero_buffer buffer;
  int32_t adds = 0;
  gpt_must(zero_grad_buffer(runtime, index, NULL, &buffer, &adds), "gradient buffer");
  *add = adds;
  return buffer.data;
}

static void gradient_done(void* runtime, int index) {
  const zero_param_id param = index;
  gpt_must(zero_grad_ready(runtime, &param, 1, NULL), "gradient");
}

void* gpt_zero_activations(zero_runtime* runtime, uint64_t bytes) {
  void* memory = NULL;
  gpt_must(zero_memory_allocate(runtime, ZERO_PLACE_HOST, bytes, 64, &memory), "activations");
  return memory;
}

static void* allocate(void* runtime, uint64_t bytes) {
  return gpt_zero_activations(runtime, bytes);
}

static void release(void* runtime, void* memory) {
  zero_memory_free(runtime, memory);
}

gpt_store gpt_zero_store(zero_runtime* runtime) {
  const gpt_store store = {runtime,       lend,          give_back, expect,
                           gradient_open, gradient_done, allocate,  release};
  return store;
}

uint64_t gpt_zero_weights_hash(zero_runtime* runtime) {
  const int32_t count = zero_param_count(runtime);
  uint64_t largest = 1;
  zero_param_info info;
  zero_param_info_init(&info, sizeof info);
  for (int32_t i = 0; i < count; i++) {
    gpt_must(zero_param_describe(runtime, i, &info), "describe");
    if (info.elements > largest) largest = info.elements;
  }
  float* values = gpt_allocate(largest * sizeof *values, "the largest parameter");
  XXH3_state_t* state = XXH3_createState();
  if (!state || XXH3_64bits_reset(state) != XXH_OK) gpt_must(ZERO_ERR_USER, "XXH3");
  for (int32_t i = 0; i < count; i++) {
    gpt_must(zero_param_describe(runtime, i, &info), "describe");
    const uint64_t bytes = info.elements * sizeof *values;
    gpt_must(zero_param_get(runtime, i, ZERO_PART_VALUE, 0, values, bytes), info.name);
    XXH3_64bits_update(state, values, bytes);
  }
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  free(values);
  return hash;
}

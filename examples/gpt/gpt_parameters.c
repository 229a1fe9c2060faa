// The list of parameters that follows from a shape, and their values at the start.
// SPDX-License-Identifier: BSD-3-Clause
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpt_model.h"
#include "gpt_random.h"

int gpt_shape_named(const char* size, gpt_shape* shape) {
  // tiny is for tests, small for a few minutes on two cores, wide has many parameters for each
  // activation, as large models have; 124m is GPT-2 itself, its table of 50257 tokens included, of
  // which bytes use the first 256.
  static const struct {
    const char* name;
    gpt_shape shape;
  } known[] = {{"tiny", {4, 2, 32, 32, 256}},
               {"small", {12, 4, 128, 64, 256}},
               {"wide", {16, 4, 160, 128, 256}},
               {"124m", {12, 12, 768, 1024, 50257}}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(size, known[i].name) != 0) continue;
    *shape = known[i].shape;
    return 1;
  }
  return 0;
}

int gpt_parameter_count(const gpt_shape* shape) {
  return GPT_FIRST_BLOCK + GPT_BLOCK_PARAMETERS * shape->layers + 2;
}

static void fill(gpt_parameter* parameter, int64_t rows, int64_t columns) {
  parameter->dimensions = rows == 0 ? 1 : 2;
  parameter->shape[0] = rows == 0 ? columns : rows;
  parameter->shape[1] = rows == 0 ? 0 : columns;
  parameter->is_decayed = rows != 0;
  parameter->elements = (uint64_t)(rows == 0 ? columns : rows * columns);
}

void gpt_parameter_describe(const gpt_shape* shape, int index, gpt_parameter* parameter) {
  const int64_t width = shape->width;
  const struct {
    const char* name;
    int64_t rows, columns; // rows 0: a vector
  } block[GPT_BLOCK_PARAMETERS] = {
      {"ln_1.weight", 0, width},
      {"ln_1.bias", 0, width},
      {"attn.c_attn.weight", width, 3 * width},
      {"attn.c_attn.bias", 0, 3 * width},
      {"attn.c_proj.weight", width, width},
      {"attn.c_proj.bias", 0, width},
      {"ln_2.weight", 0, width},
      {"ln_2.bias", 0, width},
      {"mlp.c_fc.weight", width, 4 * width},
      {"mlp.c_fc.bias", 0, 4 * width},
      {"mlp.c_proj.weight", 4 * width, width},
      {"mlp.c_proj.bias", 0, width},
  };
  memset(parameter, 0, sizeof *parameter);
  const int layer = (index - GPT_FIRST_BLOCK) / GPT_BLOCK_PARAMETERS;
  if (index == GPT_TOKEN_EMBEDDING) {
    snprintf(parameter->name, sizeof parameter->name, "transformer.wte.weight");
    fill(parameter, shape->vocabulary, width);
  } else if (index == GPT_POSITION_EMBEDDING) {
    snprintf(parameter->name, sizeof parameter->name, "transformer.wpe.weight");
    fill(parameter, shape->context, width);
  } else if (layer < shape->layers) {
    const int k = (index - GPT_FIRST_BLOCK) % GPT_BLOCK_PARAMETERS;
    snprintf(parameter->name, sizeof parameter->name, "transformer.h.%d.%s", layer, block[k].name);
    fill(parameter, block[k].rows, block[k].columns);
    parameter->unit = 1 + layer;
  } else {
    const int is_bias = index == gpt_parameter_count(shape) - 1;
    snprintf(parameter->name, sizeof parameter->name, "transformer.ln_f.%s",
             is_bias ? "bias" : "weight");
    fill(parameter, 0, width);
    parameter->unit = 1 + shape->layers;
  }
}

void gpt_parameter_initialize(const gpt_shape* shape, int index, uint64_t seed, gpt_real* values) {
  gpt_parameter parameter;
  gpt_parameter_describe(shape, index, &parameter);
  const int adds_to_stream = strstr(parameter.name, "c_proj.weight") != NULL;
  const double deviation = adds_to_stream ? 0.02 / sqrt(2.0 * shape->layers) : 0.02;
  const int is_gain = parameter.dimensions == 1 && strstr(parameter.name, ".weight") != NULL;
  gpt_random random = gpt_random_from(seed, (uint64_t)index);
  for (uint64_t i = 0; i < parameter.elements; i++)
    values[i] = parameter.dimensions == 2 ? (gpt_real)(deviation * gpt_random_normal(&random))
                                          : (gpt_real)is_gain;
}

// Forward and backward over the whole transformer, unit by unit: what a unit needs is borrowed
// from the store just before it is used and given back right after.
// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt_layers.h"

// Places of a block's parameters, from its first on.
enum {
  NORM_1_GAIN,
  NORM_1_BIAS,
  QKV_WEIGHT,
  QKV_BIAS,
  PROJECT_WEIGHT,
  PROJECT_BIAS,
  NORM_2_GAIN,
  NORM_2_BIAS,
  WIDEN_WEIGHT,
  WIDEN_BIAS,
  NARROW_WEIGHT,
  NARROW_BIAS
};

// What the forward pass of a block leaves for the backward pass.
typedef struct block_activations {
  gpt_real* input; // the stream before the block
  gpt_real* normed_1;
  gpt_real* statistics_1;
  gpt_real* qkv;
  gpt_real* weights;
  gpt_real* attended;
  gpt_real* middle; // the stream between attention and the wide layer
  gpt_real* normed_2;
  gpt_real* statistics_2;
  gpt_real* slope; // of GELU
  gpt_real* active;
} block_activations;

struct gpt_model {
  gpt_shape shape;
  gpt_store store;
  int rows, window;
  block_activations* blocks;
  gpt_real* output; // the stream after the last block
  gpt_real* normed;
  gpt_real* statistics;
  gpt_real* scores;
  gpt_real* d_stream;
  gpt_real* d_narrow;
  gpt_real* d_wide;
  gpt_real* scratch;
  gpt_real* memory;
  uint64_t elements;
};

// Gives every activation its place; with memory NULL it only counts.
static void place_activations(gpt_model* model, gpt_real* memory) {
  const size_t n = (size_t)model->rows * (size_t)model->window;
  const size_t width = (size_t)model->shape.width;
  const size_t square = (size_t)model->window * (size_t)model->window;
  size_t used = 0;
#define PLACE(field, count)                       \
  do {                                            \
    if (memory) (field) = memory + used;          \
    used += ((size_t)(count) + 15) & ~(size_t)15; \
  } while (0)
  for (int i = 0; i < model->shape.layers; i++) {
    block_activations* block = &model->blocks[i];
    PLACE(block->input, n * width);
    PLACE(block->normed_1, n * width);
    PLACE(block->statistics_1, n * 2);
    PLACE(block->qkv, n * 3 * width);
    PLACE(block->weights, (size_t)(model->rows * model->shape.heads) * square);
    PLACE(block->attended, n * width);
    PLACE(block->middle, n * width);
    PLACE(block->normed_2, n * width);
    PLACE(block->statistics_2, n * 2);
    PLACE(block->slope, n * 4 * width);
    PLACE(block->active, n * 4 * width);
  }
  PLACE(model->output, n * width);
  PLACE(model->normed, n * width);
  PLACE(model->statistics, n * 2);
  PLACE(model->scores, n * (size_t)model->shape.vocabulary);
  PLACE(model->d_stream, n * width);
  PLACE(model->d_narrow, n * width);
  PLACE(model->d_wide, n * 4 * width);
  PLACE(model->scratch, square);
#undef PLACE
  model->elements = used;
}

gpt_model* gpt_model_create(const gpt_shape* shape, int rows, int window, gpt_store store) {
  if (rows < 1 || window < 1 || window > shape->context) return NULL;
  gpt_model* model = calloc(1, sizeof *model);
  if (!model) return NULL;
  model->shape = *shape;
  model->store = store;
  model->rows = rows;
  model->window = window;
  model->blocks = calloc((size_t)shape->layers, sizeof *model->blocks);
  place_activations(model, NULL);
  const uint64_t bytes = gpt_model_bytes(model);
  model->memory = store.allocate ? store.allocate(store.context, bytes) : aligned_alloc(64, bytes);
  if (!model->blocks || !model->memory) {
    gpt_model_destroy(model);
    return NULL;
  }
  place_activations(model, model->memory);
  return model;
}

void gpt_model_destroy(gpt_model* model) {
  if (!model) return;
  free(model->blocks);
  if (model->store.release)
    model->store.release(model->store.context, model->memory);
  else
    free(model->memory);
  free(model);
}

uint64_t gpt_model_bytes(const gpt_model* model) {
  return model->elements * sizeof(gpt_real);
}

uint64_t gpt_activation_bytes(const gpt_shape* shape, int rows, int window) {
  gpt_model model = {0};
  model.shape = *shape;
  model.rows = rows;
  model.window = window;
  model.blocks = calloc((size_t)shape->layers, sizeof *model.blocks);
  if (!model.blocks) return 0;
  place_activations(&model, NULL);
  free(model.blocks);
  return gpt_model_bytes(&model);
}

static int block_first(int layer) {
  return GPT_FIRST_BLOCK + layer * GPT_BLOCK_PARAMETERS;
}

static void lend(const gpt_model* model, int first, int count, const gpt_real** values) {
  model->store.lend(model->store.context, first, count, values);
}

static void give_back(const gpt_model* model, int first, int count) {
  model->store.give_back(model->store.context, first, count);
}

static void expect_block(const gpt_model* model, int layer) {
  if (layer < 0 || layer >= model->shape.layers) return;
  model->store.expect(model->store.context, block_first(layer), GPT_BLOCK_PARAMETERS);
}

static void add_to(gpt_real* sum, const gpt_real* term, size_t count) {
  for (size_t i = 0; i < count; i++) sum[i] += term[i];
}

// ---- forward ----

static void embed(const gpt_model* model, gpt_real* stream, const uint8_t* tokens, int rows,
                  int window) {
  const int width = model->shape.width;
  const gpt_real* tables[2];
  lend(model, GPT_TOKEN_EMBEDDING, 2, tables);
  expect_block(model, 0);
  for (int i = 0; i < rows * window; i++) {
    const gpt_real* token = tables[0] + (size_t)tokens[i] * width;
    const gpt_real* position = tables[1] + (size_t)(i % window) * width;
    gpt_real* out = stream + (size_t)i * width;
    for (int j = 0; j < width; j++) out[j] = token[j] + position[j];
  }
  give_back(model, GPT_TOKEN_EMBEDDING, 2);
}

static void block_forward(const gpt_model* model, int layer, gpt_real* out, int rows, int window) {
  const block_activations* a = &model->blocks[layer];
  const int n = rows * window, width = model->shape.width;
  const gpt_real* p[GPT_BLOCK_PARAMETERS];
  lend(model, block_first(layer), GPT_BLOCK_PARAMETERS, p);
  expect_block(model, layer + 1);
  gpt_norm(a->normed_1, a->statistics_1, a->input, p[NORM_1_GAIN], p[NORM_1_BIAS], n, width);
  gpt_linear(a->qkv, a->normed_1, p[QKV_WEIGHT], p[QKV_BIAS], n, width, 3 * width);
  gpt_attention(a->attended, a->weights, a->qkv, rows, window, model->shape.heads, width);
  gpt_linear(a->middle, a->attended, p[PROJECT_WEIGHT], p[PROJECT_BIAS], n, width, width);
  add_to(a->middle, a->input, (size_t)n * width);
  gpt_norm(a->normed_2, a->statistics_2, a->middle, p[NORM_2_GAIN], p[NORM_2_BIAS], n, width);
  gpt_linear(a->slope, a->normed_2, p[WIDEN_WEIGHT], p[WIDEN_BIAS], n, width, 4 * width);
  gpt_gelu(a->active, a->slope, (uint64_t)n * 4 * width);
  gpt_linear(out, a->active, p[NARROW_WEIGHT], p[NARROW_BIAS], n, 4 * width, width);
  add_to(out, a->middle, (size_t)n * width);
  give_back(model, block_first(layer), GPT_BLOCK_PARAMETERS);
}

static gpt_real* stream_before(const gpt_model* model, int layer) {
  return layer < model->shape.layers ? model->blocks[layer].input : model->output;
}

// Embeddings and all blocks; the final norm and the head are the caller's, see head().
static void forward(gpt_model* model, const uint8_t* tokens, int rows, int window) {
  embed(model, stream_before(model, 0), tokens, rows, window);
  for (int layer = 0; layer < model->shape.layers; layer++)
    block_forward(model, layer, stream_before(model, layer + 1), rows, window);
}

// ---- backward ----

static gpt_real* open_gradient(const gpt_model* model, int index, int* add) {
  return model->store.gradient_open(model->store.context, index, add);
}

static void done(const gpt_model* model, int index) {
  model->store.gradient_done(model->store.context, index);
}

static void linear_gradients(const gpt_model* model, int weight, const gpt_real* x,
                             const gpt_real* d_y, int n, int in, int out) {
  int add = 0;
  gpt_real* d_bias = open_gradient(model, weight + 1, &add);
  gpt_linear_backward_bias(d_bias, add, d_y, n, out);
  done(model, weight + 1);
  gpt_real* d_weight = open_gradient(model, weight, &add);
  gpt_linear_backward_weight(d_weight, add, x, d_y, n, in, out);
  done(model, weight);
}

static void norm_gradients(const gpt_model* model, int gain, const gpt_real* x,
                           const gpt_real* statistics, const gpt_real* d_y, int n) {
  int add = 0;
  const int width = model->shape.width;
  gpt_real* d_bias = open_gradient(model, gain + 1, &add);
  gpt_linear_backward_bias(d_bias, add, d_y, n, width);
  done(model, gain + 1);
  gpt_real* d_gain = open_gradient(model, gain, &add);
  gpt_norm_backward_gain(d_gain, add, d_y, x, statistics, n, width);
  done(model, gain);
}

static void block_backward(const gpt_model* model, int layer, int rows, int window) {
  const block_activations* a = &model->blocks[layer];
  const int n = rows * window, width = model->shape.width, first = block_first(layer);
  gpt_real *d_stream = model->d_stream, *d_narrow = model->d_narrow, *d_wide = model->d_wide;
  const gpt_real* p[GPT_BLOCK_PARAMETERS];
  lend(model, first, GPT_BLOCK_PARAMETERS, p);
  expect_block(model, layer - 1);

  linear_gradients(model, first + NARROW_WEIGHT, a->active, d_stream, n, 4 * width, width);
  gpt_linear_backward_input(d_wide, d_stream, p[NARROW_WEIGHT], n, 4 * width, width);
  for (size_t i = 0; i < (size_t)n * 4 * width; i++) d_wide[i] *= a->slope[i];
  linear_gradients(model, first + WIDEN_WEIGHT, a->normed_2, d_wide, n, width, 4 * width);
  gpt_linear_backward_input(d_narrow, d_wide, p[WIDEN_WEIGHT], n, width, 4 * width);
  norm_gradients(model, first + NORM_2_GAIN, a->middle, a->statistics_2, d_narrow, n);
  gpt_norm_backward_input(d_stream, d_narrow, a->middle, a->statistics_2, p[NORM_2_GAIN], n, width);

  linear_gradients(model, first + PROJECT_WEIGHT, a->attended, d_stream, n, width, width);
  gpt_linear_backward_input(d_narrow, d_stream, p[PROJECT_WEIGHT], n, width, width);
  gpt_attention_backward(d_wide, model->scratch, d_narrow, a->weights, a->qkv, rows, window,
                         model->shape.heads, width);
  linear_gradients(model, first + QKV_WEIGHT, a->normed_1, d_wide, n, width, 3 * width);
  gpt_linear_backward_input(d_narrow, d_wide, p[QKV_WEIGHT], n, width, 3 * width);
  norm_gradients(model, first + NORM_1_GAIN, a->input, a->statistics_1, d_narrow, n);
  gpt_norm_backward_input(d_stream, d_narrow, a->input, a->statistics_1, p[NORM_1_GAIN], n, width);
  give_back(model, first, GPT_BLOCK_PARAMETERS);
}

// d_table already holds the head's part of the token table's gradient.
static void embed_backward(const gpt_model* model, gpt_real* d_table, const uint8_t* tokens,
                           int rows, int window) {
  const int width = model->shape.width;
  int add = 0;
  gpt_real* d_positions = open_gradient(model, GPT_POSITION_EMBEDDING, &add);
  if (!add) memset(d_positions, 0, (size_t)model->shape.context * width * sizeof *d_positions);
  for (int i = 0; i < rows * window; i++) {
    const gpt_real* d = model->d_stream + (size_t)i * width;
    add_to(d_positions + (size_t)(i % window) * width, d, (size_t)width);
    add_to(d_table + (size_t)tokens[i] * width, d, (size_t)width);
  }
  done(model, GPT_POSITION_EMBEDDING);
  done(model, GPT_TOKEN_EMBEDDING);
}

// ---- the passes ----

// Final norm, scores and loss.  With d_table not NULL also their backward pass, under the same
// loan: d_stream becomes the gradient of the last block's output, d_table the table's.
static double head(gpt_model* model, const uint8_t* targets, int rows, int window, double scale,
                   int with_gradients, gpt_real** d_table) {
  const int n = rows * window, width = model->shape.width, vocabulary = model->shape.vocabulary;
  const int norm = block_first(model->shape.layers);
  const gpt_real *p[2], *table;
  lend(model, norm, 2, p);
  lend(model, GPT_TOKEN_EMBEDDING, 1, &table);
  if (with_gradients) expect_block(model, model->shape.layers - 1);
  gpt_norm(model->normed, model->statistics, model->output, p[0], p[1], n, width);
  gpt_head(model->scores, model->normed, table, n, width, vocabulary);
  const double loss =
      gpt_cross_entropy(model->scores, targets, n, vocabulary, with_gradients ? scale : 0);
  if (with_gradients) {
    // The tied table gets a gradient at both ends of the backward pass.  Its buffer stays open in
    // between: at stages 2 and 3 that holds one of the open buckets, where a sum of the model's
    // own would cost a second table and one more pass over it.
    int add = 0;
    *d_table = open_gradient(model, GPT_TOKEN_EMBEDDING, &add);
    gpt_head_backward_table(*d_table, add, model->normed, model->scores, n, width, vocabulary);
    gpt_head_backward_input(model->d_narrow, model->scores, table, n, width, vocabulary);
    norm_gradients(model, norm, model->output, model->statistics, model->d_narrow, n);
    memset(model->d_stream, 0, (size_t)n * width * sizeof *model->d_stream);
    gpt_norm_backward_input(model->d_stream, model->d_narrow, model->output, model->statistics,
                            p[0], n, width);
  }
  give_back(model, GPT_TOKEN_EMBEDDING, 1);
  give_back(model, norm, 2);
  return loss;
}

double gpt_loss(gpt_model* model, const uint8_t* tokens, const uint8_t* targets, int rows,
                int window) {
  forward(model, tokens, rows, window);
  return head(model, targets, rows, window, 0, 0, NULL);
}

double gpt_loss_and_gradients(gpt_model* model, const uint8_t* tokens, const uint8_t* targets,
                              int rows, int window, double scale) {
  gpt_real* d_table = NULL;
  forward(model, tokens, rows, window);
  const double loss = head(model, targets, rows, window, scale, 1, &d_table);
  for (int layer = model->shape.layers - 1; layer >= 0; layer--)
    block_backward(model, layer, rows, window);
  embed_backward(model, d_table, tokens, rows, window);
  return loss;
}

const gpt_real* gpt_next_scores(gpt_model* model, const uint8_t* tokens, int window) {
  forward(model, tokens, 1, window);
  const int width = model->shape.width, norm = block_first(model->shape.layers);
  const gpt_real *p[2], *table;
  lend(model, norm, 2, p);
  lend(model, GPT_TOKEN_EMBEDDING, 1, &table);
  gpt_norm(model->normed, model->statistics, model->output + (size_t)(window - 1) * width, p[0],
           p[1], 1, width);
  gpt_head(model->scores, model->normed, table, 1, width, model->shape.vocabulary);
  give_back(model, GPT_TOKEN_EMBEDDING, 1);
  give_back(model, norm, 2);
  return model->scores;
}

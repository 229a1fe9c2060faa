// A GPT-2-shaped transformer: its shape, its list of parameters, forward and backward by hand.
// The model knows no trainer: values come from, and gradients go to, a gpt_store.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stdint.h>

// gpt_check builds the model a second time in double, where finite differences are sharp.
#ifdef GPT_DOUBLE
typedef double gpt_real;
#else
typedef float gpt_real;
#endif

typedef struct gpt_shape {
  int layers;
  int heads;
  int width; // a multiple of heads
  int context; // positions that have an embedding
  int vocabulary; // at least 256: tokens are bytes
} gpt_shape;

// The named sizes.  Returns 0 for a name it does not know.
int gpt_shape_named(const char* size, gpt_shape* shape);

// Parameters in the order of registration: token and position embedding, twelve a block, final
// norm.  A unit is what the forward pass needs at one time: the embeddings, a block, the norm.
typedef struct gpt_parameter {
  char name[64]; // as in the published GPT-2 checkpoints
  int64_t shape[2];
  int dimensions;
  int unit;
  int is_decayed; // weight decay: the matrices, not norms and biases
  uint64_t elements;
} gpt_parameter;

enum {
  GPT_TOKEN_EMBEDDING = 0,
  GPT_POSITION_EMBEDDING = 1,
  GPT_FIRST_BLOCK = 2,
  GPT_BLOCK_PARAMETERS = 12
};

int gpt_parameter_count(const gpt_shape* shape);
void gpt_parameter_describe(const gpt_shape* shape, int index, gpt_parameter* parameter);
// GPT-2's own start: normal with 0.02, narrower where a block adds to the stream.
void gpt_parameter_initialize(const gpt_shape* shape, int index, uint64_t seed, gpt_real* values);

// Where values and gradients live.  The calls of one pass come in the same order on every rank.
typedef struct gpt_store {
  void* context;
  // Whole values of count parameters from first on, valid until given back.
  void (*lend)(void* context, int first, int count, const gpt_real** values);
  void (*give_back)(void* context, int first, int count);
  // A hint: these are lent next.
  void (*expect)(void* context, int first, int count);
  // Where a parameter's gradient goes; *add 0: write every element, 1: add to what is there.
  gpt_real* (*gradient_open)(void* context, int index, int* add);
  void (*gradient_done)(void* context, int index);
  // Memory for activations, 64-byte aligned, NULL where there is none; both NULL: the heap's.
  void* (*allocate)(void* context, uint64_t bytes);
  void (*release)(void* context, void* memory);
} gpt_store;

typedef struct gpt_model gpt_model;

// Allocates every activation for batches of up to rows x window tokens; no pass allocates.
gpt_model* gpt_model_create(const gpt_shape* shape, int rows, int window, gpt_store store);
void gpt_model_destroy(gpt_model* model);
uint64_t gpt_model_bytes(const gpt_model* model);
// What gpt_model_create would allocate; grows by the same amount with each row of a window that is
// a multiple of eight tokens.
uint64_t gpt_activation_bytes(const gpt_shape* shape, int rows, int window);

// Mean cross-entropy of targets (rows x window bytes) given tokens, in nats.
double gpt_loss(gpt_model* model, const uint8_t* tokens, const uint8_t* targets, int rows,
                int window);
// The same, and the gradient of loss x scale into the store.
double gpt_loss_and_gradients(gpt_model* model, const uint8_t* tokens, const uint8_t* targets,
                              int rows, int window, double scale);
// Scores of the byte that follows tokens; borrowed until the next pass.
const gpt_real* gpt_next_scores(gpt_model* model, const uint8_t* tokens, int window);

#endif

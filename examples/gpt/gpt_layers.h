// The layers of the transformer, each forward and backward, on plain row-major arrays.
// SPDX-License-Identifier: BSD-3-Clause
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include "gpt_model.h"

// In all of them: n rows (tokens); d_x is the gradient of the loss by x.  A weight's gradient
// is written where add is 0 and added to where it is 1.

// y[n][out] = x[n][in] w[in][out] + bias
void gpt_linear(gpt_real* y, const gpt_real* x, const gpt_real* w, const gpt_real* bias, int n,
                int in, int out);
void gpt_linear_backward_input(gpt_real* d_x, const gpt_real* d_y, const gpt_real* w, int n, int in,
                               int out);
void gpt_linear_backward_weight(gpt_real* d_w, int add, const gpt_real* x, const gpt_real* d_y,
                                int n, int in, int out);
void gpt_linear_backward_bias(gpt_real* d_bias, int add, const gpt_real* d_y, int n, int out);

// Scores of all tokens: y[n][rows] = x[n][width] table[rows][width]^T, and back.
void gpt_head(gpt_real* y, const gpt_real* x, const gpt_real* table, int n, int width, int rows);
void gpt_head_backward_input(gpt_real* d_x, const gpt_real* d_y, const gpt_real* table, int n,
                             int width, int rows);
void gpt_head_backward_table(gpt_real* d_table, int add, const gpt_real* x, const gpt_real* d_y,
                             int n, int width, int rows);

// statistics: two numbers a row, kept for the way back.
void gpt_norm(gpt_real* y, gpt_real* statistics, const gpt_real* x, const gpt_real* gain,
              const gpt_real* bias, int n, int width);
// Adds to d_x: the stream's own gradient is already there.
void gpt_norm_backward_input(gpt_real* d_x, const gpt_real* d_y, const gpt_real* x,
                             const gpt_real* statistics, const gpt_real* gain, int n, int width);
void gpt_norm_backward_gain(gpt_real* d_gain, int add, const gpt_real* d_y, const gpt_real* x,
                            const gpt_real* statistics, int n, int width);

// y = gelu(x) by tanh; x is replaced by the derivative, all that the way back needs.
void gpt_gelu(gpt_real* y, gpt_real* x_to_derivative, uint64_t count);

// Causal attention of rows sequences: qkv[n][3 width] -> y[n][width]; weights keeps
// rows x heads x window x window.
void gpt_attention(gpt_real* y, gpt_real* weights, const gpt_real* qkv, int rows, int window,
                   int heads, int width);
// scratch: window x window.
void gpt_attention_backward(gpt_real* d_qkv, gpt_real* scratch, const gpt_real* d_y,
                            const gpt_real* weights, const gpt_real* qkv, int rows, int window,
                            int heads, int width);

// Mean of -log softmax(scores)[target].  With factor not 0 scores becomes its gradient x factor.
double gpt_cross_entropy(gpt_real* scores, const uint8_t* targets, int n, int vocabulary,
                         double factor);

#endif

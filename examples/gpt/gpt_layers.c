// Layers: matrix products are OpenBLAS's, the rest are plain loops that the compiler vectorises.
// SPDX-License-Identifier: BSD-3-Clause
#include "gpt_layers.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

// c[m][n] = alpha op(a) op(b) + beta c, row-major with row lengths lda, ldb, ldc.
static void multiply(int a_transposed, int b_transposed, int m, int n, int k, gpt_real alpha,
                     const gpt_real* a, int lda, const gpt_real* b, int ldb, gpt_real beta,
                     gpt_real* c, int ldc) {
  const enum CBLAS_TRANSPOSE ta = a_transposed ? CblasTrans : CblasNoTrans;
  const enum CBLAS_TRANSPOSE tb = b_transposed ? CblasTrans : CblasNoTrans;
#ifdef GPT_DOUBLE
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#else
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#endif
}

void gpt_linear(gpt_real* y, const gpt_real* x, const gpt_real* w, const gpt_real* bias, int n,
                int in, int out) {
  for (int i = 0; i < n; i++) memcpy(y + (size_t)i * out, bias, (size_t)out * sizeof *y);
  multiply(0, 0, n, out, in, 1, x, in, w, out, 1, y, out);
}

void gpt_linear_backward_input(gpt_real* d_x, const gpt_real* d_y, const gpt_real* w, int n, int in,
                               int out) {
  multiply(0, 1, n, in, out, 1, d_y, out, w, out, 0, d_x, in);
}

void gpt_linear_backward_weight(gpt_real* d_w, int add, const gpt_real* x, const gpt_real* d_y,
                                int n, int in, int out) {
  multiply(1, 0, in, out, n, 1, x, in, d_y, out, add ? 1 : 0, d_w, out);
}

void gpt_linear_backward_bias(gpt_real* d_bias, int add, const gpt_real* d_y, int n, int out) {
  if (!add) memset(d_bias, 0, (size_t)out * sizeof *d_bias);
  for (int i = 0; i < n; i++) {
    const gpt_real* row = d_y + (size_t)i * out;
    for (int j = 0; j < out; j++) d_bias[j] += row[j];
  }
}

void gpt_head(gpt_real* y, const gpt_real* x, const gpt_real* table, int n, int width, int rows) {
  multiply(0, 1, n, rows, width, 1, x, width, table, width, 0, y, rows);
}

void gpt_head_backward_input(gpt_real* d_x, const gpt_real* d_y, const gpt_real* table, int n,
                             int width, int rows) {
  multiply(0, 0, n, width, rows, 1, d_y, rows, table, width, 0, d_x, width);
}

void gpt_head_backward_table(gpt_real* d_table, int add, const gpt_real* x, const gpt_real* d_y,
                             int n, int width, int rows) {
  multiply(1, 0, rows, width, n, 1, d_y, rows, x, width, add ? 1 : 0, d_table, width);
}

void gpt_norm(gpt_real* y, gpt_real* statistics, const gpt_real* x, const gpt_real* gain,
              const gpt_real* bias, int n, int width) {
  for (int i = 0; i < n; i++) {
    const gpt_real* row = x + (size_t)i * width;
    gpt_real* out = y + (size_t)i * width;
    double sum = 0, squares = 0;
    for (int j = 0; j < width; j++) sum += row[j];
    const double mean = sum / width;
    for (int j = 0; j < width; j++) squares += (row[j] - mean) * (row[j] - mean);
    const gpt_real m = (gpt_real)mean;
    const gpt_real scale = (gpt_real)(1 / sqrt(squares / width + 1e-5));
    for (int j = 0; j < width; j++) out[j] = (row[j] - m) * scale * gain[j] + bias[j];
    statistics[2 * i] = m;
    statistics[2 * i + 1] = scale;
  }
}

void gpt_norm_backward_input(gpt_real* d_x, const gpt_real* d_y, const gpt_real* x,
                             const gpt_real* statistics, const gpt_real* gain, int n, int width) {
  for (int i = 0; i < n; i++) {
    const gpt_real* row = x + (size_t)i * width;
    const gpt_real* in = d_y + (size_t)i * width;
    gpt_real* out = d_x + (size_t)i * width;
    const gpt_real m = statistics[2 * i], scale = statistics[2 * i + 1];
    double sum = 0, along = 0; // of the gradient, and of its part along the normed row
    for (int j = 0; j < width; j++) {
      const gpt_real g = in[j] * gain[j];
      sum += g;
      along += g * ((row[j] - m) * scale);
    }
    const gpt_real a = (gpt_real)(sum / width), b = (gpt_real)(along / width);
    for (int j = 0; j < width; j++)
      out[j] += (in[j] * gain[j] - a - (row[j] - m) * scale * b) * scale;
  }
}

void gpt_norm_backward_gain(gpt_real* d_gain, int add, const gpt_real* d_y, const gpt_real* x,
                            const gpt_real* statistics, int n, int width) {
  if (!add) memset(d_gain, 0, (size_t)width * sizeof *d_gain);
  for (int i = 0; i < n; i++) {
    const gpt_real* row = x + (size_t)i * width;
    const gpt_real* in = d_y + (size_t)i * width;
    const gpt_real m = statistics[2 * i], scale = statistics[2 * i + 1];
    for (int j = 0; j < width; j++) d_gain[j] += in[j] * ((row[j] - m) * scale);
  }
}

#ifdef GPT_DOUBLE
static inline gpt_real exponential(gpt_real x) {
  return exp(x);
}
#else
// expf to two units in the last place, without a branch, so that loops over it are vectorised:
// 2^n e^r with |r| <= ln(2) / 2, the power of two put together from its bits.
static inline gpt_real exponential(gpt_real x) {
  const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = (x * 1.44269504f + magic) - magic;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  const float p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  const float q = ((p * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f;
  const float e = (q * r + 5.0000001201e-1f) * r * r + r + 1.0f;
  const int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return e * power;
}
#endif

void gpt_gelu(gpt_real* y, gpt_real* x_to_derivative, uint64_t count) {
  const gpt_real k = (gpt_real)0.79788456080286535588; // sqrt(2 / pi)
  const gpt_real c = (gpt_real)0.044715, half = (gpt_real)0.5;
  for (uint64_t i = 0; i < count; i++) {
    const gpt_real x = x_to_derivative[i];
    const gpt_real t = 1 - 2 / (exponential(2 * k * (x + c * x * x * x)) + 1); // tanh
    y[i] = half * x * (1 + t);
    x_to_derivative[i] = half * (1 + t) + half * x * (1 - t * t) * k * (1 + 3 * c * x * x);
  }
}

// Row t of a head's weights: softmax over positions 0..t, zero after.
static void causal_softmax(gpt_real* scores, int window) {
  for (int t = 0; t < window; t++) {
    gpt_real* row = scores + (size_t)t * window;
    gpt_real largest = row[0], sum = 0;
    for (int j = 1; j <= t; j++) largest = row[j] > largest ? row[j] : largest;
    for (int j = 0; j <= t; j++) row[j] = exponential(row[j] - largest);
    for (int j = 0; j <= t; j++) sum += row[j];
    const gpt_real share = 1 / sum;
    for (int j = 0; j <= t; j++) row[j] *= share;
    for (int j = t + 1; j < window; j++) row[j] = 0;
  }
}

void gpt_attention(gpt_real* y, gpt_real* weights, const gpt_real* qkv, int rows, int window,
                   int heads, int width) {
  const int each = width / heads, line = 3 * width;
  const gpt_real scale = (gpt_real)(1 / sqrt((double)each));
  for (int r = 0; r < rows; r++) {
    for (int h = 0; h < heads; h++) {
      const gpt_real* q = qkv + (size_t)r * window * line + h * each;
      gpt_real* w = weights + (size_t)(r * heads + h) * window * window;
      gpt_real* out = y + (size_t)r * window * width + h * each;
      multiply(0, 1, window, window, each, scale, q, line, q + width, line, 0, w, window);
      causal_softmax(w, window);
      multiply(0, 0, window, each, window, 1, w, window, q + 2 * width, line, 0, out, width);
    }
  }
}

void gpt_attention_backward(gpt_real* d_qkv, gpt_real* scratch, const gpt_real* d_y,
                            const gpt_real* weights, const gpt_real* qkv, int rows, int window,
                            int heads, int width) {
  const int each = width / heads, line = 3 * width;
  const gpt_real scale = (gpt_real)(1 / sqrt((double)each));
  for (int r = 0; r < rows; r++) {
    for (int h = 0; h < heads; h++) {
      const size_t start = (size_t)r * window * line + (size_t)h * each;
      const gpt_real* q = qkv + start;
      gpt_real* d_q = d_qkv + start;
      const gpt_real* w = weights + (size_t)(r * heads + h) * window * window;
      const gpt_real* d_out = d_y + (size_t)r * window * width + h * each;
      multiply(1, 0, window, each, window, 1, w, window, d_out, width, 0, d_q + 2 * width, line);
      multiply(0, 1, window, window, each, 1, d_out, width, q + 2 * width, line, 0, scratch,
               window);
      for (int t = 0; t < window; t++) { // through the softmax, in place
        const gpt_real* weight = w + (size_t)t * window;
        gpt_real* d = scratch + (size_t)t * window;
        gpt_real dot = 0;
        for (int j = 0; j <= t; j++) dot += weight[j] * d[j];
        for (int j = 0; j < window; j++) d[j] = weight[j] * (d[j] - dot);
      }
      multiply(0, 0, window, each, window, scale, scratch, window, q + width, line, 0, d_q, line);
      multiply(1, 0, window, each, window, scale, scratch, window, q, line, 0, d_q + width, line);
    }
  }
}

double gpt_cross_entropy(gpt_real* scores, const uint8_t* targets, int n, int vocabulary,
                         double factor) {
  double loss = 0;
  for (int i = 0; i < n; i++) {
    gpt_real* row = scores + (size_t)i * vocabulary;
    gpt_real largest = row[0];
    for (int j = 1; j < vocabulary; j++) largest = row[j] > largest ? row[j] : largest;
    const gpt_real target = row[targets[i]] - largest;
    double sum = 0;
    for (int j = 0; j < vocabulary; j++) row[j] = exponential(row[j] - largest);
    for (int j = 0; j < vocabulary; j++) sum += row[j];
    loss += log(sum) - target;
    if (factor == 0) continue;
    const gpt_real each = (gpt_real)(factor / (sum * n));
    for (int j = 0; j < vocabulary; j++) row[j] *= each;
    row[targets[i]] -= (gpt_real)(factor / n);
  }
  return loss / n;
}

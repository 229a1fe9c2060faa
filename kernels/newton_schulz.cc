// Muon's orthogonalisation: five Newton-Schulz steps of a matrix, by three matrix products each.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/host/float_environment.h"
#include "kernels/kernels.h"

namespace zero::kernels {

namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr int kSteps = 5;
static_assert(kSteps % 2 == 1); // an odd number of moves between the two places ends in x

void transpose(const float* from, uint64_t rows, uint64_t cols, float* to) {
  for (uint64_t i = 0; i < rows; i++) {
    for (uint64_t j = 0; j < cols; j++) to[j * rows + i] = from[i * cols + j];
  }
}

// out (n by m) = left (n by k) * right (k by m), row-major.
void multiply(const float* left, const float* right, uint64_t n, uint64_t k, uint64_t m,
              float* out) {
  std::fill(out, out + n * m, 0.0f);
  for (uint64_t i = 0; i < n; i++) {
    for (uint64_t l = 0; l < k; l++) {
      const float factor = left[i * k + l];
      for (uint64_t j = 0; j < m; j++) {
        out[i * m + j] = std::fma(factor, right[l * m + j], out[i * m + j]);
      }
    }
  }
}

// out (n by n) = x x^T for x of n by k.
void multiply_transposed(const float* x, uint64_t n, uint64_t k, float* out) {
  for (uint64_t i = 0; i < n; i++) {
    for (uint64_t j = 0; j <= i; j++) {
      float sum = 0;
      for (uint64_t l = 0; l < k; l++) sum = std::fma(x[i * k + l], x[j * k + l], sum);
      out[i * n + j] = sum;
      out[j * n + i] = sum;
    }
  }
}

} // namespace

uint64_t newton_schulz_workspace(uint64_t rows, uint64_t cols) {
  const uint64_t n = std::min(rows, cols);
  return rows * cols + 2 * n * n;
}

void newton_schulz(float* x, uint64_t rows, uint64_t cols, float* workspace) {
  const FloatEnvironment environment;
  const uint64_t n = std::min(rows, cols), k = std::max(rows, cols);
  const uint64_t count = rows * cols;
  ExactSum sum;
  exact_sum_clear(&sum);
  const bool finite = host_kernels().norm(x, ZERO_DTYPE_FP32, count, &sum) == kNone;
  if (!finite) {
    std::fill(x, x + count, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  exact_sum_normalise(&sum);
  const float divisor = static_cast<float>(exact_sum_root(sum) + 1e-7);
  for (uint64_t i = 0; i < count; i++) x[i] = x[i] / divisor;
  float* from = workspace;
  float* to = x;
  float* const gram = workspace + count;
  float* const polynomial = gram + n * n;
  if (rows > cols) {
    transpose(x, rows, cols, from);
  } else {
    std::copy(x, x + count, from);
  }
  for (int step = 0; step < kSteps; step++) {
    multiply_transposed(from, n, k, gram);
    multiply(gram, gram, n, n, n, polynomial);
    for (uint64_t i = 0; i < n * n; i++) {
      polynomial[i] = std::fma(kC, polynomial[i], kB * gram[i]);
    }
    multiply(polynomial, from, n, n, k, to);
    for (uint64_t i = 0; i < count; i++) to[i] = std::fma(kA, from[i], to[i]);
    std::swap(from, to);
  }
  if (rows > cols) {
    transpose(x, cols, rows, workspace);
    std::copy(workspace, workspace + count, x);
  }
}

} // namespace zero::kernels

// Muon's orthogonalisation: five Newton-Schulz steps of a matrix, by three matrix products each.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
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

} // namespace

uint64_t newton_schulz_workspace(uint64_t rows, uint64_t cols) {
  const uint64_t n = std::min(rows, cols);
  return rows * cols + 2 * n * n;
}

void newton_schulz_by(const KernelTable& table, float* x, uint64_t rows, uint64_t cols,
                      float* workspace) {
  const FloatEnvironment environment;
  const uint64_t n = std::min(rows, cols), k = std::max(rows, cols);
  const uint64_t count = rows * cols;
  if (count == 0) return;
  ExactSum sum;
  exact_sum_clear(&sum);
  if (table.norm(x, ZERO_DTYPE_FP32, count, &sum) != kNone) {
    std::fill(x, x + count, std::numeric_limits<float>::quiet_NaN());
    return;
  }
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
    // A = X X^T.  It is symmetric to the bit, as products commute, and so is what follows of it.
    ProductArguments a;
    a.left = a.right = from;
    a.right_transposed = true;
    a.rows = a.cols = n;
    a.inner = k;
    a.symmetric = true;
    a.out = gram;
    table.product(a);
    // B = b A + c A A
    a.left = a.right = a.base = gram;
    a.right_transposed = false;
    a.inner = n;
    a.alpha = kC;
    a.beta = kB;
    a.out = polynomial;
    table.product(a);
    // X = a X + B X
    a.left = polynomial;
    a.right = a.base = from;
    a.cols = k;
    a.alpha = 1;
    a.beta = kA;
    a.symmetric = false;
    a.out = to;
    table.product(a);
    std::swap(from, to);
  }
  if (rows > cols) {
    transpose(x, cols, rows, workspace);
    std::copy(workspace, workspace + count, x);
  }
}

void newton_schulz(float* x, uint64_t rows, uint64_t cols, float* workspace) {
  newton_schulz_by(host_kernels(), x, rows, cols, workspace);
}

} // namespace zero::kernels

// Matrix products and Muon's orthogonalisation: against long double, by matrices whose result is
// known, and every target bit by bit against the scalar kernel.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string>

#include "kernel_cases.h"

namespace {

using namespace kernel_cases;
using Exact = std::vector<long double>;

struct Shape {
  uint64_t rows, inner, cols;
};
// Around the edges of every target's tiles and of the packed panel (12 and 6 rows, 32 and 16
// columns, 192 deep).
constexpr Shape kShapes[] = {{1, 1, 1},    {3, 2, 5},     {6, 192, 16}, {7, 193, 17}, {12, 191, 32},
                             {13, 40, 33}, {25, 385, 31}, {5, 400, 64}, {24, 7, 65},  {48, 48, 48}};

void fill(Array& array, Random& random) {
  for (uint64_t i = 0; i < array.count(); i++) {
    array.set(i, static_cast<float>(static_cast<int>(random.below(2001)) - 1000) * 1e-3f);
  }
}

void every_target_multiplies_as_the_scalar_kernel(void**) {
  Random random(1);
  for (const Shape& shape : kShapes) {
    for (int bits = 0; bits < 4; bits++) {
      const bool transposed = (bits & 1) != 0, based = (bits & 2) != 0;
      Array left(ZERO_DTYPE_FP32, shape.rows * shape.inner, 1);
      Array right(ZERO_DTYPE_FP32, shape.inner * shape.cols, 3);
      Array base(ZERO_DTYPE_FP32, shape.rows * shape.cols, 2);
      for (Array* array : {&left, &right, &base}) array->fill(random, Numbers::kFinite);
      ProductArguments a;
      a.left = left.floats();
      a.right = right.floats();
      a.right_transposed = transposed;
      a.rows = shape.rows;
      a.inner = shape.inner;
      a.cols = shape.cols;
      a.base = based ? base.floats() : nullptr;
      a.alpha = -0.7f;
      a.beta = 1.3f;
      Array wanted(ZERO_DTYPE_FP32, base.count(), 1);
      a.out = wanted.floats();
      scalar_kernels().product(a);
      for (const KernelTable* table : vector_tables()) {
        Array got(ZERO_DTYPE_FP32, base.count(), 1);
        a.out = got.floats();
        table->product(a);
        assert_same(table->name, wanted, got);
      }
    }
  }
}

// Small integers: exact in any order.
void a_product_is_the_sum_over_the_inner_index(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    const float left[] = {1, 2, 3, 4, 5, 6}; // 2 by 3
    const float right[] = {1, 0, 2, 0, 1, 3, 4, 5, 6}; // 3 by 3
    const float base[] = {100, 200, 300, 400, 500, 600};
    const float plain[] = {13, 17, 26, 28, 35, 59};
    const float turned[] = {7, 11, 32, 16, 23, 77}; // right read as its transpose
    float out[6];
    ProductArguments a;
    a.left = left;
    a.right = right;
    a.rows = 2;
    a.inner = a.cols = 3;
    a.out = out;
    host_kernel_table(i).product(a);
    for (int k = 0; k < 6; k++) assert_true(out[k] == plain[k]);
    a.right_transposed = true;
    host_kernel_table(i).product(a);
    for (int k = 0; k < 6; k++) assert_true(out[k] == turned[k]);
    a.base = base;
    a.alpha = 2;
    a.beta = 0.5f;
    host_kernel_table(i).product(a);
    for (int k = 0; k < 6; k++) assert_true(out[k] == 2 * turned[k] + base[k] / 2);
  }
}

void a_symmetric_product_is_the_whole_product(void**) {
  Random random(2);
  for (const uint64_t n : {1u, 11u, 33u, 70u}) {
    for (const uint64_t inner : {5u, 200u}) {
      Array x(ZERO_DTYPE_FP32, n * inner);
      fill(x, random);
      ProductArguments a;
      a.left = a.right = x.floats();
      a.right_transposed = true;
      a.rows = a.cols = n;
      a.inner = inner;
      for (int32_t i = 0; i < host_kernel_table_count(); i++) {
        Array whole(ZERO_DTYPE_FP32, n * n), half(ZERO_DTYPE_FP32, n * n);
        a.symmetric = false;
        a.out = whole.floats();
        host_kernel_table(i).product(a);
        a.symmetric = true;
        a.out = half.floats();
        host_kernel_table(i).product(a);
        assert_same(host_kernel_table(i).name, whole, half);
      }
    }
  }
}

Array orthogonalised(const KernelTable& table, const Array& from, uint64_t rows, uint64_t cols) {
  Array x = from;
  Array workspace(ZERO_DTYPE_FP32, newton_schulz_workspace(rows, cols));
  newton_schulz_by(table, x.floats(), rows, cols, workspace.floats());
  assert_true(workspace.guards_hold());
  return x;
}

// The five steps of one singular value.
long double polynomial(long double value) {
  for (int step = 0; step < 5; step++) {
    const long double square = value * value;
    value = value * (3.4445L - 4.7750L * square + 2.0315L * square * square);
  }
  return value;
}

// A matrix with one number a row and column has them as its singular values: each goes its own way.
void a_diagonal_matrix_goes_through_the_polynomial(void**) {
  const float diagonal[] = {4, -2, 1, 0.5f, 3};
  const long double norm = std::sqrt(16.0L + 4 + 1 + 0.25L + 9);
  for (const bool tall : {false, true}) {
    const uint64_t rows = tall ? 9 : 5, cols = tall ? 5 : 9;
    Array x(ZERO_DTYPE_FP32, 45);
    for (uint64_t i = 0; i < 45; i++) x.set(i, 0);
    for (uint64_t i = 0; i < 5; i++) x.set(i * cols + (4 - i), diagonal[i]);
    for (int32_t t = 0; t < host_kernel_table_count(); t++) {
      const Array got = orthogonalised(host_kernel_table(t), x, rows, cols);
      for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t j = 0; j < cols; j++) {
          const bool there = i < 5 && j == 4 - i;
          const long double wanted = there ? polynomial(diagonal[i] / (norm + 1e-7L)) : 0;
          assert_true(std::fabs(static_cast<long double>(got.at(i * cols + j)) - wanted) < 2e-6L);
        }
      }
    }
  }
}

Exact times(const Exact& a, const Exact& b, uint64_t n, uint64_t k, uint64_t m) {
  Exact out(n * m, 0);
  for (uint64_t i = 0; i < n; i++) {
    for (uint64_t l = 0; l < k; l++) {
      for (uint64_t j = 0; j < m; j++) out[i * m + j] += a[i * k + l] * b[l * m + j];
    }
  }
  return out;
}

Exact turned(const Exact& a, uint64_t n, uint64_t m) {
  Exact out(n * m);
  for (uint64_t i = 0; i < n; i++) {
    for (uint64_t j = 0; j < m; j++) out[j * n + i] = a[i * m + j];
  }
  return out;
}

// Section 2.4 of the behaviour page, in long double.
Exact reference(const Array& from, uint64_t rows, uint64_t cols) {
  Exact x(rows * cols);
  long double squares = 0;
  for (uint64_t i = 0; i < x.size(); i++) {
    x[i] = static_cast<long double>(from.at(i));
    squares += x[i] * x[i];
  }
  for (long double& value : x) value /= std::sqrt(squares) + 1e-7L;
  const uint64_t n = std::min(rows, cols), k = std::max(rows, cols);
  if (rows > cols) x = turned(x, rows, cols);
  for (int step = 0; step < 5; step++) {
    const Exact gram = times(x, turned(x, n, k), n, k, n);
    Exact b = times(gram, gram, n, n, n);
    for (uint64_t i = 0; i < b.size(); i++) b[i] = 2.0315L * b[i] - 4.7750L * gram[i];
    const Exact moved = times(b, x, n, n, k);
    for (uint64_t i = 0; i < x.size(); i++) x[i] = 3.4445L * x[i] + moved[i];
  }
  return rows > cols ? turned(x, n, k) : x;
}

void any_matrix_is_close_to_the_formula(void**) {
  Random random(3);
  for (const Shape& shape : {Shape{20, 0, 50}, Shape{50, 0, 20}, Shape{33, 0, 33}, Shape{1, 0, 7},
                             Shape{7, 0, 1}, Shape{1, 0, 1}}) {
    Array x(ZERO_DTYPE_FP32, shape.rows * shape.cols, 1);
    fill(x, random);
    const Exact wanted = reference(x, shape.rows, shape.cols);
    const Array first = orthogonalised(scalar_kernels(), x, shape.rows, shape.cols);
    for (uint64_t i = 0; i < wanted.size(); i++) {
      assert_true(std::fabs(static_cast<long double>(first.at(i)) - wanted[i]) < 5e-6L);
    }
    for (const KernelTable* table : vector_tables()) {
      assert_same(table->name, first, orthogonalised(*table, x, shape.rows, shape.cols));
    }
    // The one that everybody calls is the machine's best.
    Array usual = x;
    Array workspace(ZERO_DTYPE_FP32, newton_schulz_workspace(shape.rows, shape.cols));
    newton_schulz(usual.floats(), shape.rows, shape.cols, workspace.floats());
    assert_same("newton_schulz", first, usual);
  }
}

void a_zero_matrix_stays_zero_and_a_broken_one_is_all_nan(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array x(ZERO_DTYPE_FP32, 12);
    for (uint64_t k = 0; k < 12; k++) x.set(k, 0);
    const Array zero = orthogonalised(host_kernel_table(i), x, 3, 4);
    for (uint64_t k = 0; k < 12; k++) assert_true(zero.at(k) == 0);
    x.set(5, INFINITY);
    const Array broken = orthogonalised(host_kernel_table(i), x, 3, 4);
    for (uint64_t k = 0; k < 12; k++) assert_true(std::isnan(broken.at(k)));
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_target_multiplies_as_the_scalar_kernel),
      cmocka_unit_test(a_product_is_the_sum_over_the_inner_index),
      cmocka_unit_test(a_symmetric_product_is_the_whole_product),
      cmocka_unit_test(a_diagonal_matrix_goes_through_the_polynomial),
      cmocka_unit_test(any_matrix_is_close_to_the_formula),
      cmocka_unit_test(a_zero_matrix_stays_zero_and_a_broken_one_is_all_nan),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

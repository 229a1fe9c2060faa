// The exact sum: the same limbs whatever the order and the split, the value that integer arithmetic
// gives, and a root that is the nearest double.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <numeric>
#include <string>

#include "kernel_cases.h"

namespace {

using namespace kernel_cases;

ExactSum empty_sum() {
  ExactSum sum;
  exact_sum_clear(&sum);
  return sum;
}

ExactSum normalised(ExactSum sum) {
  exact_sum_normalise(&sum);
  return sum;
}

void assert_equal(const ExactSum& a, const ExactSum& b) {
  const ExactSum x = normalised(a), y = normalised(b);
  assert_memory_equal(&x, &y, sizeof(ExactSum));
}

// A chunk's sum, written out from the page and not from the kernel: squares at strides 16, 8, 4,
// 2, 1.  The product of two fp32 has 48 bits, so long double holds it and rounds once in the sum.
double chunk_sum(const float* x) {
  double s[16];
  for (int i = 0; i < 16; i++) {
    const long double a = x[i], b = x[i + 16];
    const double square = static_cast<double>(a * a); // exact
    s[i] = std::fma(x[i + 16], static_cast<double>(b), square);
  }
  for (int stride = 8; stride >= 1; stride /= 2) {
    for (int i = 0; i < stride; i++) s[i] += s[i + stride];
  }
  return s[0];
}

std::vector<float> numbers(uint64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.finite();
  return values;
}

// An independent accumulator: 640 bits as a string of bytes, added with a carry, one byte a time.
struct SlowSum {
  uint8_t bytes[84] = {}; // little endian, units of 2^-320

  void add(double value) {
    int exponent;
    const double fraction = std::frexp(value, &exponent); // value = fraction * 2^exponent
    uint64_t mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
    int position = exponent - 53 + 320;
    for (; mantissa != 0; mantissa >>= 1, position++) {
      if ((mantissa & 1) != 0) add_bit(position);
    }
  }
  void add_bit(int position) {
    assert_true(position >= 0);
    int byte = position / 8;
    unsigned carry = 1u << (position % 8);
    while (carry != 0) {
      const unsigned total = bytes[byte] + carry;
      bytes[byte++] = static_cast<uint8_t>(total);
      carry = total >> 8;
    }
  }
  uint32_t word(int k) const {
    uint32_t value;
    std::memcpy(&value, bytes + 4 * k, 4);
    return value;
  }
};

void the_limbs_are_the_sum_by_integer_arithmetic(void**) {
  for (int32_t table = 0; table < host_kernel_table_count(); table++) {
    for (const uint64_t chunks : {1, 63, 64, 65, 300, 5000}) {
      const std::vector<float> values = numbers(static_cast<uint64_t>(chunks) * 32, 3);
      SlowSum slow;
      for (uint64_t i = 0; i < values.size(); i += 32) slow.add(chunk_sum(&values[i]));
      ExactSum sum = empty_sum();
      assert_true(host_kernel_table(table).norm(values.data(), ZERO_DTYPE_FP32, values.size(),
                                                &sum) == kNone);
      exact_sum_normalise(&sum);
      for (int k = 0; k < kLimbs; k++) assert_int_equal(sum.limb[k], slow.word(k));
    }
  }
}

void the_sum_does_not_depend_on_the_order(void**) {
  const std::vector<float> values = numbers(4000 * 32, 5);
  std::vector<double> sums;
  for (uint64_t i = 0; i < values.size(); i += 32) sums.push_back(chunk_sum(&values[i]));
  ExactSum forward = empty_sum(), shuffled = empty_sum(), sorted = empty_sum();
  for (const double sum : sums) exact_sum_add(&forward, sum);
  Random random(6);
  for (size_t i = sums.size(); i > 1; i--) std::swap(sums[i - 1], sums[random.below(i)]);
  for (const double sum : sums) exact_sum_add(&shuffled, sum);
  std::sort(sums.begin(), sums.end());
  for (const double sum : sums) exact_sum_add(&sorted, sum);
  assert_equal(forward, shuffled);
  assert_equal(forward, sorted);
  // The sums span so many magnitudes that a plain double does depend on it.
  const double up = std::accumulate(sums.begin(), sums.end(), 0.0);
  const double down = std::accumulate(sums.rbegin(), sums.rend(), 0.0);
  assert_true(up != down);
}

void the_norm_is_the_same_at_any_split(void**) {
  const uint64_t chunks = 9000;
  const std::vector<float> values = numbers(chunks * 32, 7);
  for (int32_t table = 0; table < host_kernel_table_count(); table++) {
    ExactSum whole = empty_sum();
    host_kernel_table(table).norm(values.data(), ZERO_DTYPE_FP32, values.size(), &whole);
    Random random(8);
    for (int trial = 0; trial < 20; trial++) {
      ExactSum parts = empty_sum();
      uint64_t at = 0;
      while (at < chunks) {
        const uint64_t most = random.below(2) != 0 ? 40 : 4000;
        const uint64_t n = std::min(chunks - at, 1 + random.below(most));
        ExactSum part = empty_sum();
        host_kernel_table(table).norm(&values[at * 32], ZERO_DTYPE_FP32, n * 32, &part);
        exact_sum_merge(&parts, part);
        at += n;
      }
      assert_equal(whole, parts);
    }
  }
}

// As ranks do it: limbs added as integers, in any grouping.
void normalised_limbs_add_as_integers(void**) {
  const std::vector<float> values = numbers(1024 * 32, 9);
  ExactSum whole = empty_sum(), added = empty_sum();
  scalar_kernels().norm(values.data(), ZERO_DTYPE_FP32, values.size(), &whole);
  for (int rank = 0; rank < 4; rank++) {
    ExactSum part = empty_sum();
    scalar_kernels().norm(&values[static_cast<size_t>(rank) * 256 * 32], ZERO_DTYPE_FP32, 256 * 32,
                          &part);
    exact_sum_normalise(&part);
    for (int k = 0; k < kLimbs; k++) {
      assert_true(part.limb[k] >= 0);
      if (k < kLimbs - 1) assert_true(part.limb[k] < INT64_C(1) << 32);
      added.limb[k] += part.limb[k];
    }
  }
  assert_equal(whole, added);
}

// The smallest and the largest chunk sums there are, many times over.
void the_ends_of_the_range_are_exact(void**) {
  constexpr uint64_t kChunks = 70;
  for (int32_t table = 0; table < host_kernel_table_count(); table++) {
    std::vector<float> values(kChunks * 32, float_of(1)); // 2^-149, squared 2^-298
    ExactSum sum = empty_sum();
    host_kernel_table(table).norm(values.data(), ZERO_DTYPE_FP32, values.size(), &sum);
    exact_sum_normalise(&sum);
    // 70 * 32 * 2^-298, in units of 2^-320
    assert_int_equal(sum.limb[0], (kChunks * 32 << 22) & UINT32_MAX);
    assert_int_equal(sum.limb[1], (kChunks * 32 << 22) >> 32);
    assert_true(exact_sum_root(sum) == std::sqrt(2240.0) * 0x1p-149);

    std::fill(values.begin(), values.end(), float_of(0x7f7fffff)); // (2 - 2^-23) 2^127
    sum = empty_sum();
    assert_true(host_kernel_table(table).norm(values.data(), ZERO_DTYPE_FP32, values.size(),
                                              &sum) == kNone);
    exact_sum_normalise(&sum);
    // 70 * 32 * (2^24 - 1)^2 * 2^208 in units of 2^-320: shifted by 528 = 16 limbs and 16 bits
    __extension__ typedef unsigned __int128 Wide;
    const Wide wanted = (Wide{kChunks * 32} * 0xffffff * 0xffffff) << 16;
    for (int k = 0; k < 4; k++) {
      assert_int_equal(sum.limb[16 + k], static_cast<uint32_t>(wanted >> (32 * k)));
    }
    for (int k = 0; k < 16; k++) assert_int_equal(sum.limb[k], 0);
  }
}

void adding_never_overflows_a_limb(void**) {
  // 2^52 + (2^52 - 1): every addition fills a limb to its last bit.
  ExactSum many = empty_sum(), one = empty_sum();
  const double full = 0x1.fffffffffffffp+0;
  exact_sum_add(&one, full);
  exact_sum_normalise(&one);
  many.limb[10] = INT64_C(0x1fffffffffffffff); // as after 2^29 additions
  ExactSum before = normalised(many);
  exact_sum_add(&many, full);
  for (int k = 0; k < kLimbs; k++) assert_true(many.limb[k] >= 0);
  for (int k = 0; k < kLimbs; k++) before.limb[k] += one.limb[k];
  assert_equal(many, before);
}

// root is the nearest double of sqrt(N): N lies between the squares of the midpoints to its
// neighbours.  Integers of 53 bits and less, so that 128 bits hold (2 root +- 1)^2 and 4 N.
void the_root_is_the_nearest_double(void**) {
  __extension__ typedef unsigned __int128 Wide;
  Random random(10);
  for (int trial = 0; trial < 200000; trial++) {
    // N of 105 or 106 bits has a root of 53 bits: midpoints are root +- 1/2.
    Wide n = (static_cast<Wide>(random.next()) << 42) | (random.next() >> 22);
    n |= static_cast<Wide>(1) << (trial % 2 == 0 ? 105 : 104);
    if (trial % 2 != 0) n &= (static_cast<Wide>(1) << 105) - 1;
    if (trial % 5 == 0) { // at and beside a midpoint: (r + 1/2)^2 = r^2 + r + 1/4
      const uint64_t r = (UINT64_C(1) << 52) | (random.next() >> 12);
      n = static_cast<Wide>(r) * r + r + (trial % 2);
    }
    ExactSum sum = empty_sum();
    for (int k = 0; k < 4; k++) { // limb 10 counts ones
      sum.limb[10 + k] = static_cast<int64_t>(static_cast<uint32_t>(n >> (32 * k)));
    }
    const double root = exact_sum_root(sum);
    const Wide r = static_cast<Wide>(root);
    assert_true(static_cast<double>(static_cast<uint64_t>(r)) == root);
    assert_true((2 * r - 1) * (2 * r - 1) <= 4 * n);
    assert_true(4 * n <= (2 * r + 1) * (2 * r + 1));
  }
}

void the_root_of_a_square_is_its_base_and_ties_go_to_even(void**) {
  assert_true(exact_sum_root(empty_sum()) == 0);
  ExactSum sum = empty_sum();
  exact_sum_add(&sum, 25.0);
  assert_true(exact_sum_root(sum) == 5.0);
  // (2^53 + 1)^2 = 2^106 + 2^54 + 1: its root lies midway between two doubles.
  sum = empty_sum();
  exact_sum_add(&sum, 0x1p106);
  exact_sum_add(&sum, 0x1p54);
  exact_sum_add(&sum, 1.0);
  assert_true(exact_sum_root(sum) == 0x1p53);
  // A unit more, however small, tips it.
  exact_sum_add(&sum, 0x1p-298);
  assert_true(exact_sum_root(sum) == 0x1p53 + 2);
  // (2^53 + 3)^2: midway again, and the even neighbour is above.
  sum = empty_sum();
  exact_sum_add(&sum, 0x1p106);
  exact_sum_add(&sum, 0x1p54 + 0x1p55);
  exact_sum_add(&sum, 9.0);
  assert_true(exact_sum_root(sum) == 0x1p53 + 4);
}

// Un-normalised limbs mean the same.
void the_root_and_the_merge_take_limbs_as_they_are(void**) {
  ExactSum sum = empty_sum();
  sum.limb[10] = INT64_C(9) << 32; // 9 * 2^32 ones
  assert_true(exact_sum_root(sum) == 3.0 * 65536);
  ExactSum total = empty_sum();
  total.limb[9] = INT64_C(7) << 32; // 7 ones
  exact_sum_merge(&total, sum);
  assert_int_equal(total.limb[9], 0);
  assert_int_equal(total.limb[10], 7);
  assert_int_equal(total.limb[11], 9);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_limbs_are_the_sum_by_integer_arithmetic),
      cmocka_unit_test(the_sum_does_not_depend_on_the_order),
      cmocka_unit_test(the_norm_is_the_same_at_any_split),
      cmocka_unit_test(normalised_limbs_add_as_integers),
      cmocka_unit_test(the_ends_of_the_range_are_exact),
      cmocka_unit_test(adding_never_overflows_a_limb),
      cmocka_unit_test(the_root_is_the_nearest_double),
      cmocka_unit_test(the_root_of_a_square_is_its_base_and_ties_go_to_even),
      cmocka_unit_test(the_root_and_the_merge_take_limbs_as_they_are),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

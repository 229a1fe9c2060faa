// The ordered reduction and the norm: what they compute, and that every vector target computes it
// bit by bit as the scalar kernel does.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string>

#include "kernel_cases.h"

namespace {

using namespace kernel_cases;

constexpr int kMostRanks = 9;

struct Case {
  zero_dtype from, to;
  int ranks;
  bool add, norm, in_place;
  uint64_t count, offset;
  float scale;
  Numbers numbers;

  std::string text() const {
    return std::to_string(from) + " to " + std::to_string(to) + ", ranks " + std::to_string(ranks) +
           (add ? ", add" : "") + (norm ? ", norm" : "") + (in_place ? ", in place" : "") +
           ", count " + std::to_string(count) + ", offset " + std::to_string(offset);
  }
};

struct Outcome {
  Array accumulate;
  uint64_t first_bad;
  ExactSum norm;
};

Outcome run(const KernelTable& table, const Case& c, const std::vector<Array>& inputs,
            const Array& before) {
  std::vector<Array> contributions;
  std::vector<const void*> pointers;
  for (const Array& input : inputs) {
    contributions.emplace_back(c.from, c.count, c.offset);
    if (c.count != 0) {
      std::memcpy(contributions.back().data(), input.data(), c.count * size_of(c.from));
    }
  }
  for (const Array& contribution : contributions) pointers.push_back(contribution.data());
  Outcome outcome = {Array(c.to, c.count, c.offset), 0, {}};
  if (c.count != 0) {
    std::memcpy(outcome.accumulate.data(), before.data(), c.count * size_of(c.to));
  }
  ReduceArguments a;
  a.contributions = pointers.data();
  a.ranks = c.ranks;
  a.contribution_dtype = c.from;
  a.scale = c.scale;
  const int aliased = c.ranks / 2;
  a.accumulate =
      c.in_place ? contributions[static_cast<size_t>(aliased)].data() : outcome.accumulate.data();
  a.accumulate_dtype = c.to;
  a.add = c.add;
  a.count = c.count;
  exact_sum_clear(&outcome.norm);
  outcome.norm.limb[3] = 5; // sums are added to what is there
  if (c.norm) a.norm = &outcome.norm;
  outcome.first_bad = table.reduce(a);
  exact_sum_normalise(&outcome.norm);
  for (int rank = 0; rank < c.ranks; rank++) {
    const Array& contribution = contributions[static_cast<size_t>(rank)];
    if (c.in_place && rank == aliased) {
      if (c.count != 0) {
        std::memcpy(outcome.accumulate.data(), contribution.data(), c.count * size_of(c.to));
      }
      if (!contribution.guards_hold()) fail_msg("%s: wrote outside", c.text().c_str());
    } else {
      assert_same(c.text().c_str(), inputs[static_cast<size_t>(rank)], contribution,
                  Nan::kSameBits);
    }
  }
  return outcome;
}

void compare_with(const Case& c, const std::vector<Array>& inputs, const Array& before) {
  const Outcome wanted = run(scalar_kernels(), c, inputs, before);
  for (const KernelTable* table : vector_tables()) {
    const Outcome got = run(*table, c, inputs, before);
    const std::string what = std::string(table->name) + ", " + c.text();
    assert_same(what.c_str(), wanted.accumulate, got.accumulate);
    if (wanted.first_bad != got.first_bad) {
      fail_msg("%s: first bad chunk %llu, expected %llu", what.c_str(),
               static_cast<unsigned long long>(got.first_bad),
               static_cast<unsigned long long>(wanted.first_bad));
    }
    if (std::memcmp(&wanted.norm, &got.norm, sizeof(ExactSum)) != 0) {
      fail_msg("%s: the norms differ", what.c_str());
    }
  }
}

void compare(const Case& c, uint64_t seed) {
  Random random(seed);
  std::vector<Array> inputs;
  for (int rank = 0; rank < c.ranks; rank++) {
    inputs.emplace_back(c.from, c.count);
    inputs.back().fill(random, c.numbers);
  }
  Array before(c.to, c.count);
  before.fill(random, c.numbers);
  compare_with(c, inputs, before);
}

// One rank or nine, in place or not, with and without norm: for every pair of dtypes.
void every_target_reduces_as_the_scalar_kernel(void**) {
  uint64_t seed = 1;
  for (const zero_dtype from : kDtypes) {
    for (const zero_dtype to : kDtypes) {
      for (int ranks = 1; ranks <= kMostRanks; ranks++) {
        for (int bits = 0; bits < 16; bits++) {
          Case c = {from,
                    to,
                    ranks,
                    (bits & 1) != 0,
                    (bits & 2) != 0,
                    (bits & 4) != 0,
                    0,
                    0,
                    0,
                    (bits & 8) != 0 ? Numbers::kAwkward : Numbers::kFinite};
          if (c.in_place && from != to) continue;
          c.scale = 1.0f / static_cast<float>(ranks);
          for (const uint64_t count : {0, 32, 96, 256, 288, 2048 + 32}) {
            c.count = static_cast<uint64_t>(count);
            c.offset = (seed % 3 == 0) ? seed % 16 : 0;
            compare(c, seed++);
          }
        }
      }
    }
  }
}

void every_count_up_to_200_reduces_as_the_scalar_kernel(void**) {
  for (const zero_dtype dtype : kDtypes) {
    for (uint64_t count = 0; count <= 200; count++) {
      Case c = {dtype, dtype, 2, false, true, false, count, count % 7, 0.5f, Numbers::kFinite};
      compare(c, count + 1000);
      c.add = true;
      c.ranks = 3;
      c.numbers = Numbers::kAwkward;
      compare(c, count + 2000);
    }
  }
}

// Large enough for stores past the caches, and for bins that are emptied more than once.
void large_counts_reduce_as_the_scalar_kernel(void**) {
  for (const zero_dtype from : kDtypes) {
    for (const zero_dtype to : kDtypes) {
      for (const uint64_t extra : {0, 32, 7}) {
        Case c = {from, to, 2, false, true, false, (1u << 19) + extra, 0, 0.5f, Numbers::kFinite};
        compare(c, extra + 1);
        c.norm = false;
        c.offset = extra == 7 ? 1 : 0;
        compare(c, extra + 2);
      }
    }
  }
}

void an_awkward_scale_reduces_as_the_scalar_kernel(void**) {
  for (const float scale : {0.0f, -0.0f, -1.0f, 0x1p-149f, 0x1p127f, 1.0f / 3, INFINITY, NAN}) {
    const Case c = {ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, 3, false, true, false, 300, 0,
                    scale,           Numbers::kFinite};
    compare(c, 7);
  }
}

// (1e8 + 1) - 1e8 is 0 in fp32; in any other order the 1 survives.
void the_reduction_adds_in_rank_order(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array a(ZERO_DTYPE_FP32, 32), b(ZERO_DTYPE_FP32, 32), c(ZERO_DTYPE_FP32, 32);
    Array out(ZERO_DTYPE_FP32, 32);
    for (uint64_t k = 0; k < 32; k++) {
      a.set(k, 1e8f);
      b.set(k, 1.0f);
      c.set(k, -1e8f);
    }
    const void* const in_order[3] = {a.data(), b.data(), c.data()};
    ReduceArguments arguments;
    arguments.contributions = in_order;
    arguments.ranks = 3;
    arguments.accumulate = out.data();
    arguments.count = 32;
    host_kernel_table(i).reduce(arguments);
    for (uint64_t k = 0; k < 32; k++) assert_true(out.at(k) == 0.0f);
    const void* const other_order[3] = {a.data(), c.data(), b.data()};
    arguments.contributions = other_order;
    host_kernel_table(i).reduce(arguments);
    for (uint64_t k = 0; k < 32; k++) assert_true(out.at(k) == 1.0f);
  }
}

void a_sum_of_negative_zeros_is_positive_zero(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array a(ZERO_DTYPE_FP32, 32), out(ZERO_DTYPE_FP32, 32);
    for (uint64_t k = 0; k < 32; k++) a.set(k, -0.0f);
    const void* const both[2] = {a.data(), a.data()};
    ReduceArguments arguments;
    arguments.contributions = both;
    arguments.ranks = 2;
    arguments.accumulate = out.data();
    arguments.count = 32;
    host_kernel_table(i).reduce(arguments);
    for (uint64_t k = 0; k < 32; k++) assert_int_equal(out.bits(k), 0);
  }
}

// bf16 has 8 bits: 256 + 1 is a tie that goes to 256, 258 + 1 one that goes to 260.  Summed in
// fp32 before the one rounding, 256 + 1 + 1 is 258.
void the_sum_is_rounded_once(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array a(ZERO_DTYPE_BF16, 32), b(ZERO_DTYPE_BF16, 32), out(ZERO_DTYPE_BF16, 32);
    for (uint64_t k = 0; k < 32; k++) {
      a.set(k, k < 16 ? 256.0f : 258.0f);
      b.set(k, 1.0f);
    }
    const void* const three[3] = {a.data(), b.data(), b.data()};
    ReduceArguments arguments;
    arguments.contributions = three;
    arguments.contribution_dtype = ZERO_DTYPE_BF16;
    arguments.accumulate = out.data();
    arguments.accumulate_dtype = ZERO_DTYPE_BF16;
    arguments.count = 32;
    arguments.ranks = 2;
    host_kernel_table(i).reduce(arguments);
    for (uint64_t k = 0; k < 32; k++) assert_true(out.at(k) == (k < 16 ? 256.0f : 260.0f));
    arguments.ranks = 3;
    host_kernel_table(i).reduce(arguments);
    for (uint64_t k = 0; k < 32; k++) assert_true(out.at(k) == (k < 16 ? 258.0f : 260.0f));
  }
}

void the_first_chunk_that_is_not_finite_is_named(void**) {
  constexpr uint64_t kChunks = 5000;
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    const KernelTable& table = host_kernel_table(i);
    for (const uint64_t chunk :
         {uint64_t{0}, uint64_t{7}, uint64_t{8}, uint64_t{2047}, uint64_t{2048}, kChunks - 1}) {
      for (const float bad : {INFINITY, -INFINITY, NAN, float_of(0xffc00000)}) {
        Array values(ZERO_DTYPE_FP32, kChunks * kChunk);
        for (uint64_t k = 0; k < values.count(); k++) values.set(k, 1.0f);
        values.set(chunk * kChunk + chunk % kChunk, bad);
        values.set(values.count() - 1, bad);
        ExactSum sum;
        exact_sum_clear(&sum);
        assert_true(table.norm(values.data(), ZERO_DTYPE_FP32, values.count(), &sum) == chunk);
        // The finite chunks are in the sum all the same: 32 ones each.
        exact_sum_normalise(&sum);
        const uint64_t finite = kChunks - (chunk == kChunks - 1 ? 1 : 2);
        assert_int_equal(sum.limb[10], finite * 32); // limb 10 counts ones
        for (int k = 0; k < kLimbs; k++) assert_true(k == 10 || sum.limb[k] == 0);
      }
    }
  }
}

void an_overflow_while_adding_is_found_though_the_inputs_are_finite(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array a(ZERO_DTYPE_FP32, 64), out(ZERO_DTYPE_FP32, 64);
    for (uint64_t k = 0; k < 64; k++) a.set(k, k == 40 ? 3e38f : 1.0f);
    const void* const both[2] = {a.data(), a.data()};
    ExactSum sum;
    exact_sum_clear(&sum);
    ReduceArguments arguments;
    arguments.contributions = both;
    arguments.ranks = 2;
    arguments.scale = 0.5f;
    arguments.accumulate = out.data();
    arguments.count = 64;
    assert_true(host_kernel_table(i).reduce(arguments) == kNone); // nobody asked
    arguments.norm = &sum;
    assert_true(host_kernel_table(i).reduce(arguments) == 1);
  }
}

void expect_the_scalar_kernels_norm(const Array& values, const std::string& what) {
  ExactSum wanted, got;
  exact_sum_clear(&wanted);
  const zero_dtype dtype = values.dtype();
  const uint64_t bad = scalar_kernels().norm(values.data(), dtype, values.count(), &wanted);
  exact_sum_normalise(&wanted);
  for (const KernelTable* table : vector_tables()) {
    exact_sum_clear(&got);
    const uint64_t found = table->norm(values.data(), dtype, values.count(), &got);
    exact_sum_normalise(&got);
    if (found != bad || std::memcmp(&wanted, &got, sizeof(ExactSum)) != 0) {
      fail_msg("%s, dtype %d, %s: another norm or chunk", table->name, static_cast<int>(dtype),
               what.c_str());
    }
  }
}

void the_norm_alone_is_that_of_the_scalar_kernel(void**) {
  for (const zero_dtype dtype : kDtypes) {
    for (const uint64_t count : {0, 1, 31, 32, 33, 250, 256, 2016, 2048, 2049, 70000, 200000}) {
      for (const Numbers numbers : {Numbers::kFinite, Numbers::kAwkward}) {
        Random random(count + 17);
        Array values(dtype, count, count % 5);
        values.fill(random, numbers);
        expect_the_scalar_kernels_norm(values, "count " + std::to_string(count));
      }
    }
  }
}

// A vector target may add squares of such values in another way than chunk by chunk: at every width
// at which it might begin or end to, and at both ends of the exponents.
void narrow_values_have_the_scalar_kernels_norm(void**) {
  uint64_t seed = 1;
  for (const zero_dtype dtype : {ZERO_DTYPE_BF16, ZERO_DTYPE_FP16}) {
    const int most = dtype == ZERO_DTYPE_BF16 ? 254 : 30;
    for (const int binades : {1, 2, 8, 11, 12, 13, 14, 15, 16, 17, 18, 20}) {
      for (int lowest = 1; lowest + binades - 1 <= most;
           lowest += most > 30 && lowest > 40 ? 9 : 1) {
        Random random(seed++);
        Array values(dtype, 256 * (1 + seed % 7) + 32 * (seed % 3), seed % 4);
        fill_narrow(random, lowest, binades, seed % 2 == 0, &values);
        const bool has_infinity = lowest + binades > most - 2;
        if (has_infinity) values.set(values.count() - 256 + seed % 200, INFINITY);
        expect_the_scalar_kernels_norm(values, "from exponent " + std::to_string(lowest) + ", " +
                                                   std::to_string(binades) + " binades");
      }
    }
  }
}

// 31 squares near 2^50 and one 1 are above 2^53: as a chunk they are rounded, however few of them a
// lane of a vector has.  What came before them suggests that they need not be.
void a_chunk_of_narrow_values_is_rounded_where_its_sum_is_long(void**) {
  constexpr uint32_t kLowest = 100, kAbove = kLowest + 17;
  Array values(ZERO_DTYPE_BF16, 512);
  for (uint64_t i = 0; i < values.count(); i++) values.set_bits(i, 0);
  values.set_bits(0, kLowest << 7 | 1);
  values.set_bits(1, (kLowest + 14) << 7);
  for (uint64_t i = 256; i < 256 + 31; i++) values.set_bits(i, kAbove << 7 | 0x7f);
  values.set_bits(256 + 31, kLowest << 7 | 1);
  expect_the_scalar_kernels_norm(values, "a long sum");
}

// As the gradients of a run are: many blocks of one magnitude, then of a larger and a smaller one.
void narrow_values_reduce_as_the_scalar_kernel(void**) {
  constexpr uint64_t kCount = 70000; // more than a group of 2,048 chunks
  for (const zero_dtype dtype : {ZERO_DTYPE_BF16, ZERO_DTYPE_FP16}) {
    for (const int lowest :
         {dtype == ZERO_DTYPE_BF16 ? 105 : 4, dtype == ZERO_DTYPE_BF16 ? 120 : 12}) {
      for (const bool add : {false, true}) {
        Random random(static_cast<uint64_t>(lowest));
        std::vector<Array> inputs;
        for (int rank = 0; rank < 2; rank++) {
          inputs.emplace_back(dtype, kCount);
          fill_narrow(random, lowest, 12, rank == 0, &inputs.back());
          for (uint64_t i = kCount / 2; i < kCount / 2 + 600; i++) inputs.back().set_bits(i, 0);
          for (uint64_t i = kCount / 4; i < kCount / 4 + 600; i++) {
            inputs.back().set(i, 8 * inputs.back().at(i));
          }
        }
        Array before(dtype, kCount);
        fill_narrow(random, lowest, 12, false, &before);
        const Case c = {dtype, dtype, 2, add, true, false, kCount, 0, 0.5f, Numbers::kFinite};
        compare_with(c, inputs, before);
      }
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_target_reduces_as_the_scalar_kernel),
      cmocka_unit_test(every_count_up_to_200_reduces_as_the_scalar_kernel),
      cmocka_unit_test(large_counts_reduce_as_the_scalar_kernel),
      cmocka_unit_test(an_awkward_scale_reduces_as_the_scalar_kernel),
      cmocka_unit_test(the_reduction_adds_in_rank_order),
      cmocka_unit_test(a_sum_of_negative_zeros_is_positive_zero),
      cmocka_unit_test(the_sum_is_rounded_once),
      cmocka_unit_test(the_first_chunk_that_is_not_finite_is_named),
      cmocka_unit_test(an_overflow_while_adding_is_found_though_the_inputs_are_finite),
      cmocka_unit_test(the_norm_alone_is_that_of_the_scalar_kernel),
      cmocka_unit_test(narrow_values_have_the_scalar_kernels_norm),
      cmocka_unit_test(a_chunk_of_narrow_values_is_rounded_where_its_sum_is_long),
      cmocka_unit_test(narrow_values_reduce_as_the_scalar_kernel),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

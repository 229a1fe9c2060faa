// The ordered reduction, the norm and the exact sum on the device, bit by bit as the host's.
// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_cases.h"

namespace {

using namespace cuda_cases;

constexpr int32_t kMostRanks = 9;

struct Case {
  zero_dtype from, to;
  int32_t ranks;
  bool add, norm, in_place;
  uint64_t count, offset;
  uint32_t most_blocks;
  float scale;
  Numbers numbers;

  std::string text() const {
    return std::to_string(from) + " to " + std::to_string(to) + ", ranks " + std::to_string(ranks) +
           (add ? ", add" : "") + (norm ? ", norm" : "") + (in_place ? ", in place" : "") +
           ", count " + std::to_string(count) + ", offset " + std::to_string(offset) + ", blocks " +
           std::to_string(most_blocks);
  }
};

ExactSum some_sum() {
  ExactSum sum;
  exact_sum_clear(&sum);
  sum.limb[3] = 5; // sums are added to what is there
  return sum;
}

void assert_same_sum(const std::string& what, ExactSum wanted, ExactSum got) {
  exact_sum_normalise(&wanted);
  exact_sum_normalise(&got);
  for (int k = 0; k < kLimbs; k++) {
    if (wanted.limb[k] == got.limb[k]) continue;
    fail_msg("%s: limb %d is %lld, expected %lld", what.c_str(), k,
             static_cast<long long>(got.limb[k]), static_cast<long long>(wanted.limb[k]));
  }
}

void compare(const Case& c, uint64_t seed) {
  std::vector<Array> inputs;
  for (int32_t rank = 0; rank < c.ranks; rank++) {
    inputs.push_back(
        random_array(c.from, c.count, c.numbers, seed * 100 + static_cast<uint64_t>(rank)));
  }
  Array accumulate = random_array(c.to, c.count, c.numbers, seed * 100 + 50);
  const auto aliased = static_cast<size_t>(c.ranks / 2);

  std::vector<DeviceArray*> devices;
  std::vector<const void*> pointers;
  for (const Array& input : inputs) {
    devices.push_back(new DeviceArray(input, c.offset));
    pointers.push_back(devices.back()->data());
  }
  const DeviceArray device_accumulate(accumulate, c.offset);
  const DeviceValues<const void*> device_pointers(pointers);
  const DeviceValues<ExactSum> device_sum(some_sum());
  const DeviceValues<uint64_t> first_bad(kNone);
  CudaReduce r;
  r.contributions = device_pointers.data();
  r.ranks = c.ranks;
  r.contribution_dtype = c.from;
  r.accumulate = c.in_place ? devices[aliased]->data() : device_accumulate.data();
  r.accumulate_dtype = c.to;
  r.scale = c.scale;
  r.add = c.add ? 1 : 0;
  r.most_blocks = c.most_blocks;
  r.count = c.count;
  if (c.norm) r.norm = device_sum.data();
  if (c.norm) r.first_bad = first_bad.data();
  succeeded(table().reduce(&r, nullptr));

  std::vector<const void*> host_pointers;
  for (const Array& input : inputs) host_pointers.push_back(input.data());
  ExactSum sum = some_sum();
  ReduceArguments a;
  a.contributions = host_pointers.data();
  a.ranks = c.ranks;
  a.contribution_dtype = c.from;
  a.scale = c.scale;
  a.accumulate = c.in_place ? inputs[aliased].data() : accumulate.data();
  a.accumulate_dtype = c.to;
  a.add = c.add;
  a.count = c.count;
  if (c.norm) a.norm = &sum;
  const uint64_t bad = scalar_kernels().reduce(a);

  const std::string what = c.text();
  device_accumulate.assert_is(what, accumulate);
  for (size_t rank = 0; rank < devices.size(); rank++) {
    const bool is_result = c.in_place && rank == aliased;
    devices[rank]->assert_is(what + ", a contribution", inputs[rank],
                             is_result ? Nan::kAny : Nan::kSameBits);
    delete devices[rank];
  }
  assert_same_sum(what, sum, device_sum.back()[0]);
  assert_int_equal(first_bad.back()[0], bad);
}

void every_pair_of_dtypes_reduces_as_the_host_does(void**) {
  uint64_t seed = 1, number = 0;
  for (const zero_dtype from : kDtypes) {
    for (const zero_dtype to : kDtypes) {
      for (int32_t ranks = 1; ranks <= kMostRanks; ranks += ranks < 4 ? 1 : 5) {
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
                    0,
                    (bits & 8) != 0 ? Numbers::kAwkward : Numbers::kFinite};
          if (c.in_place && from != to) continue;
          if (number++ % every(29) != 0) continue;
          c.scale = 1.0f / static_cast<float>(ranks);
          c.count = 1 + seed * 37 % 400;
          c.offset = seed % 3 == 0 ? seed % 8 : 0;
          c.most_blocks = seed % 2 == 0 ? 1 : 0;
          compare(c, seed++);
        }
      }
    }
  }
}

// More than a block does in one turn, by one block, two, and as many as there are turns.
void the_number_of_blocks_changes_nothing(void**) {
  for (const uint32_t most_blocks : {1u, 2u, 0u}) {
    for (const uint64_t count : {uint64_t{2048}, uint64_t{3 * 2048 + 77}}) {
      if (kFewCases && most_blocks == 1) continue;
      compare({ZERO_DTYPE_BF16, ZERO_DTYPE_FP32, 2, false, true, false, count, 0, most_blocks, 0.5f,
               Numbers::kFinite},
              7);
      compare({ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, 3, true, true, true, count, 0, most_blocks, 0.25f,
               Numbers::kAwkward},
              8);
    }
  }
}

void an_awkward_scale_reduces_as_the_host_does(void**) {
  for (const float scale : {0.0f, -0.0f, -1.0f, 0x1p-149f, 0x1p127f, 1.0f / 3, INFINITY, NAN}) {
    compare({ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, 3, false, true, false, 300, 0, 0, scale,
             Numbers::kFinite},
            9);
  }
}

void nothing_to_reduce_is_nothing(void**) {
  compare(
      {ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, 2, false, true, false, 0, 0, 0, 0.5f, Numbers::kFinite},
      10);
}

// (1e8 + 1) - 1e8 is 0 in fp32; in any other order the 1 survives.
void contributions_are_added_in_rank_order(void**) {
  Array inputs[] = {Array(ZERO_DTYPE_FP32, 64), Array(ZERO_DTYPE_FP32, 64),
                    Array(ZERO_DTYPE_FP32, 64)};
  Array result(ZERO_DTYPE_FP32, 64), zeros(ZERO_DTYPE_FP32, 64);
  for (uint64_t i = 0; i < 64; i++) {
    inputs[0].set(i, 1e8f);
    inputs[1].set(i, 1);
    inputs[2].set(i, -1e8f);
    zeros.set(i, 0);
    result.set(i, 7);
  }
  const DeviceArray a(inputs[0]), b(inputs[1]), c(inputs[2]), to(result);
  const DeviceValues<const void*> pointers(std::vector<const void*>{a.data(), b.data(), c.data()});
  CudaReduce r;
  r.contributions = pointers.data();
  r.ranks = 3;
  r.accumulate = to.data();
  r.count = 64;
  succeeded(table().reduce(&r, nullptr));
  to.assert_is("the sum", zeros);
}

void norm_of(const Array& values, uint64_t offset, uint32_t most_blocks) {
  const DeviceArray device(values, offset);
  const DeviceValues<ExactSum> device_sum(some_sum());
  const DeviceValues<uint64_t> first_bad(kNone);
  CudaNorm n;
  n.values = device.data();
  n.dtype = values.dtype();
  n.most_blocks = most_blocks;
  n.count = values.count();
  n.norm = device_sum.data();
  n.first_bad = first_bad.data();
  succeeded(table().norm(&n, nullptr));
  ExactSum sum = some_sum();
  const uint64_t bad = scalar_kernels().norm(values.data(), values.dtype(), values.count(), &sum);
  const std::string what =
      "norm of " + std::to_string(values.count()) + " of dtype " + std::to_string(values.dtype());
  assert_same_sum(what, sum, device_sum.back()[0]);
  assert_int_equal(first_bad.back()[0], bad);
}

void the_norm_is_the_hosts(void**) {
  uint64_t seed = 1;
  for (const zero_dtype dtype : kDtypes) {
    for (const Numbers numbers : {Numbers::kFinite, Numbers::kAwkward}) {
      for (const uint64_t count : {1, 31, 32, 33, 500, 2048 + 40, 3 * 2048 + 5}) {
        if (kFewCases && count > 500) continue;
        norm_of(random_array(dtype, count, numbers, seed), seed % 2, seed % 3 == 0 ? 1 : 0);
        seed++;
      }
    }
  }
}

// Sums from one end of fp32 to the other: no window holds both, and the lowest limb is met.
void the_norm_of_every_magnitude_is_exact(void**) {
  Array values(ZERO_DTYPE_FP32, 32 * 280);
  for (uint64_t i = 0; i < values.count(); i++) values.set(i, 0);
  for (int exponent = -149; exponent < 128; exponent++) {
    const auto chunk = static_cast<uint64_t>((exponent + 149) * 32);
    values.set(chunk + 5, std::ldexp(1.0f, exponent));
    if (exponent > -120) values.set(chunk + 20, std::ldexp(1.99f, exponent));
  }
  norm_of(values, 0, 1);
  norm_of(values, 0, 0);
}

// A thread's sum of 128 bits is emptied before it can overflow: first chunks that put its window so
// low that those after them lie at its upper end, and more of them than it could hold.
void many_chunks_of_one_thread_do_not_overflow(void**) {
  if (kFewCases || kGuardBytes == 0) return; // numbers, not accesses
  constexpr uint64_t kTurns = 5700, kTurn = 2048;
  Array values(ZERO_DTYPE_FP32, kTurns * kTurn);
  for (uint64_t i = 0; i < values.count(); i++) values.set(i, i < kTurn ? 1.0f : 978000.0f);
  norm_of(values, 0, 1);
}

void the_first_chunk_that_is_not_finite_is_named(void**) {
  for (const uint64_t at : {0, 31, 32, 2047, 2048, 4100}) {
    Array values = random_array(ZERO_DTYPE_FP32, 4200, Numbers::kFinite, 4);
    values.set(at, at % 2 == 0 ? INFINITY : NAN);
    values.set(4190, -INFINITY);
    norm_of(values, 0, 0);
    norm_of(values, 0, 1);
  }
}

// Norms of single parameters: tiles add to the sum of theirs, however they are cut.
void norms_of_tiles_go_to_their_parameters(void**) {
  for (const zero_dtype dtype : kDtypes) {
    const Array values = random_array(dtype, 96 * 4 + 17, Numbers::kFinite, 5);
    const DeviceArray device(values);
    std::vector<CudaTile> tiles = cut(values.count(), 96, 3);
    tiles[1].value = static_cast<char*>(device.data()) + 96 * size_of(dtype);
    const DeviceValues<CudaTile> device_tiles(tiles);
    const DeviceValues<ExactSum> sums(std::vector<ExactSum>(3, some_sum()));
    const DeviceValues<uint64_t> first_bad(std::vector<uint64_t>(3, 7));
    succeeded(table().norm_clear(sums.data(), first_bad.data(), 3, nullptr));
    CudaNorm n;
    n.values = device.data();
    n.dtype = dtype;
    n.tiles = device_tiles.data();
    n.tile_count = static_cast<uint32_t>(tiles.size());
    n.norm = sums.data();
    succeeded(table().norm(&n, nullptr));
    std::vector<ExactSum> wanted(3);
    for (ExactSum& sum : wanted) exact_sum_clear(&sum);
    for (const CudaTile& tile : tiles) {
      const auto* const from = static_cast<const char*>(values.data()) + tile.at * size_of(dtype);
      scalar_kernels().norm(from, dtype, tile.count, &wanted[static_cast<size_t>(tile.param)]);
    }
    for (size_t p = 0; p < 3; p++) {
      assert_same_sum("parameter " + std::to_string(p), wanted[p], sums.back()[p]);
      assert_true(first_bad.back()[p] == kNone);
    }
  }
}

} // namespace

int main() {
  if (!belongs_to_the_tier()) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_pair_of_dtypes_reduces_as_the_host_does),
      cmocka_unit_test(the_number_of_blocks_changes_nothing),
      cmocka_unit_test(an_awkward_scale_reduces_as_the_host_does),
      cmocka_unit_test(nothing_to_reduce_is_nothing),
      cmocka_unit_test(contributions_are_added_in_rank_order),
      cmocka_unit_test(the_norm_is_the_hosts),
      cmocka_unit_test(the_norm_of_every_magnitude_is_exact),
      cmocka_unit_test(many_chunks_of_one_thread_do_not_overflow),
      cmocka_unit_test(the_first_chunk_that_is_not_finite_is_named),
      cmocka_unit_test(norms_of_tiles_go_to_their_parameters),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Report R044: the result does not depend on tuning knobs.
// SPDX-License-Identifier: BSD-3-Clause
#include "report_rank.h"

using namespace reports;

namespace {

constexpr int32_t kRanks = 4;
constexpr int32_t kSteps = 20;

// The shapes of the corpus' awkward-toy; in the quick tier the two large ones are divided.
struct Shape {
  const char* name;
  std::vector<int64_t> shape;
  zero_param_role role;
  zero_param_id tied_to;
};
std::vector<Shape> awkward_shapes() {
  const bool full = ranks::full_tier();
  return {{"temperature", {}, ZERO_PARAM_TRAINED, -1},
          {"one", {1}, ZERO_PARAM_TRAINED, -1},
          {"seven", {7}, ZERO_PARAM_TRAINED, -1},
          {"empty.weight", {0, 8}, ZERO_PARAM_TRAINED, -1},
          {"hole", {4, 0}, ZERO_PARAM_TRAINED, -1},
          {"prime", {full ? 104729 : 1009}, ZERO_PARAM_TRAINED, -1},
          {"big", {full ? 131072 : 2048}, ZERO_PARAM_TRAINED, -1},
          {"frozen_scalar", {}, ZERO_PARAM_FROZEN, -1},
          {"head", {7}, ZERO_PARAM_TRAINED, 2},
          {"half_vec", {33}, ZERO_PARAM_TRAINED, -1},
          {"bf_vec", {17}, ZERO_PARAM_TRAINED, -1},
          {"mask", {3}, ZERO_PARAM_BUFFER, -1}};
}

float wave(int32_t step, int32_t rank, size_t param, size_t element) {
  const auto mixed =
      static_cast<uint32_t>(step * 7919 + rank * 104729 + static_cast<int32_t>(param) * 31337) +
      static_cast<uint32_t>(element) * 2654435761u;
  return static_cast<float>(static_cast<int32_t>((mixed ^ (mixed >> 15)) * 2246822519u)) / 3e10f;
}

Floats train(const Setup& setup) {
  const std::vector<Shape> shapes = awkward_shapes();
  std::vector<size_t> counts;
  size_t total = 0;
  for (const Shape& shape : shapes) {
    size_t count = 1;
    for (const int64_t extent : shape.shape) count *= static_cast<size_t>(extent);
    counts.push_back(count);
    total += count;
  }
  ranks::SharedArray<float> result(total);
  at_ranks(kRanks, setup, [&](Rank& self, int32_t rank) {
    for (size_t p = 0; p < shapes.size(); ++p) {
      zero_param_options options = Rank::options();
      options.role = shapes[p].role;
      options.tied_to = shapes[p].tied_to;
      Floats values;
      for (size_t i = 0; i < counts[p]; ++i) values.push_back(wave(-1, 0, p, i));
      self.add(shapes[p].name, shapes[p].shape, values, options);
    }
    self.shard();
    for (int32_t step = 0; step < kSteps; ++step) {
      for (size_t p = shapes.size(); p-- > 0;) {
        if (shapes[p].role != ZERO_PARAM_TRAINED) continue;
        Floats gradient;
        for (size_t i = 0; i < counts[p]; ++i) gradient.push_back(wave(step, rank, p, i));
        const auto param = static_cast<zero_param_id>(p);
        zero_buffer whole;
        OK(zero_params_acquire(self.runtime, &param, 1, nullptr, &whole));
        self.give(param, gradient);
        OK(zero_params_release(self.runtime, &param, 1, /*keep_changes=*/0, nullptr));
      }
      self.step();
    }
    size_t at = 0;
    for (size_t p = 0; p < shapes.size(); ++p) {
      const Floats values = self.get(static_cast<zero_param_id>(p));
      if (rank == static_cast<int32_t>(p) % kRanks) {
        std::copy(values.begin(), values.end(), result.data() + at);
      }
      at += counts[p];
    }
    self.close();
  });
  return Floats(result.data(), result.data() + total);
}

void r044_tuning_knobs_do_not_change_the_bits(void**) {
  Setup setup;
  setup.clipping = 0.5;
  setup.optimizer = R"({"type": "Adam", "params": {"lr": 0.01}})";
  Floats first;
  int32_t runs = 0;
  for (setup.stage = 1; setup.stage <= 3; ++setup.stage) {
    for (int32_t knobs = 0; knobs < 16; ++knobs) {
      // Quick: of each stage six, in which every pair of settings comes; full: all, and again.
      const bool pairwise = knobs == 0 || knobs == 3 || knobs == 5 || knobs == 6 || knobs == 15 ||
                            knobs == 9 + setup.stage % 2;
      if (!ranks::full_tier() && !pairwise) continue;
      const auto on = [&](int32_t bit) { return (knobs >> bit & 1) != 0 ? "true" : "false"; };
      setup.zero = std::string(", \"overlap_comm\": ") + on(0) +
                   ", \"contiguous_gradients\": " + on(1) + ", \"reduce_scatter\": " + on(2) +
                   ", \"reduce_bucket_size\": " + ((knobs & 8) != 0 ? "64" : "1000000");
      for (int32_t again = 0; again < (ranks::full_tier() ? 20 : 1); ++again) {
        const Floats values = train(setup);
        if (first.empty()) first = values;
        assert_true(same(values, first));
        ++runs;
      }
    }
  }
  assert_true(runs >= 18);
  assert_true(first[1] != wave(-1, 0, 1, 0)); // it trained
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r044_tuning_knobs_do_not_change_the_bits),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

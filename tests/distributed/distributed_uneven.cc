// Uneven work: ranks that bring more, less or nothing.
// SPDX-License-Identifier: BSD-3-Clause
#include "report_rank.h"

using namespace reports;

namespace {

// Not one gradient call on rank 1, in any of three steps.  At stage 3 everything is reduced in the
// step: a rank that acquires and has no gradient says so by zero_grads_close, see below.
void a_rank_without_data_counts_as_zeros(void**) {
  for (const int32_t ranks : {2, 4}) {
    for (const char* overlap : {"true", "false"}) {
      Setup setup;
      setup.zero = std::string(", \"overlap_comm\": ") + overlap + ", \"reduce_bucket_size\": 64";
      setup.top = R"(, "libzero": {"open_buckets": "all"})";
      for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
        at_ranks(ranks, setup, [&](Rank& self, int32_t rank) {
          std::vector<zero_param_id> params;
          for (int p = 0; p < 5; ++p) {
            params.push_back(self.add("p" + std::to_string(p), Floats(70, 0)));
          }
          self.shard();
          for (int32_t step = 1; step <= 3; ++step) {
            for (size_t p = params.size(); p-- > 0 && rank != 1;) {
              self.give(params[p], Floats(70, static_cast<float>(ranks)));
            }
            const zero_step_info info = self.step();
            EXPECT(near(info.grad_norm, (ranks - 1) * std::sqrt(350.0), 1e-15));
            EXPECT(info.step == step);
            for (const zero_param_id p : params) {
              EXPECT(same(self.get(p), Floats(70, static_cast<float>(-step * (ranks - 1)))));
            }
          }
          self.close();
        });
      }
    }
  }
}

// The gradient of one token: exactly summable in any order.
float token_gradient(int32_t step, int32_t token, size_t element) {
  const auto mixed = static_cast<uint32_t>(step * 7919 + token * 104729) +
                     static_cast<uint32_t>(element) * 2654435761u;
  return static_cast<float>(static_cast<int32_t>(mixed >> 20) - 2048) / 64;
}

struct Share {
  int32_t begin, end; // tokens of a rank
};

Floats train_on_tokens(int32_t stage, const std::vector<Share>& shares) {
  constexpr size_t kElements = 100;
  Setup setup;
  setup.stage = stage;
  setup.clipping = 1;
  setup.optimizer = R"({"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.1}})";
  ranks::SharedArray<float> result(kElements + 5);
  at_ranks(static_cast<int32_t>(shares.size()), setup, [&](Rank& self, int32_t rank) {
    const Share share = shares[static_cast<size_t>(rank)];
    const zero_param_id w = self.add("w", Floats(kElements, 1));
    self.shard();
    for (int32_t step = 0; step < 5; ++step) {
      Floats sums(kElements, 0);
      for (int32_t token = share.begin; token < share.end; ++token) {
        for (size_t i = 0; i < kElements; ++i) sums[i] += token_gradient(step, token, i);
      }
      if (share.begin < share.end) self.give(w, sums);
      const zero_step_info info = self.step(40);
      EXPECT(info.clip_scale < 1);
      if (rank == 0)
        result[kElements + static_cast<size_t>(step)] = static_cast<float>(info.grad_norm);
    }
    const Floats values = self.get(w);
    if (rank == 0) std::copy(values.begin(), values.end(), result.data());
    self.close();
  });
  return Floats(result.data(), result.data() + result.size());
}

void tokens_10_and_30_equal_one_rank_over_40(void**) {
  const Floats alone = train_on_tokens(0, {{0, 40}});
  assert_true(alone[0] != 1 && alone[100] > 1);
  for (int32_t stage = 0; stage <= 3; ++stage) {
    assert_true(same(train_on_tokens(stage, {{0, 40}}), alone));
    assert_true(same(train_on_tokens(stage, {{0, 10}, {10, 40}}), alone));
    assert_true(same(train_on_tokens(stage, {{0, 30}, {30, 40}}), alone));
    assert_true(same(train_on_tokens(stage, {{0, 5}, {5, 5}, {5, 39}, {39, 40}}), alone));
  }
}

void a_window_of_2_of_4_micro_batches_divides_by_2(void**) {
  Setup setup;
  setup.top = R"(, "gradient_accumulation_steps": 4)";
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    for (const bool said : {false, true}) {
      at_ranks(2, setup, [&](Rank& self, int32_t rank) {
        const zero_param_id w = self.add("w", Floats(50, 0));
        self.shard();
        for (int32_t step = 1; step <= 2; ++step) {
          for (int32_t micro = 0; micro < 2; ++micro) {
            if (said) OK(zero_micro_begin(self.runtime, micro == 1));
            self.give(w, Floats(50, static_cast<float>(1 + rank + 4 * micro)));
            self.micro_end();
          }
          // Ranks bring 1 + 5 and 2 + 6: the mean of four.
          EXPECT(near(self.step().grad_norm, 3.5 * std::sqrt(50.0), 1e-15));
          EXPECT(same(self.get(w), Floats(50, -3.5f * static_cast<float>(step))));
        }
        self.close();
      });
    }
  }
}

// In a step with two micro-batches, the unit is missing on rank 1 in the second.
void a_unit_closed_on_one_rank_gets_the_others_gradient(void**) {
  Setup setup;
  setup.top = R"(, "gradient_accumulation_steps": 2)";
  for (const char* overlap : {"true", "false"}) {
    setup.zero = std::string(", \"reduce_bucket_size\": 96, \"overlap_comm\": ") + overlap;
    for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
      at_ranks(2, setup, [](Rank& self, int32_t rank) {
        std::vector<std::vector<zero_param_id>> units;
        for (int32_t unit = 0; unit < 3; ++unit) {
          units.emplace_back();
          for (int32_t k = 0; k < 2; ++k) {
            zero_param_options options = Rank::options();
            options.unit = unit;
            units.back().push_back(self.add("u" + std::to_string(unit) + "." + std::to_string(k),
                                            {40}, Floats(40, 0), options));
          }
        }
        self.shard();
        for (int32_t micro = 0; micro < 2; ++micro) {
          for (size_t u = units.size(); u-- > 0;) {
            zero_buffer buffers[2];
            OK(zero_params_acquire(self.runtime, units[u].data(), 2, nullptr, buffers));
            if (micro == 1 && u == 1 && rank == 1) {
              OK(zero_grads_close(self.runtime, units[u].data(), 2, nullptr));
            } else {
              for (const zero_param_id p : units[u]) self.give(p, Floats(40, 4));
            }
            OK(zero_params_release(self.runtime, units[u].data(), 2, 0, nullptr));
          }
          self.micro_end();
        }
        self.step();
        for (size_t u = 0; u < units.size(); ++u) {
          for (const zero_param_id p : units[u]) {
            EXPECT(same(self.get(p), Floats(40, u == 1 ? -3 : -4)));
          }
        }
        self.close();
      });
    }
  }
}

void changes_kept_on_release_are_every_rank_s_value(void**) {
  Setup setup;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t) {
      const zero_param_id before = self.add("before", Floats(33, 5));
      const zero_param_id w = self.add("w", Floats(71, 1));
      self.shard();
      zero_buffer buffer;
      OK(zero_params_acquire(self.runtime, &w, 1, nullptr, &buffer));
      Floats written;
      for (int i = 0; i < 71; ++i) written.push_back(static_cast<float>(100 + i));
      std::copy(written.begin(), written.end(), static_cast<float*>(buffer.data));
      OK(zero_params_release(self.runtime, &w, 1, /*keep_changes=*/1, nullptr));
      EXPECT(same(self.get(w), written));
      EXPECT(same(self.get(w, ZERO_PART_MASTER), written));
      EXPECT(same(self.get(before), Floats(33, 5)));
      self.give(w, Floats(71, 1));
      self.step();
      for (float& value : written) value -= 1;
      EXPECT(same(self.get(w), written));
      OK(zero_params_acquire(self.runtime, &w, 1, nullptr, &buffer));
      EXPECT(std::memcmp(buffer.data, written.data(), 71 * 4) == 0);
      OK(zero_params_release(self.runtime, &w, 1, 0, nullptr));
      self.close();
    });
  }
}

// Ranks that come to a step with different divisors have different models from then on.
void different_divisors_are_noticed_before_anything_is_updated(void**) {
  Setup setup;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t rank) {
      const zero_param_id w = self.add("w", Floats(4, 0));
      self.shard();
      self.give(w, Floats(4, 1));
      zero_step_options options;
      zero_step_options_init(&options, sizeof(options));
      options.gradient_divisor = 40 + rank;
      EXPECT(zero_step(self.runtime, &options, nullptr, nullptr) == ZERO_ERR_COMM_MISMATCH);
      EXPECT(ranks::last_error().find("rank 1") != std::string::npos);
      EXPECT(zero_step(self.runtime, nullptr, nullptr, nullptr) == ZERO_ERR_FAILED);
    });
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_without_data_counts_as_zeros),
      cmocka_unit_test(tokens_10_and_30_equal_one_rank_over_40),
      cmocka_unit_test(a_window_of_2_of_4_micro_batches_divides_by_2),
      cmocka_unit_test(a_unit_closed_on_one_rank_gets_the_others_gradient),
      cmocka_unit_test(changes_kept_on_release_are_every_rank_s_value),
      cmocka_unit_test(different_divisors_are_noticed_before_anything_is_updated),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// The loss scale on several ranks at every stage: reports of users of other ZeRO implementations.
// SPDX-License-Identifier: BSD-3-Clause
#include "precision_rank.h"

using namespace precision;

namespace {

constexpr float kInf = INFINITY;

void r001_the_first_overflow_does_not_lower_the_scale(void**) {
  for (const int32_t hysteresis : {2, 1}) {
    Setup setup;
    setup.section = ", \"initial_scale_power\": 16, \"loss_scale_window\": 1000, \"hysteresis\": " +
                    std::to_string(hysteresis);
    at_all_stages({2, 3}, setup, [&](Rank& self) {
      const zero_param_id w = self.add("w", Floats(5, 1));
      self.shard();
      double expected = hysteresis == 2 ? 65536 : 32768;
      for (int32_t step = 0; step < 3; ++step) {
        Floats gradient(5, 1);
        if (self.rank == step % 2) gradient[2] = kInf;
        self.give(w, gradient);
        const zero_step_info info = self.step();
        EXPECT(info.skipped == 1 && info.skipped_total == step + 1 && info.step == 0);
        EXPECT(info.loss_scale == expected);
        expected /= 2;
      }
      EXPECT(same(self.master(w), Floats(5, 1)));
      self.close();
    });
  }
}

void r002_consecutive_hysteresis_refills_after_a_clean_step(void**) {
  for (const bool consecutive : {false, true}) {
    Setup setup;
    setup.section = ", \"initial_scale_power\": 16, \"loss_scale_window\": 1000, \"hysteresis\": 2";
    if (consecutive) setup.section += ", \"consecutive_hysteresis\": true";
    at_all_stages({2, 3}, setup, [&](Rank& self) {
      const zero_param_id w = self.add("w", Floats(3, 0));
      self.shard();
      const double scales[2][4] = {{65536, 65536, 32768, 32768}, {65536, 65536, 65536, 65536}};
      for (int32_t step = 0; step < 4; ++step) {
        self.give(w, Floats(3, step % 2 == 0 ? kInf : 1.0f));
        const zero_step_info info = self.step();
        EXPECT(info.skipped == (step + 1) % 2);
        EXPECT(info.loss_scale == scales[consecutive ? 1 : 0][step]);
      }
      EXPECT(zero_step_count(self.runtime) == 2);
      self.close();
    });
  }
}

void r004_an_overflow_at_the_minimum_scale_is_an_error_on_all_ranks(void**) {
  Setup setup;
  setup.section = ", \"initial_scale_power\": 1, \"min_loss_scale\": 1, \"hysteresis\": 1";
  setup.optimizer = kAdamW;
  at_all_stages({1, 2, 3}, setup, [](Rank& self) {
    const zero_param_id a = self.add("a", Floats(50, 2));
    const zero_param_id b = self.add("b", Floats(7, -1));
    self.shard();
    const auto give = [&](float bad) {
      Floats gradient(7, 0.5f);
      if (self.rank == self.ranks - 1) gradient[4] = bad;
      self.give(b, gradient);
      self.give(a, Floats(50, 0.25f));
    };
    give(0.5f);
    EXPECT(self.step().skipped == 0); // so that states are not zeros
    const auto before_a = self.all_parts(a, 2), before_b = self.all_parts(b, 2);
    give(NAN);
    zero_step_info info = self.step();
    EXPECT(info.skipped == 1 && info.loss_scale == 1);
    for (int32_t again = 0; again < 2; ++again) {
      give(NAN);
      EXPECT(self.try_step(&info) == ZERO_ERR_OVERFLOW);
      zero_error_info error;
      zero_error_info_init(&error, sizeof(error));
      OK(zero_last_error(&error));
      self.expect_same_on_all_ranks(error.message, sizeof(error.message));
      EXPECT(std::strstr(error.message, "\"b\"") != nullptr);
      EXPECT(std::strstr(error.message, "element 4") != nullptr);
      const std::string rank = "rank " + std::to_string(self.ranks - 1);
      EXPECT(std::strstr(error.message, rank.c_str()) != nullptr);
    }
    EXPECT(same(self.all_parts(a, 2), before_a) && same(self.all_parts(b, 2), before_b));
    EXPECT(zero_runtime_status(self.runtime) == ZERO_OK);
    give(0.5f); // whoever has mended the cause may go on
    info = self.step();
    EXPECT(info.skipped == 0 && info.step == 2 && info.loss_scale == 1);
    EXPECT(!same(self.master(a), before_a[1]));
    self.close();
  });
}

void r006_finite_gradients_are_never_an_overflow(void**) {
  Setup fp32;
  fp32.dtype = kFp32;
  at_all_stages({1}, fp32, [](Rank& self) {
    const zero_param_id w = self.add("w", Floats(2, 0));
    self.shard();
    self.give(w, {3e38f, 3e38f});
    const zero_step_info info = self.step();
    EXPECT(info.skipped == 0 && info.nonfinite_param == -1);
    EXPECT(near(info.grad_norm, std::sqrt(2.0) * 3e38)); // beyond fp32
    EXPECT(same(self.get(w), {-3e38f, -3e38f}));
    self.close();
  });
  Setup fp16;
  fp16.section = ", \"initial_scale_power\": 0";
  at_all_stages({1, 2}, fp16, [](Rank& self) {
    const zero_param_id w = self.add("w", Floats(2, 0));
    self.shard();
    self.give(w, {65504, 65504});
    EXPECT(self.step().skipped == 0);
    EXPECT(same(self.get(w), {-65504, -65504}));
    self.close();
  });
}

// One bad value anywhere: first, last, in a tail shorter than a vector, in a scalar.
void r006_one_bad_value_anywhere_is_an_overflow_on_all_ranks(void**) {
  const int64_t kScalar = 0;
  for (const zero_dtype dtype : {kFp32, kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    setup.top = R"(, "libzero": {"open_buckets": "all"})"; // at stage 3 each is a bucket
    if (dtype == kFp16) setup.section = ", \"hysteresis\": 1000000";
    at_all_stages({2, 3}, setup, [&](Rank& self) {
      const std::vector<int64_t> sizes = {1, 2, 3, 7, 15, 16, 17, 31, 33, 65, 1023, kScalar};
      for (const int64_t size : sizes) {
        const std::string name = "p" + std::to_string(size);
        if (size == kScalar) {
          self.add(name, {}, Floats(1, 0), dtype);
        } else {
          self.add(name, Floats(static_cast<size_t>(size), 0));
        }
      }
      self.shard();
      int32_t skipped = 0;
      for (size_t bad = 0; bad < sizes.size(); ++bad) {
        const auto count = static_cast<size_t>(std::max<int64_t>(sizes[bad], 1));
        for (const size_t element : {size_t{0}, count / 2, count - 1}) {
          const float values[] = {NAN, kInf, -kInf};
          const float value = values[static_cast<size_t>(skipped) % 3];
          const int32_t from = skipped % self.ranks;
          for (size_t p = sizes.size(); p-- > 0;) {
            Floats gradient(static_cast<size_t>(std::max<int64_t>(sizes[p], 1)), 1);
            if (p == bad && self.rank == from) gradient[element] = value;
            self.give(static_cast<zero_param_id>(p), gradient);
          }
          const zero_step_info info = self.step();
          EXPECT(info.skipped == 1 && info.skipped_total == ++skipped);
          EXPECT(info.nonfinite_param == static_cast<zero_param_id>(bad));
          EXPECT(info.nonfinite_element == element && info.nonfinite_rank == from);
        }
      }
      for (size_t p = 0; p < sizes.size(); ++p) { // and none is none
        self.give(static_cast<zero_param_id>(p),
                  Floats(static_cast<size_t>(std::max<int64_t>(sizes[p], 1)), 1));
      }
      const zero_step_info info = self.step();
      EXPECT(info.skipped == 0 && info.nonfinite_param == -1 && info.nonfinite_rank == -1);
      self.close();
    });
  }
}

// 128 is a power of two: the masters are those of an unscaled fp32 run, bit for bit.
void r013_a_static_loss_scale_never_moves(void**) {
  const auto gradient = [](int32_t rank, int32_t step) {
    Floats values;
    for (int32_t i = 0; i < 40; ++i) {
      values.push_back(static_cast<float>((i * 7 + step * 3 + rank) % 11 - 5) / 64);
    }
    return values;
  };
  for (const int32_t count : {1, 2, 3}) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      ranks::SharedArray<float> plain(40);
      Setup fp32;
      fp32.stage = stage;
      fp32.dtype = kFp32;
      fp32.optimizer = kAdamW;
      at_ranks(count, fp32, [&](Rank& self) {
        const zero_param_id w = self.add("w", Floats(40, 0.5f));
        self.shard();
        for (int32_t step = 0; step < 5; ++step) {
          if (step == 2) continue;
          self.give(w, gradient(self.rank, step));
          self.step();
        }
        const Floats values = self.get(w);
        if (self.rank == 0) std::copy(values.begin(), values.end(), plain.data());
        self.close();
      });
      Setup fp16 = fp32;
      fp16.dtype = kFp16;
      fp16.section = ", \"loss_scale\": 128";
      at_ranks(count, fp16, [&](Rank& self) {
        const zero_param_id w = self.add("w", Floats(40, 0.5f));
        self.shard();
        for (int32_t step = 0; step < 5; ++step) {
          EXPECT(zero_loss_scale(self.runtime) == 128);
          Floats values = gradient(self.rank, step);
          if (step == 2) values[39] = kInf;
          self.give(w, values, 128);
          const zero_step_info info = self.step();
          EXPECT(info.skipped == (step == 2 ? 1 : 0) && info.loss_scale == 128);
        }
        EXPECT(same(self.master(w), Floats(plain.data(), plain.data() + 40)));
        self.expect_values_are_rounded_masters(w);
        self.close();
      });
    }
  }
}

void r081_the_schedule_stands_still_on_a_skipped_step(void**) {
  Setup setup;
  setup.optimizer = R"({"type": "AdamW", "params": {"lr": 0.5}})";
  setup.section = ", \"initial_scale_power\": 4";
  setup.top =
      R"(, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_type":
      "linear", "warmup_min_lr": 0.25, "warmup_max_lr": 0.5}})";
  at_all_stages({2, 3}, setup, [](Rank& self) {
    const zero_param_id w = self.add("w", Floats(6, 1));
    self.shard();
    const double rates[] = {0.25, 0.25, 0.25, 0.25, 0.275}; // iterations -1, -1, -1, 0, 1
    for (int32_t call = 0; call < 5; ++call) {
      self.give_scaled(w, Floats(6, call < 2 ? kInf : 1.0f));
      const zero_step_info info = self.step();
      EXPECT(near(info.lr, rates[call], 1e-12));
      EXPECT(info.step == std::max(0, call - 1) && info.skipped_total == std::min(call + 1, 2));
      // A constant gradient moves Adam by the rate where its own step count is right, too.
      if (call == 3) EXPECT(near(self.master(w)[5], 0.5));
    }
    self.close();
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r001_the_first_overflow_does_not_lower_the_scale),
      cmocka_unit_test(r002_consecutive_hysteresis_refills_after_a_clean_step),
      cmocka_unit_test(r004_an_overflow_at_the_minimum_scale_is_an_error_on_all_ranks),
      cmocka_unit_test(r006_finite_gradients_are_never_an_overflow),
      cmocka_unit_test(r006_one_bad_value_anywhere_is_an_overflow_on_all_ranks),
      cmocka_unit_test(r013_a_static_loss_scale_never_moves),
      cmocka_unit_test(r081_the_schedule_stands_still_on_a_skipped_step),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Sums, averages and norms of 16-bit gradients on several ranks: added in fp32, rounded once.
// Reports of users of other ZeRO implementations, and runs beside a reference in double.
// SPDX-License-Identifier: BSD-3-Clause
#include "precision_rank.h"

using namespace precision;

namespace {

// Any of the accumulation types, "" being the default.
std::string accumulated_in(const std::string& dtype) {
  return dtype.empty() ? "" : ", \"data_types\": {\"grad_accum_dtype\": \"" + dtype + "\"}";
}

// ---- Reports ----

void r008_bf16_at_every_stage_has_no_scale_and_clears_gradients(void**) {
  Setup setup;
  setup.dtype = kBf16;
  setup.optimizer = R"({"type": "SGD", "params": {"lr": 0.1}})";
  at_all_stages({1, 2, 3}, setup, [](Rank& self) {
    const zero_param_id w = self.add("w", Floats(4, 1));
    self.shard();
    for (int32_t step = 1; step <= 3; ++step) {
      EXPECT(zero_loss_scale(self.runtime) == 1);
      self.give(w, Floats(4, 1));
      EXPECT(near(self.step().grad_norm, 2, 1e-7));
      EXPECT(near(self.master(w)[3], 1 - 0.1 * step));
    }
    self.close();
  });
}

// Each micro-gradient is 1, so that the mean is 1.  A bf16 sum would stay at 256.
void r021_bf16_gradients_are_accumulated_in_fp32(void**) {
  for (const int32_t micro_batches : {512, 257}) {
    Setup setup;
    setup.dtype = kBf16;
    const std::string keys = ", \"gradient_accumulation_steps\": " + std::to_string(micro_batches) +
                             accumulated_in("fp32");
    for (const int32_t count : {1, 2}) {
      for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
        setup.top = keys;
        at_ranks(count, setup, [&](Rank& self) {
          const zero_param_id w = self.add("w", {0, 0});
          self.shard();
          for (int32_t micro = 0; micro < micro_batches; ++micro) {
            self.give(w, {1, 0});
            self.micro_end();
          }
          EXPECT(near(self.step().grad_norm, 1, 1e-7));
          EXPECT(near(self.master(w)[0], -1, 1e-7) && self.master(w)[1] == 0);
          self.close();
        });
      }
    }
  }
}

void r027_the_norm_is_not_computed_in_half_precision(void**) {
  Setup fp16;
  fp16.section = ", \"initial_scale_power\": 0";
  at_all_stages({1, 3}, fp16, [](Rank& self) {
    const Floats gradient(1000000, 300);
    const zero_param_id w = self.add("w", gradient);
    self.shard();
    self.give(w, gradient);
    const zero_step_info info = self.step();
    EXPECT(info.skipped == 0 && info.grad_norm == 300000);
    self.close();
  });
  Setup bf16;
  bf16.dtype = kBf16;
  at_all_stages({1, 3}, bf16, [](Rank& self) {
    const Floats gradient(65536, 1);
    const zero_param_id w = self.add("w", gradient);
    self.shard();
    self.give(w, gradient);
    EXPECT(self.step().grad_norm == 256);
    self.close();
  });
}

void r052_large_fp16_gradients_are_averaged_without_overflow(void**) {
  for (const std::string accumulation : {"", "fp16"}) {
    Setup setup;
    setup.section = ", \"initial_scale_power\": 0";
    setup.top = accumulated_in(accumulation);
    at_all_stages({2, 4}, setup, [](Rank& self) {
      const zero_param_id w = self.add("w", {0, 0});
      self.shard();
      const float four[] = {40000, -40000, 30000, 30000};
      const float own = self.ranks == 4 ? four[self.rank] : 15000;
      self.give(w, {60000, own});
      EXPECT(self.step().skipped == 0);
      EXPECT(same(self.master(w), {-60000, -15000}));
      EXPECT(same(self.get(w), {-60000, -15000}));
      self.close();
    });
  }
}

// 256 + 1 is no bf16 number: the tie goes to even, once.  256 + 1 + 1 would stay at 256 if it were
// rounded after each addition.
void r053_bf16_sums_are_rounded_once(void**) {
  for (const std::string accumulation : {"fp32", "bf16"}) {
    Setup setup;
    setup.dtype = kBf16;
    setup.top = accumulated_in(accumulation);
    const auto body = [&](Rank& self) {
      const zero_param_id w = self.add("w", {0});
      self.shard();
      self.give(w, {self.rank == 0 ? 256.0f : 1.0f});
      EXPECT(self.step(1).skipped == 0); // a divisor of 1: the sum
      const float exact = self.ranks == 2 ? 257 : 258;
      EXPECT(self.get(w)[0] == -rounded(kBf16, exact));
      EXPECT(self.get(w)[0] == (self.ranks == 2 ? -256 : -258));
      if (accumulation == "fp32") EXPECT(near(self.master(w)[0], -exact, 1e-7));
      self.close();
    };
    at_all_stages({2, 3}, setup, body); // processes
    for (const int32_t count : {2, 3}) {
      for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
        ranks::run_threads(count, [&](int32_t rank, const std::string& group) {
          Rank self(rank, count, group, setup);
          body(self);
        });
      }
    }
  }
}

// Dividing before only moves the place of the division.
void r060_dividing_before_never_changes_the_average(void**) {
  Setup setup;
  setup.dtype = kFp32;
  for (const char* prescale : {"false", "true"}) {
    for (const char* factor : {"1.0", "2.0", "4.0"}) {
      for (const char* scatter : {"true", "false"}) {
        setup.top = std::string(", \"prescale_gradients\": ") + prescale +
                    ", \"gradient_predivide_factor\": " + factor;
        setup.zero = std::string(", \"reduce_scatter\": ") + scatter;
        at_all_stages({4}, setup, [](Rank& self) {
          const zero_param_id w = self.add("w", {0});
          self.shard();
          const float four[] = {1, 2, 3, 6};
          self.give(w, {four[self.rank]});
          EXPECT(self.step().grad_norm == 3);
          EXPECT(self.get(w)[0] == -3);
          self.close();
        });
      }
    }
  }
}

// ---- Beside a reference in double ----

struct Reference {
  std::vector<double> value, first, second;
};

// The gradients as every rank hands them over, rounded to the parameter's type.
float handed_over(zero_dtype dtype, int32_t step, int32_t rank, uint64_t element, float scale) {
  return rounded(dtype, scale * training::gradient(step, 0, rank, 0, element));
}

constexpr uint64_t kElements = 200;
constexpr int32_t kSteps = 12;
constexpr double kLr = 0.01, kDecay = 0.1, kClipping = 0.05, kMomentum = 0.9;

std::vector<double> reference(zero_dtype dtype, int32_t count, float scale, bool adam) {
  Reference of;
  for (uint64_t i = 0; i < kElements; ++i) {
    of.value.push_back(rounded(dtype, training::initial_value(0, i)));
  }
  of.first.assign(kElements, 0);
  of.second.assign(kElements, 0);
  for (int32_t step = 0; step < kSteps; ++step) {
    std::vector<double> grad(kElements, 0);
    double squares = 0;
    for (uint64_t i = 0; i < kElements; ++i) {
      for (int32_t r = 0; r < count; ++r) {
        grad[i] += static_cast<double>(handed_over(dtype, step, r, i, scale)) / scale / count;
      }
      squares += grad[i] * grad[i];
    }
    const double excess = (std::sqrt(squares) + 1e-6) / kClipping;
    for (uint64_t i = 0; i < kElements; ++i) {
      const double g = excess > 1 ? grad[i] / excess : grad[i];
      double& p = of.value[i];
      if (adam) {
        of.first[i] = 0.9 * of.first[i] + 0.1 * g;
        of.second[i] = 0.999 * of.second[i] + 0.001 * g * g;
        const double c1 = 1 - std::pow(0.9, step + 1), c2 = 1 - std::pow(0.999, step + 1);
        p -= kLr * (of.first[i] / c1 / (std::sqrt(of.second[i] / c2) + 1e-8) + kDecay * p);
      } else {
        const double decayed = g + kDecay * p;
        of.first[i] = step == 0 ? decayed : kMomentum * of.first[i] + decayed;
        p -= kLr * of.first[i];
      }
    }
  }
  return of.value;
}

// Relative to a unit in the last place of fp32 (2^-23): a step rounds p once or twice, and the
// update, which is at most twice the rate with Adam (and with this momentum 10 times the decayed
// gradient), some ten times; roundings add up over the steps.  A gradient that is rounded a second
// time to 16 bits would be off by 2^-9, thousands of times more.
void masters_stay_near_a_reference_in_double(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    for (const bool adam : {true, false}) {
      Setup setup;
      setup.dtype = dtype;
      setup.clipping = kClipping;
      if (dtype == kFp16) setup.section = ", \"loss_scale\": 1024";
      setup.optimizer =
          adam ? kAdamW
               : R"({"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}})";
      const float scale = dtype == kFp16 ? 1024 : 1;
      for (const int32_t count : {1, 2, 3}) {
        const std::vector<double> exact = reference(dtype, count, scale, adam);
        for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
          at_ranks(count, setup, [&](Rank& self) {
            Floats start, gradient(kElements);
            for (uint64_t i = 0; i < kElements; ++i) start.push_back(training::initial_value(0, i));
            const zero_param_id w = self.add("w", start);
            self.shard();
            for (int32_t step = 0; step < kSteps; ++step) {
              for (uint64_t i = 0; i < kElements; ++i) {
                gradient[i] = handed_over(dtype, step, self.rank, i, scale);
              }
              self.give(w, gradient);
              const zero_step_info info = self.step();
              EXPECT(info.skipped == 0 && info.clip_scale < 1); // there is something to clip
            }
            const Floats masters = self.master(w);
            double moved = 0;
            for (uint64_t i = 0; i < kElements; ++i) {
              const double allowed =
                  kSteps * std::ldexp(1.0, -23) * (2 * std::fabs(exact[i]) + 10 * 2 * kLr);
              if (std::fabs(masters[i] - exact[i]) > allowed) {
                std::fprintf(stderr, "element %d: %.10g, expected %.10g\n", static_cast<int>(i),
                             masters[i], exact[i]);
              }
              EXPECT(std::fabs(masters[i] - exact[i]) <= allowed);
              moved = std::max<double>(moved, std::fabs(masters[i] - rounded(dtype, start[i])));
            }
            EXPECT(moved > 0.005);
            self.expect_values_are_rounded_masters(w);
            self.close();
          });
        }
      }
    }
  }
}

// A type of its own for the sum changes bits, and changes them alike at every stage.
void the_accumulation_type_rounds_once_and_alike_at_every_stage(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    for (const int32_t count : {2, 3}) {
      Floats results[2];
      for (const int32_t narrow : {0, 1}) {
        for (int32_t stage = 0; stage <= 3; ++stage) {
          Setup setup;
          setup.stage = stage;
          setup.dtype = dtype;
          setup.optimizer = kAdamW;
          setup.top = accumulated_in(narrow == 1 ? name_of(dtype) : "fp32");
          if (dtype == kFp16) setup.section = ", \"loss_scale\": 1024";
          ranks::SharedArray<float> result(kElements);
          at_ranks(count, setup, [&](Rank& self) {
            const zero_param_id w = self.add("w", Floats(kElements, 0.5f));
            self.shard();
            Floats gradient(kElements);
            for (int32_t step = 0; step < 6; ++step) {
              for (uint64_t i = 0; i < kElements; ++i) {
                gradient[i] = training::gradient(step, 0, self.rank, 0, i);
              }
              self.give_scaled(w, gradient);
              EXPECT(self.step().skipped == 0);
            }
            const Floats masters = self.master(w);
            if (self.rank == 0) std::copy(masters.begin(), masters.end(), result.data());
            self.close();
          });
          const Floats here(result.data(), result.data() + kElements);
          if (stage == 0) results[narrow] = here;
          assert_true(same(results[narrow], here));
        }
      }
      assert_false(same(results[0], results[1]));
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r008_bf16_at_every_stage_has_no_scale_and_clears_gradients),
      cmocka_unit_test(r021_bf16_gradients_are_accumulated_in_fp32),
      cmocka_unit_test(r027_the_norm_is_not_computed_in_half_precision),
      cmocka_unit_test(r052_large_fp16_gradients_are_averaged_without_overflow),
      cmocka_unit_test(r053_bf16_sums_are_rounded_once),
      cmocka_unit_test(r060_dividing_before_never_changes_the_average),
      cmocka_unit_test(masters_stay_near_a_reference_in_double),
      cmocka_unit_test(the_accumulation_type_rounds_once_and_alike_at_every_stage),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

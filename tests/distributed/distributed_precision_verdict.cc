// The verdict on overflow, on several ranks at every stage: what a skipped step says, the same on
// all of them, and what it leaves alone.
// SPDX-License-Identifier: BSD-3-Clause
#include "precision_rank.h"

using namespace precision;

namespace {

constexpr float kInf = INFINITY;

// DeepSpeed doubles the scale first and divides that step's gradients by it.
void a_growth_step_unscales_with_the_scale_its_gradients_were_made_with(void**) {
  Setup setup;
  setup.section = ", \"initial_scale_power\": 3, \"loss_scale_window\": 1, \"hysteresis\": 1";
  at_all_stages({2, 3}, setup, [](Rank& self) {
    const zero_param_id w = self.add("w", Floats(4, 0));
    self.shard();
    double scale = 8;
    for (int32_t step = 0; step < 6; ++step) {
      EXPECT(zero_loss_scale(self.runtime) == scale);
      self.give_scaled(w, Floats(4, 0.5f));
      const zero_step_info info = self.step();
      if (step > 0) scale *= 2;
      EXPECT(info.loss_scale == scale);
      EXPECT(near(info.grad_norm, 1, 1e-7));
      const Floats masters = self.master(w);
      EXPECT(near(masters[0], -0.5 * (step + 1), 1e-6));
    }
    self.close();
  });
}

void a_skipped_step_names_the_first_in_backward_order(void**) {
  struct Bad {
    size_t param, element;
    int32_t rank;
  };
  struct Case {
    std::vector<Bad> bad;
    Bad first;
  };
  // Registered a, b, c: the backward pass finishes c first.
  const std::vector<Case> cases = {
      {{{0, 0, 0}, {2, 40, 0}, {2, 17, 1}}, {2, 17, 1}},
      {{{0, 0, 1}, {1, 99, 0}}, {1, 99, 0}},
      {{{1, 99, 1}, {1, 98, 1}, {0, 0, 0}}, {1, 98, 1}},
      {{{0, 63, 1}, {0, 5, 0}, {0, 300, 0}}, {0, 5, 0}},
  };
  for (const zero_dtype dtype : {kFp16, kBf16, kFp32}) {
    for (const char* bucket : {"32", "500000000"}) {
      Setup setup;
      setup.dtype = dtype;
      setup.zero = std::string(", \"reduce_bucket_size\": ") + bucket;
      if (dtype == kFp16) setup.section = ", \"hysteresis\": 100";
      at_all_stages({2, 3}, setup, [&](Rank& self) {
        const size_t sizes[] = {301, 100, 41};
        for (size_t p = 0; p < 3; ++p) {
          self.add(std::string(1, static_cast<char>('a' + p)), Floats(sizes[p], 0));
        }
        self.shard();
        for (const Case& one : cases) {
          for (size_t p = 3; p-- > 0;) {
            Floats gradient(sizes[p], 1);
            for (const Bad& bad : one.bad) {
              if (bad.param == p && bad.rank == self.rank) gradient[bad.element] = NAN;
            }
            self.give(static_cast<zero_param_id>(p), gradient);
          }
          const zero_step_info info = self.step();
          EXPECT(info.skipped == 1);
          EXPECT(info.nonfinite_param == static_cast<zero_param_id>(one.first.param));
          EXPECT(info.nonfinite_element == one.first.element);
          EXPECT(info.nonfinite_rank == one.first.rank);
        }
        self.close();
      });
    }
  }
}

// The order is the model's own where it has one.
void the_first_is_the_first_of_the_model_s_own_backward_order(void**) {
  Setup setup;
  at_all_stages({2}, setup, [](Rank& self) {
    for (const char* name : {"a", "b", "c"}) self.add(name, Floats(10, 0));
    const zero_param_id order[] = {1, 0, 2};
    OK(zero_model_backward_order(self.model, order, 3));
    self.shard();
    for (const zero_param_id param : order) {
      Floats gradient(10, 1);
      if (param != 1) gradient[3] = kInf;
      self.give(param, gradient);
    }
    const zero_step_info info = self.step();
    EXPECT(info.skipped == 1 && info.nonfinite_param == 0 && info.nonfinite_element == 3);
    self.close();
  });
}

// Each is finite, their sum in fp32 is not; nobody may go on alone.
void finite_gradients_whose_sum_is_not_are_an_overflow_on_all_ranks(void**) {
  for (const zero_dtype dtype : {kFp32, kBf16}) {
    Setup setup;
    setup.dtype = dtype;
    at_all_stages({2, 3}, setup, [](Rank& self) {
      const zero_param_id w = self.add("w", Floats(70, 3));
      self.shard();
      Floats gradient(70, 1);
      gradient[66] = 3e38f;
      self.give(w, gradient);
      const zero_step_info info = self.step();
      EXPECT(info.skipped == 1 && info.step == 0);
      EXPECT(info.nonfinite_param == w && info.nonfinite_element == 66);
      EXPECT(same(self.master(w), Floats(70, 3)));
      self.give(w, Floats(70, 1));
      EXPECT(self.step().step == 1);
      EXPECT(near(self.master(w)[66], 2));
      self.close();
    });
  }
}

void bf16_that_is_told_not_to_look_takes_the_step_and_still_names_the_value(void**) {
  Setup setup;
  setup.dtype = kBf16;
  setup.section = ", \"check_grad_overflow\": false";
  at_all_stages({2, 3}, setup, [](Rank& self) {
    const zero_param_id w = self.add("w", Floats(50, 2));
    self.shard();
    Floats gradient(50, 1);
    if (self.rank == 1) gradient[20] = kInf;
    self.give(w, gradient);
    const zero_step_info info = self.step();
    EXPECT(info.skipped == 0 && info.step == 1 && info.skipped_total == 0);
    EXPECT(info.nonfinite_param == w && info.nonfinite_element == 20 && info.nonfinite_rank == 1);
    EXPECT(!std::isfinite(info.grad_norm)); // no norm of the others alone
    const Floats masters = self.master(w);
    EXPECT(masters[20] == -kInf && near(masters[19], 1));
    self.close();
  });
  setup.section = ", \"check_grad_overflow\": true";
  at_all_stages({2}, setup, [](Rank& self) {
    const zero_param_id w = self.add("w", Floats(50, 2));
    self.shard();
    Floats gradient(50, 1);
    if (self.rank == 1) gradient[20] = kInf;
    self.give(w, gradient);
    EXPECT(self.step().skipped == 1);
    EXPECT(same(self.master(w), Floats(50, 2)));
    self.close();
  });
}

// One scale for all trained gradients: an fp32 parameter's overflow skips the 16-bit ones, too.
void an_overflow_of_an_fp32_parameter_skips_all(void**) {
  Setup setup;
  setup.section = ", \"initial_scale_power\": 5, \"hysteresis\": 1";
  at_all_stages({2, 3}, setup, [](Rank& self) {
    const zero_param_id half = self.add("half", Floats(9, 1));
    const zero_param_id norm = self.add("norm", Floats(3, 1), kFp32);
    self.shard();
    self.give_scaled(norm, {1, self.rank == 1 ? NAN : 1.0f, 1});
    self.give_scaled(half, Floats(9, 1));
    const zero_step_info info = self.step();
    EXPECT(info.skipped == 1 && info.loss_scale == 16);
    EXPECT(info.nonfinite_param == norm && info.nonfinite_element == 1 && info.nonfinite_rank == 1);
    EXPECT(same(self.master(half), Floats(9, 1)) && same(self.get(norm), Floats(3, 1)));
    self.give_scaled(norm, Floats(3, 0.5f));
    self.give_scaled(half, Floats(9, 0.25f));
    EXPECT(self.step().skipped == 0);
    EXPECT(near(self.master(half)[8], 0.75) && near(self.get(norm)[2], 0.5));
    self.close();
  });
}

// Equal to the run in which the bad steps never were: value, master, states.
void skipped_steps_leave_no_trace(void**) {
  for (const zero_dtype dtype : {kFp16, kBf16}) {
    Setup setup;
    setup.dtype = dtype;
    setup.clipping = 1;
    setup.optimizer = kAdamW;
    if (dtype == kFp16) setup.section = ", \"loss_scale\": 64";
    for (const int32_t count : {2, 3}) {
      for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
        ranks::SharedArray<float> result(2 * 4 * 50);
        for (const int32_t bad : {0, 1}) {
          at_ranks(count, setup, [&](Rank& self) {
            const zero_param_id w = self.add("w", Floats(50, 2));
            self.shard();
            for (int32_t step = 0; step < 3; ++step) {
              if (bad == 1) {
                Floats gradient(50, 1);
                if (self.rank == 1) gradient[static_cast<size_t>(11 * step)] = NAN;
                self.give_scaled(w, gradient);
                EXPECT(self.step().skipped == 1);
              }
              self.give_scaled(w, Floats(50, static_cast<float>(step + self.rank)));
              EXPECT(self.step().step == step + 1);
            }
            const std::vector<Floats> parts = self.all_parts(w, 2);
            for (size_t k = 0; k < 4 && self.rank == 0; ++k) {
              std::copy(parts[k].begin(), parts[k].end(),
                        result.data() + (4 * static_cast<size_t>(bad) + k) * 50);
            }
            self.close();
          });
        }
        assert_memory_equal(result.data(), result.data() + 200, 200 * 4);
        assert_true(result[50] > 1 && result[50] < 2);
      }
    }
  }
}

// The value came on one rank, in the first of two micro-batches; the second is finite.
void the_rank_that_brought_it_is_named_also_from_an_earlier_micro_batch(void**) {
  for (const int32_t from : {0, 1, 2}) {
    Setup setup;
    setup.dtype = ZERO_DTYPE_BF16;
    setup.top = ", \"gradient_accumulation_steps\": 2";
    at_all_stages({3}, setup, [&](Rank& self) {
      const zero_param_id w = self.add("w", Floats(1000, 1.0f));
      self.shard();
      for (int32_t micro = 0; micro < 2; ++micro) {
        Floats gradient(1000, 0.5f);
        if (micro == 0 && self.rank == from) gradient[777] = NAN;
        self.give(w, gradient);
        self.micro_end();
      }
      const zero_step_info info = self.step();
      EXPECT(info.skipped == 1 && info.nonfinite_param == w);
      EXPECT(info.nonfinite_element == 777 && info.nonfinite_rank == from);
      self.close();
    });
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_rank_that_brought_it_is_named_also_from_an_earlier_micro_batch),
      cmocka_unit_test(a_growth_step_unscales_with_the_scale_its_gradients_were_made_with),
      cmocka_unit_test(a_skipped_step_names_the_first_in_backward_order),
      cmocka_unit_test(the_first_is_the_first_of_the_model_s_own_backward_order),
      cmocka_unit_test(finite_gradients_whose_sum_is_not_are_an_overflow_on_all_ranks),
      cmocka_unit_test(bf16_that_is_told_not_to_look_takes_the_step_and_still_names_the_value),
      cmocka_unit_test(an_overflow_of_an_fp32_parameter_skips_all),
      cmocka_unit_test(skipped_steps_leave_no_trace),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

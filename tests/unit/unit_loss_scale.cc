// The loss scale against the golden vectors of the DeepSpeed behaviour reference, section 11 (made
// by DeepSpeed's own code), and what its state machine says of corners.
// SPDX-License-Identifier: BSD-3-Clause
#include "optim/loss_scale.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

#include <cmath>
#include <string>
#include <vector>

namespace {

using zero::optim::initial_loss_scale;
using zero::optim::LossScale;
using zero::optim::LossScaleRules;
using zero::optim::may_overflow;
using zero::optim::update_loss_scale;

LossScaleRules dynamic(double initial, int64_t window, int64_t hysteresis, double minimum = 1) {
  LossScaleRules rules;
  rules.dynamic = true;
  rules.initial = initial;
  rules.minimum = minimum;
  rules.window = window;
  rules.hysteresis = hysteresis;
  return rules;
}

// X: an overflow, '.': a clean step.  The first expected values are those before any step.
void assert_sequence(const LossScaleRules& rules, const std::string& steps,
                     const std::vector<double>& scales, const std::vector<int64_t>& credits) {
  assert_int_equal(scales.size(), steps.size() + 1);
  assert_int_equal(credits.size(), steps.size() + 1);
  LossScale state = initial_loss_scale(rules);
  for (size_t i = 0;; ++i) {
    if (state.scale != scales[i] || state.credits != credits[i]) {
      fail_msg("%s: after %zu steps the scale is %g with %lld credits, expected %g with %lld",
               steps.c_str(), i, state.scale, static_cast<long long>(state.credits), scales[i],
               static_cast<long long>(credits[i]));
    }
    if (i == steps.size()) return;
    const bool overflow = steps[i] == 'X';
    if (overflow) assert_true(may_overflow(rules, state));
    update_loss_scale(rules, overflow, &state);
  }
}

std::vector<int64_t> ones(size_t count) {
  return std::vector<int64_t>(count, 1);
}

void the_defaults(void**) {
  assert_sequence(dynamic(65536, 1000, 2), "XXX....X",
                  {65536, 65536, 32768, 16384, 16384, 16384, 16384, 16384, 8192},
                  {2, 1, 1, 1, 1, 1, 1, 1, 1});
}
void growth_without_overflow(void**) {
  assert_sequence(dynamic(256, 2, 1), "........", {256, 256, 256, 512, 512, 1024, 1024, 2048, 2048},
                  ones(9));
}
void overflows_then_growth(void**) {
  assert_sequence(dynamic(256, 2, 1), "XXXX.....X....",
                  {256, 128, 64, 32, 16, 16, 16, 32, 32, 64, 32, 32, 32, 64, 64}, ones(15));
}
void credits_are_spent_once_and_refilled_by_growth(void**) {
  assert_sequence(dynamic(256, 2, 2), "X.X.X..X......",
                  {256, 256, 256, 128, 128, 64, 64, 64, 32, 32, 32, 64, 64, 128, 128},
                  {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2});
}
void consecutive_hysteresis_refills_after_each_clean_step(void**) {
  LossScaleRules rules = dynamic(256, 2, 2);
  rules.consecutive_hysteresis = true;
  assert_sequence(rules, "X.X.X..XX.....",
                  {256, 256, 256, 256, 256, 256, 256, 256, 256, 128, 128, 128, 256, 256, 512},
                  {2, 1, 2, 1, 2, 1, 2, 2, 1, 1, 2, 2, 2, 2, 2});
}
void the_fourth_overflow_from_8_is_an_error(void**) {
  const LossScaleRules rules = dynamic(8, 2, 1, 1);
  assert_sequence(rules, "XXX", {8, 4, 2, 1}, ones(4));
  LossScale state = initial_loss_scale(rules);
  for (int i = 0; i < 3; ++i) update_loss_scale(rules, true, &state);
  assert_false(may_overflow(rules, state));
}
void a_window_of_3(void**) {
  assert_sequence(dynamic(65536, 3, 2), "XX...X....X.....",
                  {65536, 65536, 32768, 32768, 32768, 32768, 16384, 16384, 16384, 16384, 32768,
                   32768, 32768, 32768, 32768, 65536, 65536},
                  {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 2});
}

// ---- Reports ----

void r001_the_first_overflow_does_not_lower_the_scale(void**) {
  assert_sequence(dynamic(65536, 1000, 2), "XXX", {65536, 65536, 32768, 16384}, {2, 1, 1, 1});
  assert_sequence(dynamic(65536, 1000, 1), "XXX", {65536, 32768, 16384, 8192}, ones(4));
}
void r002_consecutive_hysteresis_refills_after_a_clean_step(void**) {
  LossScaleRules rules = dynamic(65536, 1000, 2);
  assert_sequence(rules, "X.X.", {65536, 65536, 65536, 32768, 32768}, {2, 1, 1, 1, 1});
  rules.consecutive_hysteresis = true;
  assert_sequence(rules, "X.X.", {65536, 65536, 65536, 65536, 65536}, {2, 1, 2, 1, 2});
}
void r004_an_overflow_at_the_minimum_is_an_error(void**) {
  const LossScaleRules rules = dynamic(2, 1000, 1, 1);
  LossScale state = initial_loss_scale(rules);
  assert_true(may_overflow(rules, state));
  update_loss_scale(rules, true, &state);
  assert_true(state.scale == 1);
  assert_false(may_overflow(rules, state));
}

// ---- Corners ----

void a_static_scale_never_moves_and_always_may_overflow(void**) {
  LossScaleRules rules;
  rules.initial = 128;
  rules.minimum = 1000; // has no say
  LossScale state = initial_loss_scale(rules);
  for (int i = 0; i < 5000; ++i) {
    assert_true(may_overflow(rules, state));
    update_loss_scale(rules, i % 3 == 0, &state);
    assert_true(state.scale == 128);
  }
}
void credits_excuse_overflows_even_at_the_minimum(void**) {
  const LossScaleRules rules = dynamic(1, 10, 3, 1);
  assert_sequence(rules, "XX", {1, 1, 1}, {3, 2, 1});
  LossScale state = initial_loss_scale(rules);
  update_loss_scale(rules, true, &state);
  update_loss_scale(rules, true, &state);
  assert_false(may_overflow(rules, state));
}
void the_scale_stops_at_a_minimum_that_is_no_power_of_two(void**) {
  const LossScaleRules rules = dynamic(64, 1000, 1, 5);
  assert_sequence(rules, "XXXX", {64, 32, 16, 8, 5}, ones(5));
  LossScale state = initial_loss_scale(rules);
  for (int i = 0; i < 4; ++i) update_loss_scale(rules, true, &state);
  assert_false(may_overflow(rules, state));
}
// The first growth needs one clean step more than the window, each further one the window.
void growth_comes_after_window_plus_1_clean_steps_then_each_window(void**) {
  for (const int64_t window : {1, 2, 7, 1000}) {
    const LossScaleRules rules = dynamic(2, window, 2);
    LossScale state = initial_loss_scale(rules);
    std::vector<int64_t> grown;
    double before = state.scale;
    for (int64_t step = 1; step <= 3 * window + 1; ++step) {
      update_loss_scale(rules, false, &state);
      if (state.scale != before) grown.push_back(step);
      before = state.scale;
    }
    assert_true(grown == (std::vector<int64_t>{window + 1, 2 * window + 1, 3 * window + 1}));
    assert_true(state.scale == 16);
  }
}
// The question whether an overflow is an error is asked before anything is touched.
void asking_changes_nothing(void**) {
  const LossScaleRules rules = dynamic(1, 10, 1, 1);
  const LossScale state = initial_loss_scale(rules);
  assert_false(may_overflow(rules, state));
  assert_true(state.scale == 1 && state.iteration == 0 && state.last_overflow == -1);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_defaults),
      cmocka_unit_test(growth_without_overflow),
      cmocka_unit_test(overflows_then_growth),
      cmocka_unit_test(credits_are_spent_once_and_refilled_by_growth),
      cmocka_unit_test(consecutive_hysteresis_refills_after_each_clean_step),
      cmocka_unit_test(the_fourth_overflow_from_8_is_an_error),
      cmocka_unit_test(a_window_of_3),
      cmocka_unit_test(r001_the_first_overflow_does_not_lower_the_scale),
      cmocka_unit_test(r002_consecutive_hysteresis_refills_after_a_clean_step),
      cmocka_unit_test(r004_an_overflow_at_the_minimum_is_an_error),
      cmocka_unit_test(a_static_scale_never_moves_and_always_may_overflow),
      cmocka_unit_test(credits_excuse_overflows_even_at_the_minimum),
      cmocka_unit_test(the_scale_stops_at_a_minimum_that_is_no_power_of_two),
      cmocka_unit_test(growth_comes_after_window_plus_1_clean_steps_then_each_window),
      cmocka_unit_test(asking_changes_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

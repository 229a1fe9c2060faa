// Schedules against the golden vectors of the DeepSpeed behaviour reference, section 11 (made by
// DeepSpeed's own code), and the reports on them.
// SPDX-License-Identifier: BSD-3-Clause
#include "optim/schedule.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

#include <cmath>
#include <vector>

namespace {

using zero::optim::Rates;
using zero::optim::rates_at;
using zero::optim::Schedule;
using zero::optim::ScheduleParameters;

constexpr double kBaseLr = 1e-3;
constexpr double kBaseBeta1 = 0.9;

void assert_near(double expected, double got, int64_t update) {
  // The vectors are printed to nine digits.
  if (std::fabs(expected - got) <= 1e-6 * std::fabs(expected) + 1e-15) return;
  fail_msg("update %lld: expected %.9g, got %.9g", static_cast<long long>(update), expected, got);
}

void assert_rates(const ScheduleParameters& p, const std::vector<double>& expected) {
  int64_t update = 1;
  for (const double lr : expected) {
    const Rates rates = rates_at(p, kBaseLr, kBaseBeta1, update);
    assert_near(lr, rates.lr, update++);
  }
}

ScheduleParameters warmup(Schedule schedule, int64_t total, int64_t steps, bool linear) {
  ScheduleParameters p;
  p.schedule = schedule;
  p.total_steps = total;
  p.warmup_steps = steps;
  p.warmup_is_linear = linear;
  return p;
}

ScheduleParameters one_cycle() {
  ScheduleParameters p;
  p.schedule = Schedule::kOneCycle;
  p.cycle_min_lr = 1e-4;
  p.cycle_max_lr = 1e-3;
  p.cycle_first_steps = p.cycle_second_steps = 4;
  return p;
}

ScheduleParameters range_test() {
  ScheduleParameters p;
  p.schedule = Schedule::kLrRangeTest;
  p.range_min_lr = 1e-4;
  p.range_steps = 3;
  p.range_step_rate = 2;
  return p;
}

void without_a_schedule_rate_and_momentum_are_the_optimizers(void**) {
  for (const int64_t update : {1, 2, 1000000}) {
    const Rates rates = rates_at(ScheduleParameters(), 0.25, 0.75, update);
    assert_true(rates.lr == 0.25);
    assert_true(rates.momentum == 0.75);
    assert_true(std::isnan(rates.beta2));
  }
}

void warmup_lr_logarithmic(void**) {
  assert_rates(warmup(Schedule::kWarmup, 0, 5, false),
               {0, 0, 4.30676558e-4, 6.82606194e-4, 8.61353116e-4, 1e-3, 1e-3, 1e-3});
}
void warmup_lr_linear(void**) {
  assert_rates(warmup(Schedule::kWarmup, 0, 5, true), {0, 0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1e-3});
}
void warmup_decay_lr_logarithmic(void**) {
  assert_rates(warmup(Schedule::kWarmupDecay, 10, 4, false),
               {0, 0, 5e-4, 7.9248125e-4, 1e-3, 1e-3, 8.33333333e-4, 6.66666667e-4, 5e-4,
                3.33333333e-4, 1.66666667e-4, 0, 0});
}
void warmup_decay_lr_linear(void**) {
  assert_rates(warmup(Schedule::kWarmupDecay, 10, 4, true),
               {0, 0, 2.5e-4, 5e-4, 7.5e-4, 1e-3, 8.33333333e-4, 6.66666667e-4, 5e-4, 3.33333333e-4,
                1.66666667e-4, 0, 0});
}
void warmup_cosine_lr_logarithmic(void**) {
  assert_rates(warmup(Schedule::kWarmupCosine, 10, 4, false),
               {0, 0, 5e-4, 7.9248125e-4, 1e-3, 9.33019401e-4, 7.50025e-4, 5.0005e-4, 2.50075e-4,
                6.70805994e-5, 1e-7, 1e-7, 1e-7});
}
void warmup_cosine_lr_linear_with_ratios(void**) {
  ScheduleParameters p = warmup(Schedule::kWarmupCosine, 10, 4, true);
  p.warmup_min_ratio = 0.1;
  p.cosine_min_ratio = 0.2;
  assert_rates(p, {0, 1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 9.46410162e-4, 8e-4, 6e-4, 4e-4,
                   2.53589838e-4, 2e-4, 2e-4, 2e-4});
}
void one_cycle_with_decay_and_its_momentum(void**) {
  ScheduleParameters p = one_cycle();
  p.decay_lr_rate = 0.5;
  p.decay_steps = 2;
  p.decay_momentum_rate = 0.1;
  assert_rates(p, {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 7.75e-4, 5.5e-4, 3.25e-4, 1e-4, 8e-5,
                   6.66666667e-5, 5.71428571e-5, 5e-5, 4.44444444e-5, 4e-5, 3.63636364e-5});
  const double beta1[] = {0.8, 0.875, 0.85, 0.825, 0.8,  0.825, 0.85, 0.875,
                          0.9, 0.945, 0.99, 1.035, 1.08, 1.125, 1.17, 1.215};
  int64_t update = 1;
  for (const double expected : beta1) {
    const Rates rates = rates_at(p, kBaseLr, kBaseBeta1, update);
    assert_near(expected, rates.momentum, update++);
    assert_true(rates.beta2 == 0.99);
  }
}
void one_cycle_without_decay_stays_at_its_lowest_rate(void**) {
  assert_rates(one_cycle(), {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 7.75e-4, 5.5e-4, 3.25e-4, 1e-4,
                             1e-4, 1e-4, 1e-4});
}
void one_cycle_can_leave_momentum_alone(void**) {
  ScheduleParameters p = one_cycle();
  p.cycle_momentum = false;
  for (int64_t update = 1; update < 12; ++update) {
    const Rates rates = rates_at(p, kBaseLr, kBaseBeta1, update);
    assert_true(rates.momentum == kBaseBeta1);
    assert_true(std::isnan(rates.beta2));
  }
}
// By the formula: two stairs over four updates stand still for two and jump by half.
void one_cycle_in_stairs(void**) {
  ScheduleParameters p = one_cycle();
  p.cycle_first_stairs = p.cycle_second_stairs = 2;
  assert_rates(p, {1e-4, 1e-4, 5.5e-4, 5.5e-4, 1e-3, 1e-3, 5.5e-4, 5.5e-4, 1e-4, 1e-4});
}
void lr_range_test(void**) {
  assert_rates(range_test(), {1e-4, 1.66666667e-4, 2.33333333e-4, 3e-4, 3.66666667e-4,
                              4.33333333e-4, 5e-4, 5.66666667e-4});
}
void lr_range_test_in_stairs(void**) {
  ScheduleParameters p = range_test();
  p.range_staircase = true;
  assert_rates(p, {1e-4, 1e-4, 1e-4, 3e-4, 3e-4, 3e-4, 5e-4, 5e-4});
}

// R073: ln 1 is 0, so 1 is taken as 2.  Iterations 0..3 are updates 2..5.
void r073_a_warmup_of_one_is_a_warmup_of_two(void**) {
  for (const Schedule schedule : {Schedule::kWarmup, Schedule::kWarmupDecay}) {
    for (const int64_t steps : {1, 2}) {
      const ScheduleParameters p = warmup(schedule, 1000000000, steps, false);
      assert_rates(p, {0, 0, 1e-3, 1e-3, 1e-3});
    }
  }
}
// R074: iterations 0, 1, 4, 9, 10 of a warm-up over 10.
void r074_values_of_warmup_lr(void**) {
  const int64_t iterations[] = {0, 1, 4, 9, 10};
  const double logarithmic[] = {0, 3.010300e-4, 6.989700e-4, 1e-3, 1e-3};
  const double linear[] = {0, 1e-4, 4e-4, 9e-4, 1e-3};
  for (int i = 0; i < 5; ++i) {
    const int64_t update = iterations[i] + 2;
    const auto at = [&](bool is_linear) {
      return rates_at(warmup(Schedule::kWarmup, 0, 10, is_linear), kBaseLr, 0, update).lr;
    };
    assert_near(logarithmic[i], at(false), update);
    assert_near(linear[i], at(true), update);
  }
}
// R076: WarmupLR without a maximum of its own goes to the optimizer's rate.
void r076_warmup_lr_ends_at_the_optimizers_rate(void**) {
  ScheduleParameters p = warmup(Schedule::kWarmup, 0, 1, false);
  p.warmup_max_is_base = true;
  assert_near(5e-7, rates_at(p, 5e-7, 0, 100).lr, 100);
}
// R078: a warm-up as long as the run, and longer.
void r078_a_warmup_as_long_as_the_run_never_divides_by_zero(void**) {
  const double total_10[] = {9e-4, 0, 0};
  const double total_5[] = {9e-4, 0, 0};
  for (int i = 0; i < 3; ++i) {
    const int64_t update = 9 + i + 2;
    assert_near(total_10[i],
                rates_at(warmup(Schedule::kWarmupDecay, 10, 10, true), kBaseLr, 0, update).lr,
                update);
    assert_near(total_5[i],
                rates_at(warmup(Schedule::kWarmupDecay, 5, 10, true), kBaseLr, 0, update).lr,
                update);
  }
}

// No schedule ever leaves the range of its own settings, however long a run lasts.
void rates_stay_finite_and_not_negative_for_ever(void**) {
  for (const Schedule schedule :
       {Schedule::kWarmup, Schedule::kWarmupDecay, Schedule::kWarmupCosine, Schedule::kOneCycle}) {
    for (const int64_t steps : {1, 2, 10, 5000}) {
      ScheduleParameters p = warmup(schedule, 1000, steps, steps % 2 == 0);
      p.cycle_min_lr = 1e-5;
      p.cycle_max_lr = 1e-3;
      p.decay_lr_rate = 0.1;
      p.decay_steps = 7;
      for (const int64_t update : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{999}, int64_t{1001},
                                   int64_t{5001}, int64_t{1} << 40}) {
        const double lr = rates_at(p, kBaseLr, kBaseBeta1, update).lr;
        assert_true(std::isfinite(lr) && lr >= 0 && lr <= 1e-3);
      }
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(without_a_schedule_rate_and_momentum_are_the_optimizers),
      cmocka_unit_test(warmup_lr_logarithmic),
      cmocka_unit_test(warmup_lr_linear),
      cmocka_unit_test(warmup_decay_lr_logarithmic),
      cmocka_unit_test(warmup_decay_lr_linear),
      cmocka_unit_test(warmup_cosine_lr_logarithmic),
      cmocka_unit_test(warmup_cosine_lr_linear_with_ratios),
      cmocka_unit_test(one_cycle_with_decay_and_its_momentum),
      cmocka_unit_test(one_cycle_without_decay_stays_at_its_lowest_rate),
      cmocka_unit_test(one_cycle_can_leave_momentum_alone),
      cmocka_unit_test(one_cycle_in_stairs),
      cmocka_unit_test(lr_range_test),
      cmocka_unit_test(lr_range_test_in_stairs),
      cmocka_unit_test(r073_a_warmup_of_one_is_a_warmup_of_two),
      cmocka_unit_test(r074_values_of_warmup_lr),
      cmocka_unit_test(r076_warmup_lr_ends_at_the_optimizers_rate),
      cmocka_unit_test(r078_a_warmup_as_long_as_the_run_never_divides_by_zero),
      cmocka_unit_test(rates_stay_finite_and_not_negative_for_ever),
  };
  return cmocka_run_group_tests_name("schedule", tests, nullptr, nullptr);
}

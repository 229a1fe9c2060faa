// Learning-rate schedules as pure functions of the update's number, the first being 1.
// Formulas and defaults: DeepSpeed's lr_schedules.py as of 0.19; update k runs its iteration k-2.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::optim {

enum class Schedule {
  kConstant,
  kWarmup, // WarmupLR
  kWarmupDecay, // WarmupDecayLR
  kWarmupCosine, // WarmupCosineLR
  kOneCycle, // OneCycle
  kLrRangeTest // LRRangeTest
};

// Only the fields of the chosen schedule are read.
struct ScheduleParameters {
  Schedule schedule = Schedule::kConstant;
  // Warm-ups.
  bool warmup_is_linear = false; // else logarithmic
  double warmup_min_lr = 0;
  double warmup_max_lr = 0.001;
  bool warmup_max_is_base = false; // WarmupLR: the maximum is the optimizer's own rate
  int64_t warmup_steps = 1000; // at least 2 are taken
  int64_t total_steps = 0;
  double warmup_min_ratio = 0; // WarmupCosineLR multiplies the optimizer's rate
  double cosine_min_ratio = 1e-4;
  // OneCycle.
  double cycle_min_lr = 0;
  double cycle_max_lr = 0;
  double decay_lr_rate = 0;
  int64_t cycle_first_steps = 2000;
  int64_t cycle_second_steps = 2000;
  int64_t cycle_first_stairs = 0; // 0: continuous
  int64_t cycle_second_stairs = 0;
  int64_t decay_steps = 0; // 0: no decay after the cycle
  bool cycle_momentum = true;
  double cycle_min_momentum = 0.8;
  double cycle_max_momentum = 0.9;
  double decay_momentum_rate = 0;
  // LRRangeTest.
  double range_min_lr = 1e-3;
  double range_step_rate = 1.0;
  int64_t range_steps = 2000;
  bool range_staircase = false;
};

// What update k runs with.
struct Rates {
  double lr;
  double momentum; // beta1 for the Adam family, momentum for SGD
  double beta2; // NaN: the optimizer's own; OneCycle with momentum sets it
};

// base_lr and base_momentum are the optimizer's own, used where the schedule leaves them alone.
// pre: update >= 1
Rates rates_at(const ScheduleParameters& parameters, double base_lr, double base_momentum,
               int64_t update);

} // namespace zero::optim

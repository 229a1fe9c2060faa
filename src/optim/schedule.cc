// The schedules, each written in DeepSpeed's iteration number i = update - 2, so that the formulas
// can be laid beside its source.
// SPDX-License-Identifier: BSD-3-Clause
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zero::optim {
namespace {

constexpr double kPi = 3.14159265358979323846;

// 0 to 1 over the warm-up's w iterations; pre: 0 <= i < w.
double warmup_progress(const ScheduleParameters& p, int64_t i, int64_t w) {
  const double position = static_cast<double>(i);
  const double length = static_cast<double>(w);
  return p.warmup_is_linear ? position / length : std::log(position + 1) / std::log(length);
}

// DeepSpeed takes at least 2, for ln 1 is 0.
int64_t warmup_length(const ScheduleParameters& p) {
  return std::max<int64_t>(2, p.warmup_steps);
}

double warmup_lr(const ScheduleParameters& p, double base_lr, int64_t i) {
  const double low = p.warmup_min_lr;
  const double high = p.warmup_max_is_base ? base_lr : p.warmup_max_lr;
  const int64_t w = warmup_length(p);
  if (i < 0) return low;
  if (i < w) return low + (high - low) * warmup_progress(p, i, w);
  if (p.schedule == Schedule::kWarmup) return high;
  const int64_t t = p.total_steps;
  const double rest = static_cast<double>(t - i) / static_cast<double>(std::max<int64_t>(1, t - w));
  return low + (high - low) * std::clamp(rest, 0.0, 1.0);
}

double cosine_lr(const ScheduleParameters& p, double base_lr, int64_t i) {
  const int64_t w = warmup_length(p);
  if (i < 0) return 0;
  double ratio = 0;
  if (i < w) {
    ratio = p.warmup_min_ratio + (1 - p.warmup_min_ratio) * warmup_progress(p, i, w);
  } else {
    const double position = static_cast<double>(i - w + 1) /
                            static_cast<double>(std::max<int64_t>(1, p.total_steps - w));
    const double c = p.cosine_min_ratio;
    ratio = c + (1 - c) * (1 + std::cos(kPi * std::min(1.0, position))) / 2;
  }
  return base_lr * std::max(0.0, ratio);
}

// Height of the triangle, 0 to 1 to 0, at step j of the cycle; stairs quantise each side.
double cycle_height(const ScheduleParameters& p, int64_t j) {
  const bool rising = j <= p.cycle_first_steps;
  const double length = static_cast<double>(rising ? p.cycle_first_steps : p.cycle_second_steps);
  const double step = static_cast<double>(rising ? j : j - p.cycle_first_steps);
  const int64_t stairs = rising ? p.cycle_first_stairs : p.cycle_second_stairs;
  double share = step / length;
  if (stairs > 0) {
    // The product first: a step that ends a stair then divides exactly.
    const double count = static_cast<double>(stairs);
    share = std::floor(step * count / length) / count;
  }
  return rising ? share : 1 - share;
}

Rates one_cycle(const ScheduleParameters& p, double base_momentum, int64_t update) {
  const int64_t j = update - 1;
  const int64_t cycle = p.cycle_first_steps + p.cycle_second_steps;
  Rates rates{};
  rates.momentum = base_momentum;
  rates.beta2 = p.cycle_momentum ? 0.99 : std::numeric_limits<double>::quiet_NaN();
  if (j <= cycle) {
    const double s = cycle_height(p, j);
    rates.lr = p.cycle_min_lr + (p.cycle_max_lr - p.cycle_min_lr) * s;
    if (p.cycle_momentum) {
      rates.momentum = p.cycle_max_momentum - (p.cycle_max_momentum - p.cycle_min_momentum) * s;
      // The first update still runs with what the constructor wrote.
      if (update == 1) rates.momentum = p.cycle_min_momentum;
    }
    return rates;
  }
  const double x =
      p.decay_steps > 0 ? static_cast<double>(j - cycle) / static_cast<double>(p.decay_steps) : 0;
  rates.lr = p.cycle_min_lr / (1 + p.decay_lr_rate * x);
  if (p.cycle_momentum) rates.momentum = p.cycle_max_momentum * (1 + p.decay_momentum_rate * x);
  return rates;
}

double range_test_lr(const ScheduleParameters& p, int64_t update) {
  double x = static_cast<double>(update - 1) / static_cast<double>(p.range_steps);
  if (p.range_staircase) x = std::floor(x);
  return p.range_min_lr * (1 + p.range_step_rate * x);
}

} // namespace

Rates rates_at(const ScheduleParameters& p, double base_lr, double base_momentum, int64_t update) {
  const int64_t i = update - 2;
  Rates rates{base_lr, base_momentum, std::numeric_limits<double>::quiet_NaN()};
  switch (p.schedule) {
    case Schedule::kConstant:
      break;
    case Schedule::kWarmup:
    case Schedule::kWarmupDecay:
      rates.lr = warmup_lr(p, base_lr, i);
      break;
    case Schedule::kWarmupCosine:
      rates.lr = cosine_lr(p, base_lr, i);
      break;
    case Schedule::kOneCycle:
      return one_cycle(p, base_momentum, update);
    case Schedule::kLrRangeTest:
      rates.lr = range_test_lr(p, update);
      break;
  }
  return rates;
}

} // namespace zero::optim

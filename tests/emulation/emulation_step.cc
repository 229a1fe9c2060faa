// The step's record on the device: verdict, loss scale and counters are the host's over many steps,
// without the host looking in between.
// SPDX-License-Identifier: BSD-3-Clause
#include <limits>

#include "cuda_cases.h"
#include "optim/hyper.h"
#include "optim/loss_scale.h"

namespace {

using namespace cuda_cases;

struct Verdict {
  zero::optim::LossScaleRules rules;
  double clipping = 1;
  bool checks_overflow = true;
};

CudaVerdict device_verdict(const Verdict& v, CudaStep* step, const ExactSum* sum,
                           const int64_t* non_finite) {
  CudaVerdict d;
  d.step = step;
  d.sum = sum;
  d.non_finite = non_finite;
  d.non_finite_count = 3;
  d.non_finite_stride = 5;
  d.clipping = v.clipping;
  d.checks_overflow = v.checks_overflow ? 1 : 0;
  d.dynamic = v.rules.dynamic ? 1 : 0;
  d.consecutive_hysteresis = v.rules.consecutive_hysteresis ? 1 : 0;
  d.minimum = v.rules.minimum;
  d.window = v.rules.window;
  d.hysteresis = v.rules.hysteresis;
  return d;
}

// Steps of which some overflow; the record after each is what the host's functions make of it.
void follow(const Verdict& v, uint64_t seed) {
  Random random(seed);
  zero::optim::LossScale scale = zero::optim::initial_loss_scale(v.rules);
  CudaStep first;
  first.average = 0.25;
  first.loss_scale = scale.scale;
  first.credits = scale.credits;
  DeviceValues<CudaStep> step(first);
  int64_t updates = 0, skipped = 0;
  for (int i = 0; i < 60; i++) {
    const ExactSum sum = random_sum(random);
    const bool found = random.below(4) == 0;
    std::vector<int64_t> slots(15, 0);
    if (found) slots[5 * random.below(3)] = 8;
    slots[1] = slots[7] = 99; // not what is asked
    const DeviceValues<ExactSum> device_sum(sum);
    const DeviceValues<int64_t> device_slots(slots);
    const CudaVerdict d = device_verdict(v, step.data(), device_sum.data(), device_slots.data());
    succeeded(table().verdict(&d, nullptr));

    const CudaStep got = step.back()[0];
    const zero::optim::GradientScale wanted =
        zero::optim::gradient_scale(exact_sum_root(sum), 0.25, scale.scale, v.clipping);
    const bool skip = found && v.checks_overflow;
    assert_int_equal(got.found, found);
    assert_int_equal(got.skip, skip);
    assert_true(got.norm == (found ? std::numeric_limits<double>::infinity() : wanted.norm));
    assert_true(got.clip_scale == (skip ? 1 : wanted.clip_scale));
    assert_true(got.factor == wanted.factor);
    assert_int_equal(got.row, updates);
    if (skip && !zero::optim::may_overflow(v.rules, scale)) {
      assert_int_equal(got.fatal, 1);
      return;
    }
    assert_int_equal(got.fatal, 0);
    zero::optim::update_loss_scale(v.rules, skip, &scale);
    (skip ? skipped : updates)++;
    assert_true(got.loss_scale == scale.scale);
    assert_int_equal(got.credits, scale.credits);
    assert_int_equal(got.iteration, scale.iteration);
    assert_int_equal(got.last_overflow, scale.last_overflow);
    assert_int_equal(got.updates, updates);
    assert_int_equal(got.skipped, skipped);
  }
}

void the_verdict_follows_the_hosts_over_many_steps(void**) {
  uint64_t seed = 1;
  for (const bool dynamic : {false, true}) {
    for (const int64_t hysteresis : {1, 3}) {
      for (const bool consecutive : {false, true}) {
        for (const double clipping : {0.0, 1.0, 1e-3}) {
          Verdict v;
          v.rules.dynamic = dynamic;
          v.rules.initial = dynamic ? 65536 : 128;
          v.rules.window = 3;
          v.rules.hysteresis = hysteresis;
          v.rules.consecutive_hysteresis = consecutive;
          v.clipping = clipping;
          v.checks_overflow = seed % 5 != 0;
          for (int round = 0; round < 4; round++) follow(v, seed++);
        }
      }
    }
  }
}

// Nothing moves any more until the host, who sees it when it looks, clears it.
void an_overflow_at_the_smallest_scale_stops_everything(void**) {
  Verdict v;
  v.rules.dynamic = true;
  v.rules.minimum = 4;
  CudaStep record;
  record.loss_scale = 4;
  const DeviceValues<CudaStep> step(record);
  ExactSum sum;
  exact_sum_clear(&sum);
  const DeviceValues<ExactSum> device_sum(sum);
  const DeviceValues<int64_t> bad(std::vector<int64_t>(15, 1)), good(std::vector<int64_t>(15, 0));
  CudaVerdict d = device_verdict(v, step.data(), device_sum.data(), bad.data());
  succeeded(table().verdict(&d, nullptr));
  assert_int_equal(step.back()[0].fatal, 1);
  assert_int_equal(step.back()[0].skip, 1);
  d.non_finite = good.data();
  succeeded(table().verdict(&d, nullptr));
  assert_int_equal(step.back()[0].skip, 1);
  assert_int_equal(step.back()[0].updates, 0);
  assert_int_equal(step.back()[0].iteration, 0);
  assert_true(step.back()[0].loss_scale == 4);
}

double root_on_device(const ExactSum& sum) {
  const DeviceValues<CudaStep> step{CudaStep()};
  const DeviceValues<ExactSum> device_sum(sum);
  const DeviceValues<int64_t> slots(std::vector<int64_t>(15, 0));
  Verdict v;
  v.clipping = 0;
  const CudaVerdict d = device_verdict(v, step.data(), device_sum.data(), slots.data());
  succeeded(table().verdict(&d, nullptr));
  return step.back()[0].norm;
}

// The square of an odd number of 54 bits, and the numbers beside it: its root lies in the middle of
// two doubles, and what is lost below decides.
void a_root_half_way_goes_to_even_unless_something_is_lost(void**) {
  constexpr uint64_t kHalf = (UINT64_C(1) << 53) + 1; // between 2^53 and 2^53 + 2
  __extension__ typedef unsigned __int128 Wide;
  for (const uint64_t root : {kHalf, kHalf + 2, kHalf + 4}) {
    for (const int beside : {-1, 0, 1}) {
      const Wide square = static_cast<Wide>(root) * root + static_cast<Wide>(beside);
      ExactSum sum;
      exact_sum_clear(&sum);
      for (int k = 0; k < 4; k++) {
        sum.limb[10 + k] =
            static_cast<int64_t>(static_cast<uint64_t>(square >> (32 * k)) & UINT32_MAX);
      }
      // limb 10 has units of 1: the root is the number itself, rounded to even if half way.
      const uint64_t low = root - 1, high = root + 1;
      const uint64_t even = low % 4 == 0 ? low : high;
      const uint64_t wanted = beside < 0 ? low : beside > 0 ? high : even;
      assert_true(root_on_device(sum) == static_cast<double>(wanted));
    }
  }
}

void the_root_of_an_exact_sum_is_the_hosts(void**) {
  Random random(77);
  for (int i = 0; i < 400; i++) {
    ExactSum sum = random_sum(random);
    if (i % 3 == 0) { // single bits from one end to the other
      exact_sum_clear(&sum);
      sum.limb[i / 3 % kLimbs] = INT64_C(1) << (i % 32);
      sum.limb[0] += i % 2;
    }
    if (i % 7 == 0) sum.limb[6] += INT64_C(1) << 55; // not normalised
    assert_true(root_on_device(sum) == exact_sum_root(sum));
  }
}

} // namespace

int main() {
  if (!belongs_to_the_tier()) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_verdict_follows_the_hosts_over_many_steps),
      cmocka_unit_test(an_overflow_at_the_smallest_scale_stops_everything),
      cmocka_unit_test(a_root_half_way_goes_to_even_unless_something_is_lost),
      cmocka_unit_test(the_root_of_an_exact_sum_is_the_hosts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

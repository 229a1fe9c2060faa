// The constants of every parameter's update, made on the device from the host's table of rates, are
// those that the host makes.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "cuda_cases.h"
#include "optim/hyper.h"

namespace {

using namespace cuda_cases;
using zero::optim::HyperParameters;

// The rates of two groups for four updates; the second half is read a second time (rows 4).
constexpr int32_t kGroups = 2, kParams = 7;
constexpr int64_t kRows = 4;

std::vector<CudaRates> rates() {
  std::vector<CudaRates> table;
  for (int64_t i = 0; i < kRows * kGroups; i++) {
    const double x = static_cast<double>(i);
    table.push_back({1e-3 / (1 + x), 0.9 - x * 0.01, 0.999 - x * 0.0003, 1e-8 * (1 + x), 0.01 * x,
                     0.95 - 0.01 * x});
  }
  return table;
}

float fp32(double value) {
  return static_cast<float>(value);
}

AdamConstants host_adam(const CudaRates& r, double lr, float grad_scale, int64_t t, bool correction,
                        bool decoupled) {
  HyperParameters hyper;
  hyper.lr = lr;
  hyper.beta1 = r.beta1;
  hyper.beta2 = r.beta2;
  hyper.weight_decay = r.weight_decay;
  const zero::optim::AdamStep step = zero::optim::adam_step(hyper, t, correction);
  return {grad_scale,
          fp32(r.beta1),
          fp32(1 - r.beta1),
          fp32(r.beta2),
          fp32(1 - r.beta2),
          fp32(r.epsilon),
          fp32(step.step_size),
          fp32(step.inverse_root_correction2),
          fp32(step.decay_factor),
          fp32(r.weight_decay),
          decoupled};
}

// All fields are 4 bytes but the bools at the end, behind which there may be padding.
template <typename Constants>
void assert_same_constants(const Constants& wanted, const Constants& got, size_t floats,
                           size_t bools) {
  assert_memory_equal(&wanted, &got, floats * sizeof(float) + bools);
}

struct Prepared {
  CudaPrepare prepare;
  std::vector<int64_t> steps;
  CudaStep step;
};

void check_constants(const Prepared& a, int32_t param, const CudaConstants& got, int64_t t) {
  const CudaRates r = rates()[static_cast<size_t>(a.step.row % kRows * kGroups + param % kGroups)];
  const float grad_scale = fp32(a.step.factor);
  const bool correction = a.prepare.bias_correction != 0, decoupled = a.prepare.decoupled != 0;
  switch (a.prepare.rule) {
    case kCudaSgd:
      assert_same_constants<SgdConstants>({grad_scale, fp32(r.lr), fp32(r.momentum), fp32(1 - 0.25),
                                           fp32(r.weight_decay), true, t == 1},
                                          got.sgd, 5, 2);
      return;
    case kCudaAdagrad:
      assert_same_constants<AdagradConstants>(
          {grad_scale, fp32(r.lr), fp32(r.epsilon), fp32(r.weight_decay)}, got.adagrad, 4, 0);
      return;
    case kCudaLion:
      assert_same_constants<LionConstants>(
          {grad_scale, fp32(r.beta1), fp32(1 - r.beta1), fp32(r.beta2), fp32(1 - r.beta2),
           fp32(r.lr), fp32(1 - r.lr * r.weight_decay)},
          got.lion, 7, 0);
      return;
    case kCudaLamb:
      assert_same_constants<LambConstants>(
          {grad_scale, fp32(r.beta1), fp32(1 - r.beta1), fp32(r.beta2), fp32(1 - r.beta2),
           fp32(r.epsilon), fp32(r.weight_decay), true},
          got.lamb, 7, 1);
      return;
    case kCudaMuon:
      if (param % 2 == 0) {
        const double rate = 0.02 * (r.lr / 1e-3), tall = 1.5;
        assert_same_constants<MuonConstants>({grad_scale, fp32(r.momentum), fp32(1 - r.momentum)},
                                             got.muon, 3, 0);
        assert_same_constants<ApplyConstants>({fp32(rate * tall), fp32(1 - rate * r.weight_decay)},
                                              got.apply, 2, 0);
        return;
      }
      assert_same_constants(
          host_adam(r, 0.003 * (r.lr / 1e-3), grad_scale, t, correction, decoupled), got.adam, 10,
          1);
      return;
    default:
      assert_same_constants(host_adam(r, r.lr, grad_scale, t, correction, decoupled), got.adam, 10,
                            1);
  }
}

// Six steps of which the third is skipped; parameter 4 is frozen, parameter 5 comes every other
// time: whose step count is its own.
void prepare_by(int32_t rule, bool correction, bool decoupled) {
  const DeviceValues<CudaRates> device_rates(rates());
  const DeviceValues<int32_t> groups(std::vector<int32_t>{0, 1, 0, 1, -1, 1, 0});
  const DeviceValues<int64_t> steps(std::vector<int64_t>(kParams, 0));
  const DeviceValues<double> tall(std::vector<double>{1.5, 0, 1.5, 0, 1.5, 0, 1.5});
  const DeviceValues<CudaConstants> constants((std::vector<CudaConstants>(kParams)));
  DeviceValues<CudaStep> step{CudaStep()};
  std::vector<int64_t> wanted_steps(kParams, 0);
  int64_t updates = 0;
  for (int i = 0; i < 6; i++) {
    CudaStep record;
    record.row = updates;
    record.skip = i == 2 ? 1 : 0;
    record.factor = 1.0 / (3 + i);
    step.upload(record);
    const int64_t odd = i % 2;
    const std::vector<int64_t> words = {0x0001000200010002, odd << 16 | INT64_C(1) << 32 | 3};
    const DeviceValues<int64_t> came_words(words);
    CudaPrepare p;
    p.step = step.data();
    p.rates = device_rates.data();
    p.rows = kRows;
    p.groups = kGroups;
    p.params = kParams;
    p.group_of = groups.data();
    p.came = came_words.data();
    p.param_steps = steps.data();
    p.rule = rule;
    p.bias_correction = correction ? 1 : 0;
    p.decoupled = decoupled ? 1 : 0;
    p.nesterov = 1;
    p.epsilon_inside_sqrt = 1;
    p.dampening = 0.25;
    p.muon_factor = tall.data();
    p.base_lr = 1e-3;
    p.muon_lr = 0.02;
    p.muon_adam_lr = 0.003;
    p.constants = constants.data();
    succeeded(table().prepare(&p, nullptr));
    const std::vector<CudaConstants> got = constants.back();
    for (int32_t param = 0; param < kParams; param++) {
      const auto at = static_cast<size_t>(param);
      const bool active = i != 2 && param != 4 && (param != 5 || odd == 1);
      assert_int_equal(got[at].active, active);
      if (!active) continue;
      wanted_steps[at]++;
      check_constants({p, wanted_steps, record}, param, got[at], wanted_steps[at]);
    }
    assert_true(steps.back() == wanted_steps);
    if (i != 2) updates++;
  }
}

void constants_of_every_rule_are_the_hosts(void**) {
  for (const int32_t rule : {kCudaAdam, kCudaSgd, kCudaAdagrad, kCudaLion, kCudaLamb, kCudaMuon}) {
    for (const bool correction : {false, true}) prepare_by(rule, correction, correction);
    prepare_by(rule, true, false);
  }
}

void steps_of_many_updates_have_the_hosts_bias_correction(void**) {
  const DeviceValues<CudaRates> device_rates(rates());
  for (const int64_t before : {0, 1, 6, 99, 12345, 1000000}) {
    const DeviceValues<int32_t> groups(std::vector<int32_t>(1, 0));
    const DeviceValues<int64_t> steps(std::vector<int64_t>(1, before));
    const DeviceValues<CudaConstants> constants((std::vector<CudaConstants>(1)));
    CudaStep record;
    record.row = before;
    const DeviceValues<CudaStep> step(record);
    Prepared a;
    a.step = record;
    CudaPrepare& p = a.prepare;
    p.step = step.data();
    p.rates = device_rates.data();
    p.rows = kRows;
    p.groups = kGroups;
    p.params = 1;
    p.group_of = groups.data();
    p.param_steps = steps.data();
    p.constants = constants.data();
    succeeded(table().prepare(&p, nullptr));
    check_constants(a, 0, constants.back()[0], before + 1);
  }
}

void trust_ratios_are_the_hosts(void**) {
  Random random(5);
  for (int i = 0; i < 30; i++) {
    const bool correction = i % 2 == 0;
    std::vector<ExactSum> directions, values;
    for (int p = 0; p < kParams; p++) {
      directions.push_back(random_sum(random));
      values.push_back(random_sum(random));
    }
    const DeviceValues<ExactSum> device_directions(directions), device_values(values);
    const DeviceValues<CudaRates> device_rates(rates());
    const DeviceValues<int32_t> groups(std::vector<int32_t>{0, 1, 0, 1, 0, 1, 0});
    const DeviceValues<int64_t> steps(std::vector<int64_t>(kParams, 7 + i));
    std::vector<CudaConstants> rows(kParams);
    for (CudaConstants& row : rows) row.active = 1;
    rows[3].active = 0;
    rows[3].apply = {9, 9};
    const DeviceValues<CudaConstants> constants(rows);
    CudaStep record;
    record.row = i;
    const DeviceValues<CudaStep> step(record);
    CudaTrustRatio t;
    t.prepare.step = step.data();
    t.prepare.rates = device_rates.data();
    t.prepare.rows = kRows;
    t.prepare.groups = kGroups;
    t.prepare.params = kParams;
    t.prepare.group_of = groups.data();
    t.prepare.param_steps = steps.data();
    t.prepare.bias_correction = correction ? 1 : 0;
    t.prepare.constants = constants.data();
    t.direction = device_directions.data();
    t.value = device_values.data();
    t.smallest = 0.01;
    t.largest = 10;
    succeeded(table().trust_ratio(&t, nullptr));
    for (size_t p = 0; p < kParams; p++) {
      const ApplyConstants got = constants.back()[p].apply;
      if (p == 3) {
        assert_true(got.step == 9);
        continue;
      }
      const double direction = exact_sum_root(directions[p]), value = exact_sum_root(values[p]);
      double ratio = 1;
      if (direction > 0 && value > 0) ratio = std::clamp(value / direction, 0.01, 10.0);
      const CudaRates r = rates()[static_cast<size_t>(i) % kRows * kGroups + p % kGroups];
      double rate = r.lr;
      if (correction) {
        rate *= std::sqrt(1 - zero::optim::power(r.beta2, 7 + i)) /
                (1 - zero::optim::power(r.beta1, 7 + i));
      }
      assert_true(got.step == fp32(rate * ratio));
      assert_true(got.decay_factor == 1);
    }
  }
}

} // namespace

int main() {
  if (!belongs_to_the_tier()) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(constants_of_every_rule_are_the_hosts),
      cmocka_unit_test(steps_of_many_updates_have_the_hosts_bias_correction),
      cmocka_unit_test(trust_ratios_are_the_hosts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

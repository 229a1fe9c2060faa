// LAMB's and Muon's directions and their application: the numbers of the DeepSpeed behaviour page
// (section 11), hand-made ones, and every target against the scalar kernel.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "update_cases.h"

namespace {

using namespace kernel_cases;

LambConstants lamb_constants(bool epsilon_inside_sqrt) {
  return {0.37f, 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f, 0.01f, epsilon_inside_sqrt};
}

// The whole of LAMB as an engine would put it together: direction, norms, trust ratio, apply.
void lamb_follows_the_vector_of_the_behaviour_page(void**) {
  const double wanted[3][2] = {{0.999500787851, 1.999499213388},
                               {0.999873949516, 1.999869961277},
                               {0.999555500421, 1.999549648822}};
  const float gradients[3] = {0.1f, -0.2f, 0.3f};
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    const KernelTable& table = host_kernel_table(i);
    float p[2] = {1, 2}, g[2], m[2] = {}, v[2] = {};
    UpdateStreams s;
    s.master = p;
    s.grad = g;
    s.state[0] = m;
    s.state[1] = v;
    s.count = 2;
    for (int t = 1; t <= 3; t++) {
      g[0] = gradients[t - 1];
      g[1] = 2 * gradients[t - 1];
      table.lamb(s, {1, 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f, 0.01f, false}, g);
      const double ratio = std::hypot(static_cast<double>(p[0]), static_cast<double>(p[1])) /
                           std::hypot(static_cast<double>(g[0]), static_cast<double>(g[1]));
      const double lr = 1e-3 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
      const double step = lr * std::clamp(ratio, 0.01, 10.0);
      table.apply(s, {static_cast<float>(step), 1}, g);
      for (int k = 0; k < 2; k++) {
        const double error = std::fabs(static_cast<double>(p[k]) - wanted[t - 1][k]);
        assert_true(error <= 1e-6 * wanted[t - 1][k]);
      }
    }
  }
}

// g = 0.5 * 8 = 4; m = 0.5 * 2 + 0.5 * 4 = 3; v = 0.5 * 2 + 0.5 * 16 = 9.
// d = sqrt(9) + 7 = 10 or sqrt(9 + 7) = 4; u = 3 / d + 0.25 * 2.
void lambs_epsilon_is_inside_or_outside_the_root(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const bool inside : {false, true}) {
      float p = 2, g = 8, m = 2, v = 2, direction = 0;
      uint16_t model = 0x1234;
      UpdateStreams s;
      s.master = &p;
      s.model = &model;
      s.model_dtype = ZERO_DTYPE_BF16;
      s.grad = &g;
      s.state[0] = &m;
      s.state[1] = &v;
      s.count = 1;
      host_kernel_table(i).lamb(s, {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 7, 0.25f, inside}, &direction);
      assert_true(m == 3 && v == 9);
      assert_true(direction == (inside ? 1.25f : 0.3f + 0.5f));
      assert_true(p == 2 && model == 0x1234 && g == 8);
    }
  }
}

// g = 0.5 * 8 = 4; m = 0.75 * 4 + 0.25 * 4 = 4, then 0.75 * 4 + 0.25 * 4: and with g = -12:
// m = 0.75 * 4 - 3 = 0, u = 0.75 * 0 - 3 = -3.
void muon_looks_ahead_as_nesterov(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    float g = 8, m = 4, direction = 0;
    UpdateStreams s; // no master
    s.grad = &g;
    s.state[0] = &m;
    s.count = 1;
    host_kernel_table(i).muon(s, {0.5f, 0.75f, 0.25f}, &direction);
    assert_true(m == 4 && direction == 4);
    g = -24;
    host_kernel_table(i).muon(s, {0.5f, 0.75f, 0.25f}, &direction);
    assert_true(m == 0 && direction == -3);
    g = 16;
    host_kernel_table(i).muon(s, {0.5f, 0.75f, 0.25f}, &direction);
    assert_true(m == 2 && direction == 3.5f); // m = 0.25 * 8, u = 0.75 * 2 + 2
  }
}

// The direction beside the gradient and, where that is fp32, in its place.
template <typename Direct>
void compare_direction(const char* what, const State& before, const Direct& direct) {
  State wanted = before;
  Array wanted_direction(ZERO_DTYPE_FP32, before.master.count());
  direct(scalar_kernels(), wanted.streams(), wanted_direction.floats());
  assert_same(what, before.master, wanted.master, Nan::kSameBits);
  assert_same(what, before.model, wanted.model, Nan::kSameBits);
  for (const KernelTable* table : vector_tables()) {
    State got = before;
    Array direction(ZERO_DTYPE_FP32, before.master.count());
    direct(*table, got.streams(), direction.floats());
    assert_same_state(what, wanted, got);
    assert_same(what, wanted_direction, direction);
    if (before.grad.dtype() != ZERO_DTYPE_FP32) continue;
    State in_place = before;
    direct(*table, in_place.streams(), in_place.grad.floats());
    assert_same(what, wanted_direction, in_place.grad);
    assert_same(what, wanted.first, in_place.first);
    assert_same(what, wanted.second, in_place.second);
  }
}

void every_target_makes_lambs_direction_as_the_scalar_kernel(void**) {
  for (const bool inside : {false, true}) {
    for_each_kind([&](const State& before) {
      compare_direction("lamb", before,
                        [&](const KernelTable& table, const UpdateStreams& s, float* direction) {
                          table.lamb(s, lamb_constants(inside), direction);
                        });
    });
  }
}

void every_target_makes_muons_direction_as_the_scalar_kernel(void**) {
  for_each_kind([](const State& before) {
    compare_direction("muon", before,
                      [](const KernelTable& table, const UpdateStreams& s, float* direction) {
                        table.muon(s, {0.37f, 0.95f, 0.05f}, direction);
                      });
  });
}

void every_target_applies_a_direction_as_the_scalar_kernel(void**) {
  for_each_kind([](const State& before) {
    Array direction(ZERO_DTYPE_FP32, before.master.count());
    Random random(before.master.count());
    direction.fill(random, Numbers::kAwkward);
    compare("apply", before, [&](const KernelTable& table, const UpdateStreams& s) {
      table.apply(s, {3e-3f, 0.997f}, direction.floats());
    });
  });
}

// p = 8 * 0.5 - 0.25 * 4 = 3, also in the model.
void a_direction_is_applied_after_the_decay(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    float p = 8;
    const float direction = 4;
    uint16_t model = 0;
    UpdateStreams s; // neither gradient nor states
    s.master = &p;
    s.model = &model;
    s.model_dtype = ZERO_DTYPE_BF16;
    s.count = 1;
    host_kernel_table(i).apply(s, {0.25f, 0.5f}, &direction);
    assert_true(p == 3);
    assert_int_equal(model, 0x4040);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lamb_follows_the_vector_of_the_behaviour_page),
      cmocka_unit_test(lambs_epsilon_is_inside_or_outside_the_root),
      cmocka_unit_test(muon_looks_ahead_as_nesterov),
      cmocka_unit_test(every_target_makes_lambs_direction_as_the_scalar_kernel),
      cmocka_unit_test(every_target_makes_muons_direction_as_the_scalar_kernel),
      cmocka_unit_test(every_target_applies_a_direction_as_the_scalar_kernel),
      cmocka_unit_test(a_direction_is_applied_after_the_decay),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

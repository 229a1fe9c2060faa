// Adagrad and Lion: the numbers of the DeepSpeed behaviour page (section 11, worked out there in
// double precision), the places where DeepSpeed is not followed, every target against the scalar.
// SPDX-License-Identifier: BSD-3-Clause
#include "update_cases.h"

namespace {

using namespace kernel_cases;

constexpr float kGradients[] = {0.1f, -0.2f, 0.3f, 0.0f};

// One parameter of an fp32 model.
struct One {
  float p = 1, g = 0, state[2] = {0, 0};
  UpdateStreams streams() {
    UpdateStreams s;
    s.master = &p;
    s.grad = &g;
    s.state[0] = &state[0];
    s.state[1] = &state[1];
    s.count = 1;
    return s;
  }
};

template <typename Update>
void assert_steps(const double (&wanted)[4], const Update& update) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    One one;
    for (int t = 0; t < 4; t++) {
      one.g = kGradients[t];
      update(host_kernel_table(i), one.streams());
      const double error = std::fabs(static_cast<double>(one.p) - wanted[t]);
      if (error > 1e-6 * std::fabs(wanted[t])) {
        fail_msg("%s, step %d: %.12f, expected %.12f", host_kernel_table(i).name, t + 1,
                 static_cast<double>(one.p), wanted[t]);
      }
    }
  }
}

void adagrad_follows_the_vector_of_the_behaviour_page(void**) {
  const double wanted[4] = {0.990000000010, 0.998944271916, 0.990926434661, 0.990926434661};
  assert_steps(wanted, [](const KernelTable& table, const UpdateStreams& s) {
    table.adagrad(s, {1, 1e-2f, 1e-10f, 0});
  });
}

// DeepSpeed's CPU Adagrad divides the undecayed gradient; torch and Duchi et al. the whole one.
// p = 2, g = 3 + 0.5 * 2 = 4, s = 9 + 16 = 25, p = 2 - 0.25 * 4 / (5 + 3) = 1.875 (DeepSpeed's
// numerator would make it 1.90625).
void adagrads_decay_is_in_both_places(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    One one;
    one.p = 2;
    one.g = 6;
    one.state[0] = 9;
    host_kernel_table(i).adagrad(one.streams(), {0.5f, 0.25f, 3, 0.5f});
    assert_true(one.p == 1.875f);
    assert_true(one.state[0] == 25);
  }
}

void lion_follows_the_vector_of_the_behaviour_page(void**) {
  const double wanted[4] = {0.998900000000, 0.999800110000, 0.998700129989, 0.997600259976};
  assert_steps(wanted, [](const KernelTable& table, const UpdateStreams& s) {
    table.lion(s, {1, 0.9f, 0.1f, 0.999f, 0.001f, 1e-3f, 0.9999f});
  });
}

// DeepSpeed moves a parameter that has no momentum and no gradient, up or down by the sign of its
// zero; here, as in the paper, it stays, and keeps the sign of its own zero.
void lion_stays_where_the_mix_is_zero(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const float zero : {0.0f, -0.0f}) {
      for (const float p : {2.0f, 0.0f, -0.0f}) {
        One one;
        one.p = p;
        one.g = zero;
        one.state[0] = zero;
        host_kernel_table(i).lion(one.streams(), {1, 0.5f, 0.5f, 0.5f, 0.5f, 0.25f, 0.5f});
        assert_int_equal(bits_of(one.p), bits_of(p / 2));
      }
    }
    // mix = 0.5 * 4 + 0.5 * -8 < 0: up by lr, after the decay; m = 0.25 * 4 + 0.75 * -8
    One one;
    one.p = 2;
    one.g = -16;
    one.state[0] = 4;
    host_kernel_table(i).lion(one.streams(), {0.5f, 0.5f, 0.5f, 0.25f, 0.75f, 0.25f, 0.5f});
    assert_true(one.p == 1.25f);
    assert_true(one.state[0] == -5);
  }
}

void a_lion_that_met_a_nan_says_so(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    One one;
    one.g = NAN;
    host_kernel_table(i).lion(one.streams(), {1, 0.9f, 0.1f, 0.99f, 0.01f, 1e-3f, 1});
    assert_true(std::isnan(one.p) && std::isnan(one.state[0]));
  }
}

void every_target_steps_adagrad_as_the_scalar_kernel(void**) {
  for_each_kind([](const State& before) {
    compare("adagrad", before, [](const KernelTable& table, const UpdateStreams& s) {
      table.adagrad(s, {0.37f, 3e-2f, 1e-7f, 0.01f});
    });
  });
}

void every_target_steps_lion_as_the_scalar_kernel(void**) {
  for_each_kind([](const State& before) {
    compare("lion", before, [](const KernelTable& table, const UpdateStreams& s) {
      table.lion(s, {0.37f, 0.9f, 0.1f, 0.99f, 0.01f, 3e-4f, 0.9997f});
    });
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(adagrad_follows_the_vector_of_the_behaviour_page),
      cmocka_unit_test(adagrads_decay_is_in_both_places),
      cmocka_unit_test(lion_follows_the_vector_of_the_behaviour_page),
      cmocka_unit_test(lion_stays_where_the_mix_is_zero),
      cmocka_unit_test(a_lion_that_met_a_nan_says_so),
      cmocka_unit_test(every_target_steps_adagrad_as_the_scalar_kernel),
      cmocka_unit_test(every_target_steps_lion_as_the_scalar_kernel),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

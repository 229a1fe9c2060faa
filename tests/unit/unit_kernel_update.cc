// AdamW, Adam and SGD: the formulas against numbers worked out by hand or in long double, and every
// vector target bit by bit against the scalar kernel.
// SPDX-License-Identifier: BSD-3-Clause
#include "update_cases.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using namespace kernel_cases;

AdamConstants adam_constants(bool decoupled) {
  AdamConstants c = {};
  c.grad_scale = 0.37f;
  c.beta1 = 0.9f;
  c.one_minus_beta1 = 0.1f;
  c.beta2 = 0.999f;
  c.one_minus_beta2 = 0.001f;
  c.epsilon = 1e-8f;
  c.step_size = 3e-3f;
  c.inverse_root_correction2 = 1.7f;
  c.decay_factor = 0.9997f;
  c.weight_decay = 0.03f;
  c.decoupled = decoupled;
  return c;
}

void every_target_steps_adam_as_the_scalar_kernel(void**) {
  for (const bool decoupled : {false, true}) {
    for_each_kind([&](const State& before) {
      compare("adam", before, [&](const KernelTable& table, const UpdateStreams& streams) {
        table.adam(streams, adam_constants(decoupled));
      });
    });
  }
}

void every_target_steps_sgd_as_the_scalar_kernel(void**) {
  for (int bits = 0; bits < 16; bits++) {
    SgdConstants c = {0.37f, 3e-3f, 0, 0.8f, 0, (bits & 1) != 0, (bits & 2) != 0};
    if ((bits & 4) != 0) c.momentum = 0.9f;
    if ((bits & 8) != 0) c.weight_decay = 0.01f;
    for_each_kind([&](const State& before) {
      compare("sgd", before, [&](const KernelTable& table, const UpdateStreams& streams) {
        table.sgd(streams, c);
      });
    });
  }
}

// Large enough for a model copy that goes past the caches.
void large_counts_step_as_the_scalar_kernel(void**) {
  for (const zero_dtype model : kDtypes) {
    for (const uint64_t extra : {0, 16, 37}) {
      const State before = make_state(ZERO_DTYPE_BF16, model, true, (1u << 19) + extra, 0,
                                      Numbers::kFinite, extra + 5);
      compare("adam", before, [&](const KernelTable& table, const UpdateStreams& streams) {
        table.adam(streams, adam_constants(true));
      });
    }
  }
}

// Streams that a kernel does not need may be null.
void sgd_without_momentum_needs_no_state(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array p(ZERO_DTYPE_FP32, 37), g(ZERO_DTYPE_FP32, 37);
    for (uint64_t k = 0; k < 37; k++) {
      p.set(k, 3.0f);
      g.set(k, 8.0f);
    }
    UpdateStreams s;
    s.master = p.floats();
    s.grad = g.data();
    s.count = 37;
    host_kernel_table(i).sgd(s, {0.5f, 0.25f, 0, 1, 0, false, true}); // 3 - 0.25 * (0.5 * 8)
    for (uint64_t k = 0; k < 37; k++) assert_true(p.at(k) == 2.0f);
  }
}

// By hand, all exact in fp32.  g = 0.5*8 + 0.25*2 = 4.5; first: b = 4.5; then, with
// dampening 0.5: b = 0.5*4.5 + 0.5*g.
void sgd_follows_torch_step_by_step(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const bool nesterov : {false, true}) {
      Array p(ZERO_DTYPE_FP32, 1), g(ZERO_DTYPE_FP32, 1), b(ZERO_DTYPE_FP32, 1);
      p.set(0, 2.0f);
      g.set(0, 8.0f);
      b.set(0, 1000.0f); // must not be read
      UpdateStreams s;
      s.master = p.floats();
      s.grad = g.data();
      s.state[0] = b.floats();
      s.count = 1;
      SgdConstants c = {0.5f, 0.25f, 0.5f, 0.5f, 0.25f, nesterov, true};
      host_kernel_table(i).sgd(s, c);
      assert_true(b.at(0) == 4.5f);
      // plain: 2 - 0.25*4.5 = 0.875; nesterov: g = 4.5 + 0.5*4.5 = 6.75, 2 - 0.25*6.75 = 0.3125
      assert_true(p.at(0) == (nesterov ? 0.3125f : 0.875f));
      c.first = false;
      host_kernel_table(i).sgd(s, c);
      // g = 4 + 0.25*p: 4.21875 or 4.078125;  b = 2.25 + 0.5*g: 4.359375 or 4.2890625
      assert_true(b.at(0) == (nesterov ? 4.2890625f : 4.359375f));
    }
  }
}

// (1 + 2^-12)^2 is 1 + 2^-11 + 2^-24; only a fused multiply-add keeps the last term.
void a_multiply_add_rounds_once(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    Array p(ZERO_DTYPE_FP32, 40), g(ZERO_DTYPE_FP32, 40), b(ZERO_DTYPE_FP32, 40);
    for (uint64_t k = 0; k < 40; k++) {
      p.set(k, 0.0f);
      g.set(k, -(1.0f + 0x1p-11f));
      b.set(k, 1.0f + 0x1p-12f);
    }
    UpdateStreams s;
    s.master = p.floats();
    s.grad = g.data();
    s.state[0] = b.floats();
    s.count = 40;
    host_kernel_table(i).sgd(s, {1.0f, 1.0f, 1.0f + 0x1p-12f, 1.0f, 0.0f, false, false});
    for (uint64_t k = 0; k < 40; k++) assert_true(b.at(k) == 0x1p-24f);
  }
}

// Kingma & Ba, algorithm 1, and Loshchilov & Hutter, algorithm 2, in long double.
void adam_is_close_to_the_formula_of_the_papers(void**) {
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    for (const bool decoupled : {false, true}) {
      const long double lr = 1e-2L, decay = 0.1L, beta1 = 0.9L, beta2 = 0.999L, eps = 1e-8L;
      long double p = 1.5L, m = 0, v = 0;
      Array master(ZERO_DTYPE_FP32, 1), grad(ZERO_DTYPE_FP32, 1);
      Array first(ZERO_DTYPE_FP32, 1), second(ZERO_DTYPE_FP32, 1);
      master.set(0, 1.5f);
      first.set(0, 0);
      second.set(0, 0);
      for (int t = 1; t <= 20; t++) {
        const float gradient = std::sin(static_cast<float>(t));
        long double g = gradient;
        if (!decoupled) g += decay * p;
        if (decoupled) p -= lr * decay * p;
        m = beta1 * m + (1 - beta1) * g;
        v = beta2 * v + (1 - beta2) * g * g;
        const long double correction1 = 1 - std::pow(beta1, static_cast<long double>(t));
        const long double correction2 = 1 - std::pow(beta2, static_cast<long double>(t));
        p -= lr * (m / correction1) / (std::sqrt(v / correction2) + eps);

        AdamConstants c = {};
        c.grad_scale = 1;
        c.beta1 = 0.9f;
        c.one_minus_beta1 = 0.1f;
        c.beta2 = 0.999f;
        c.one_minus_beta2 = 0.001f;
        c.epsilon = 1e-8f;
        c.step_size = static_cast<float>(lr / correction1);
        c.inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2));
        c.decay_factor = static_cast<float>(1 - lr * decay);
        c.weight_decay = static_cast<float>(decay);
        c.decoupled = decoupled;
        grad.set(0, gradient);
        UpdateStreams s;
        s.master = master.floats();
        s.grad = grad.data();
        s.state[0] = first.floats();
        s.state[1] = second.floats();
        s.count = 1;
        host_kernel_table(i).adam(s, c);
        const long double error = std::fabs(static_cast<long double>(master.at(0)) - p);
        assert_true(error < 2e-6L * std::fabs(p));
      }
    }
  }
}

// A host program whose libraries set the processor to flush denormals, or to round otherwise, gets
// the same bits, and finds its setting as it left it.
void the_callers_floating_point_settings_change_nothing(void**) {
#if defined(__x86_64__)
  Random random(3);
  State before = make_state(ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, true, 100, 0, Numbers::kAwkward, 9);
  for (uint64_t k = 0; k < 100; k++) { // denormals in, denormals out
    before.grad.set_bits(k, static_cast<uint32_t>(random.below(0x800000)));
    before.first.set_bits(k, static_cast<uint32_t>(random.below(0x800000)));
  }
  const unsigned usual = _mm_getcsr();
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    State wanted = before;
    host_kernel_table(i).adam(wanted.streams(), adam_constants(true));
    for (const unsigned set : {0x8040u, 0x6000u, 0xe040u}) {
      State got = before;
      _mm_setcsr(usual | set);
      host_kernel_table(i).adam(got.streams(), adam_constants(true));
      const unsigned after = _mm_getcsr();
      _mm_setcsr(usual);
      assert_int_equal(after & 0xffc0u, (usual | set) & 0xffc0u);
      assert_same_state(host_kernel_table(i).name, wanted, got);
    }
  }
#else
  skip();
#endif
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_target_steps_adam_as_the_scalar_kernel),
      cmocka_unit_test(every_target_steps_sgd_as_the_scalar_kernel),
      cmocka_unit_test(large_counts_step_as_the_scalar_kernel),
      cmocka_unit_test(sgd_without_momentum_needs_no_state),
      cmocka_unit_test(sgd_follows_torch_step_by_step),
      cmocka_unit_test(a_multiply_add_rounds_once),
      cmocka_unit_test(adam_is_close_to_the_formula_of_the_papers),
      cmocka_unit_test(the_callers_floating_point_settings_change_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// 16-bit parameters and their fp32 masters, on several ranks at every stage: exact, kept, set from
// outside, beside fp32 parameters.
// SPDX-License-Identifier: BSD-3-Clause
#include "precision_rank.h"

using namespace precision;

namespace {

// ---- Reports ----

void r063_adam_on_fp16_parameters(void**) {
  Setup setup;
  setup.optimizer = R"({"type": "Adam", "params": {"lr": 1e-4}})";
  setup.section = ", \"initial_scale_power\": 0";
  at_all_stages({1, 2, 3}, setup, [](Rank& self) {
    const Floats start = {0.579f, -0.729f, 0.5493f};
    const zero_param_id w = self.add("w", start);
    self.shard();
    self.give(w, {-0.001497f, 0.0001875f, -0.013176f});
    EXPECT(self.step().skipped == 0);
    const double expected[] = {0.57920156, -0.72910390, 0.54941641};
    const Floats masters = self.master(w);
    for (size_t i = 0; i < 3; ++i) EXPECT(std::fabs(masters[i] - expected[i]) < 3e-8);
    EXPECT(same(self.get(w), rounded(kFp16, start)));
    self.close();
  });
}

void r064_a_zero_gradient_leaves_half_parameters_alone(void**) {
  for (const zero_dtype dtype : {kFp16, kBf16}) {
    Setup setup;
    setup.dtype = dtype;
    setup.optimizer = R"({"type": "Adam", "params": {"lr": 0.1}})";
    at_all_stages({1, 2, 3}, setup, [](Rank& self) {
      const Floats start = {1, -2, 0.5f};
      const zero_param_id w = self.add("w", start);
      self.shard();
      for (int32_t step = 1; step <= 3; ++step) {
        self.give_scaled(w, Floats(3, 0));
        const zero_step_info info = self.step();
        EXPECT(info.step == step && info.grad_norm == 0 && info.skipped == 0);
      }
      EXPECT(same(self.all_parts(w, 2), {start, start, Floats(3, 0), Floats(3, 0)}));
      self.close();
    });
  }
}

void r067_adam_means_adamw(void**) {
  struct Case {
    const char* optimizer;
    double expected;
  };
  const Case cases[] = {
      {R"({"type": "Adam", "params": {"lr": 0.1, "weight_decay": 0.1}})", 0.99},
      {R"({"type": "Adam", "params": {"lr": 0.1, "weight_decay": 0.1, "adam_w_mode": false}})",
       0.90000001},
      {R"({"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.1}})", 0.99},
      {R"({"type": "AdamW", "params": {"lr": 0.1}})", 1},
  };
  for (const Case& one : cases) {
    for (const zero_dtype dtype : {kFp32, kBf16}) {
      Setup setup;
      setup.dtype = dtype;
      setup.optimizer = one.optimizer;
      at_all_stages({2}, setup, [&](Rank& self) {
        const zero_param_id w = self.add("w", {1});
        self.shard();
        self.give(w, {0});
        self.step();
        EXPECT(near(self.master(w)[0], one.expected, 1e-7));
        char mode[8]; // the effective config names it
        uint64_t length = 0;
        OK(zero_config_get(zero_runtime_config(self.runtime), "optimizer.params.adam_w_mode", mode,
                           sizeof(mode), &length));
        const bool l2 = std::strstr(one.optimizer, "false") != nullptr;
        EXPECT(std::strcmp(mode, l2 ? "false" : "true") == 0);
        self.close();
      });
    }
  }
}

void r068_each_parameter_of_a_group_is_its_own_master_rounded(void**) {
  Setup setup;
  setup.optimizer = kAdamW;
  at_all_stages({1, 2, 3}, setup, [](Rank& self) {
    const size_t sizes[] = {5, 1, 9};
    float next = 1;
    std::vector<Floats> starts;
    for (size_t p = 0; p < 3; ++p) {
      starts.emplace_back();
      for (size_t i = 0; i < sizes[p]; ++i) starts.back().push_back(next += 0.137f);
      self.add("p" + std::to_string(p), starts[p]);
    }
    self.shard();
    for (size_t p = 3; p-- > 0;) {
      self.give_scaled(static_cast<zero_param_id>(p),
                       Floats(sizes[p], 0.01f * static_cast<float>(p + 1)));
    }
    EXPECT(self.step().skipped == 0);
    for (size_t p = 0; p < 3; ++p) {
      const auto id = static_cast<zero_param_id>(p);
      self.expect_values_are_rounded_masters(id);
      const Floats masters = self.master(id);
      // Decay and the first Adam step: near 0.999 p - 0.01, of this parameter's own start.
      for (size_t i = 0; i < sizes[p]; ++i) {
        EXPECT(near(masters[i], 0.999 * rounded(kFp16, starts[p][i]) - 0.01, 1e-5));
      }
    }
    self.close();
  });
}

void r069_small_updates_are_not_lost_in_bf16(void**) {
  Setup setup;
  setup.dtype = kBf16;
  setup.optimizer = R"({"type": "Adam", "params": {"lr": 6e-4}})";
  at_all_stages({1, 2}, setup, [](Rank& self) {
    const zero_param_id w = self.add("norm.weight", {1});
    self.shard();
    for (int32_t step = 0; step < 100; ++step) {
      self.give(w, {0.01f});
      self.step();
    }
    // 100 roundings of a number below 1 to fp32: half of 2^-24 each.
    EXPECT(std::fabs(self.master(w)[0] - 0.94000006) < 100 * std::ldexp(1.0, -25));
    EXPECT(self.get(w)[0] == 0.94140625f);
    self.close();
  });
}

void r071_momentum_under_zero(void**) {
  for (const zero_dtype dtype : {kFp16, kFp32, kBf16}) {
    Setup setup;
    setup.dtype = dtype;
    setup.optimizer = R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}})";
    at_all_stages({2, 3}, setup, [&](Rank& self) {
      const zero_param_id w = self.add("w", {1});
      self.shard();
      const double expected[] = {0.9, 0.71, 0.439};
      for (const double weight : expected) {
        // 65536 times 1 is beyond fp16: the default scale must come down before anything is taken.
        zero_step_info info;
        do {
          self.give_scaled(w, {1});
          info = self.step();
        } while (info.skipped == 1);
        EXPECT(near(self.master(w)[0], weight));
        self.expect_values_are_rounded_masters(w);
      }
      EXPECT(zero_loss_scale(self.runtime) == (dtype == kFp16 ? 32768 : 1));
      self.close();
    });
  }
}

// ---- Masters ----

// 2^-12 is lost in both 16-bit types next to 1, and exact in fp32.
void masters_keep_what_rounding_hides(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    if (dtype == kFp16) setup.section = ", \"loss_scale\": 4";
    at_all_stages({1, 2, 3}, setup, [](Rank& self) {
      const zero_param_id w = self.add("w", Floats(67, 1));
      self.shard();
      const float step = std::ldexp(1.0f, -12);
      for (int32_t k = 1; k <= 9; ++k) {
        self.give_scaled(w, Floats(67, step));
        self.step();
        EXPECT(same(self.master(w), Floats(67, 1 - static_cast<float>(k) * step)));
        self.expect_values_are_rounded_masters(w);
      }
      self.close();
    });
  }
}

void a_value_that_is_set_is_the_master_and_the_other_way_round(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    at_all_stages({1, 2, 3}, setup, [&](Rank& self) {
      const zero_param_id a = self.add("a", Floats(50, 1));
      const zero_param_id b = self.add("b", Floats(33, 2));
      self.shard();
      Floats masters, values;
      for (int32_t i = 0; i < 50; ++i) masters.push_back(1 + static_cast<float>(i) / 8191);
      self.set(a, ZERO_PART_MASTER, masters);
      EXPECT(same(self.master(a), masters) && same(self.get(a), rounded(dtype, masters)));
      EXPECT(same(self.get(b), Floats(33, 2)) && same(self.master(b), Floats(33, 2)));
      for (int32_t i = 0; i < 33; ++i) values.push_back(rounded(dtype, static_cast<float>(i) / 7));
      self.set(b, ZERO_PART_VALUE, values);
      EXPECT(same(self.get(b), values) && same(self.master(b), values));
      EXPECT(same(self.master(a), masters));
      // What a forward pass sees, and what the next step starts from.
      zero_buffer loan;
      OK(zero_params_acquire(self.runtime, &a, 1, nullptr, &loan));
      for (uint64_t i = 0; i < 50; ++i) {
        EXPECT(training::get(loan.data, dtype, i) == rounded(dtype, masters[i]));
      }
      OK(zero_params_release(self.runtime, &a, 1, 0, nullptr));
      self.give(b, Floats(33, 0));
      self.give(a, Floats(50, 0));
      self.step();
      EXPECT(same(self.master(a), masters) && same(self.master(b), values));
      EXPECT(same(self.get(a), rounded(dtype, masters)));
      self.close();
    });
  }
}

void changes_kept_on_release_are_value_and_master(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    at_all_stages({1, 2, 3}, setup, [&](Rank& self) {
      const zero_param_id a = self.add("a", Floats(50, 1));
      const zero_param_id b = self.add("b", Floats(33, 1));
      self.shard();
      const Floats masters(33, 1 + std::ldexp(1.0f, -13));
      self.set(b, ZERO_PART_MASTER, masters);
      const zero_param_id both[] = {a, b};
      zero_buffer loans[2];
      OK(zero_params_acquire(self.runtime, both, 2, nullptr, loans));
      Floats changed;
      for (uint64_t i = 0; i < 50; ++i) {
        changed.push_back(rounded(dtype, static_cast<float>(i) / 3));
        training::put(loans[0].data, dtype, i, changed.back());
      }
      OK(zero_params_release(self.runtime, &a, 1, 1, nullptr));
      OK(zero_params_release(self.runtime, &b, 1, 0, nullptr));
      EXPECT(same(self.get(a), changed) && same(self.master(a), changed));
      EXPECT(same(self.master(b), masters)); // only looked at: nothing is lost
      self.give(b, Floats(33, 0));
      self.give_scaled(a, Floats(50, 0.5f));
      self.step();
      for (float& value : changed) value -= 0.5f;
      EXPECT(same(self.master(a), changed) && same(self.master(b), masters));
      self.close();
    });
  }
}

void a_broadcast_sets_masters_from_the_root_s_values(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    setup.optimizer = kAdamW;
    for (const int32_t count : {2, 3}) {
      for (setup.stage = 0; setup.stage <= 2; ++setup.stage) {
        at_ranks(count, setup, [&](Rank& self) {
          const zero_param_id w = self.add("w", Floats(70, 1));
          self.shard();
          self.give(w, Floats(70, 1));
          self.step();
          zero_buffer own;
          OK(zero_param_buffer(self.runtime, w, &own));
          for (uint64_t i = 0; i < 70; ++i) {
            training::put(own.data, dtype, i,
                          static_cast<float>(i) + 100.0f * static_cast<float>(self.rank));
          }
          OK(zero_params_broadcast(self.runtime, 1));
          Floats expected;
          for (int32_t i = 0; i < 70; ++i)
            expected.push_back(rounded(dtype, static_cast<float>(i + 100)));
          EXPECT(same(self.get(w), expected) && same(self.master(w), expected));
          self.close();
        });
      }
      setup.stage = 3;
      at_ranks(count, setup, [&](Rank& self) {
        self.add("w", Floats(70, 1));
        self.shard();
        EXPECT(zero_params_broadcast(self.runtime, 1) == ZERO_ERR_UNSUPPORTED);
      });
    }
  }
}

void a_host_optimizer_moves_masters_and_values_follow_on_all_ranks(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    setup.optimizer = R"({"type": "libzero.host", "params": {"states": 0}})";
    if (dtype == kFp16) setup.section = ", \"loss_scale\": 8";
    at_all_stages({1, 2, 3}, setup, [](Rank& self) {
      const zero_param_id w = self.add("w", Floats(100, 1));
      const zero_param_id norm = self.add("norm", Floats(3, 1), kFp32);
      self.shard();
      for (int32_t k = 1; k <= 3; ++k) {
        self.give_scaled(norm, Floats(3, 0.25f));
        self.give_scaled(w, Floats(100, 0.125f));
        OK(zero_step_begin(self.runtime, nullptr, nullptr, nullptr));
        for (const zero_param_id param : {w, norm}) {
          zero_buffer grad, master;
          OK(zero_shard_buffer(self.runtime, param, ZERO_PART_GRAD, 0, &grad));
          OK(zero_shard_buffer(self.runtime, param, ZERO_PART_MASTER, 0, &master));
          for (uint64_t i = 0; i < master.count; ++i) {
            static_cast<float*>(master.data)[i] -= static_cast<float*>(grad.data)[i] / 1000;
          }
        }
        OK(zero_step_end(self.runtime, nullptr));
        for (const float value : self.master(w)) EXPECT(near(value, 1 - 0.000125 * k, 2e-7));
        for (const float value : self.get(norm)) EXPECT(near(value, 1 - 0.00025 * k, 2e-7));
        self.expect_values_are_rounded_masters(w);
      }
      self.close();
    });
  }
}

void fp32_parameters_beside_16_bit_ones_are_their_own_masters(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    if (dtype == kFp16) setup.section = ", \"loss_scale\": 16";
    at_all_stages({1, 2, 3}, setup, [&](Rank& self) {
      const zero_param_id half = self.add("half", Floats(40, 1));
      const zero_param_id norm = self.add("norm", Floats(5, 1), kFp32);
      const zero_param_id last = self.add("last", Floats(3, 1));
      self.shard();
      const float step = std::ldexp(1.0f, -14);
      for (int32_t k = 1; k <= 4; ++k) {
        self.give_scaled(last, Floats(3, step));
        self.give_scaled(norm, Floats(5, step));
        self.give_scaled(half, Floats(40, step));
        const zero_step_info info = self.step();
        EXPECT(near(info.grad_norm, std::sqrt(48.0) * step, 1e-7)); // of both kinds
      }
      EXPECT(same(self.get(norm), Floats(5, 1 - 4 * step)));
      EXPECT(same(self.master(norm), self.get(norm)));
      EXPECT(same(self.get(half), Floats(40, 1)) && same(self.get(last), Floats(3, 1)));
      EXPECT(same(self.master(half), Floats(40, 1 - 4 * step)));
      self.close();
    });
  }
}

void a_16_bit_parameter_of_the_other_kind_is_a_conflict_on_all_ranks(void**) {
  for (const zero_dtype dtype : {kFp32, kBf16, kFp16}) {
    for (const zero_dtype other : {kBf16, kFp16}) {
      if (other == dtype) continue;
      Setup setup;
      setup.dtype = dtype;
      at_all_stages({2, 3}, setup, [&](Rank& self) {
        self.add("fine", Floats(4, 1));
        self.add("odd", Floats(4, 1), other);
        EXPECT(zero_shard_params(self.runtime, self.model) == ZERO_ERR_CONFIG_CONFLICT);
        const std::string said = ranks::last_error();
        EXPECT(said.find("\"odd\"") != std::string::npos);
        EXPECT(said.find(name_of(other)) != std::string::npos);
        EXPECT(zero_runtime_status(self.runtime) == ZERO_OK);
      });
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r063_adam_on_fp16_parameters),
      cmocka_unit_test(r064_a_zero_gradient_leaves_half_parameters_alone),
      cmocka_unit_test(r067_adam_means_adamw),
      cmocka_unit_test(r068_each_parameter_of_a_group_is_its_own_master_rounded),
      cmocka_unit_test(r069_small_updates_are_not_lost_in_bf16),
      cmocka_unit_test(r071_momentum_under_zero),
      cmocka_unit_test(masters_keep_what_rounding_hides),
      cmocka_unit_test(a_value_that_is_set_is_the_master_and_the_other_way_round),
      cmocka_unit_test(changes_kept_on_release_are_value_and_master),
      cmocka_unit_test(a_broadcast_sets_masters_from_the_root_s_values),
      cmocka_unit_test(a_host_optimizer_moves_masters_and_values_follow_on_all_ranks),
      cmocka_unit_test(fp32_parameters_beside_16_bit_ones_are_their_own_masters),
      cmocka_unit_test(a_16_bit_parameter_of_the_other_kind_is_a_conflict_on_all_ranks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

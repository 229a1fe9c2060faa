// Reports of users of other ZeRO implementations: averages, norms, clipping.
// SPDX-License-Identifier: BSD-3-Clause
#include "report_rank.h"

using namespace reports;

namespace {

void r018_a_parameter_without_gradient_in_some_micro_batches(void**) {
  Setup setup;
  setup.optimizer = R"({"type": "SGD", "params": {"lr": 1, "weight_decay": 0.1}})";
  setup.top = R"(, "gradient_accumulation_steps": 3)";
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t rank) {
      const zero_param_id a = self.add("a", Floats(4, 7));
      const zero_param_id b = self.add("b", Floats(4, 0));
      self.shard();
      for (int32_t micro = 0; micro < 3; ++micro) {
        if (micro == 1 && rank == 0) self.give(b, Floats(4, 3));
        self.micro_end();
      }
      self.step();
      EXPECT(same(self.get(b), Floats(4, -0.5f)));
      EXPECT(same(self.get(a), Floats(4, 7))); // no decay either
      self.close();
    });
  }
}

void r020_clipping_is_once_a_step(void**) {
  Setup setup;
  setup.clipping = 1;
  setup.top = R"(, "gradient_accumulation_steps": 2)";
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(1, setup, [](Rank& self, int32_t) {
      const zero_param_id w = self.add("w", Floats(2, 0));
      self.shard();
      self.give(w, {6, 0});
      self.micro_end();
      self.give(w, {0, 8});
      self.micro_end();
      EXPECT(near(self.step().grad_norm, 5, 1e-15));
      const Floats moved = self.get(w);
      EXPECT(near(moved[0], -0.59999988, 1e-7));
      EXPECT(near(moved[1], -0.79999984, 1e-7));
    });
  }
}

void r022_the_norm_is_5_at_every_stage_and_size(void**) {
  Setup setup;
  for (const int32_t ranks : {1, 2, 3, 4, 8}) {
    for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
      at_ranks(ranks, setup, [](Rank& self, int32_t) {
        const zero_param_id w = self.add("w", Floats(2, 0));
        self.shard();
        self.give(w, {3, 4});
        EXPECT(self.step().grad_norm == 5);
        EXPECT(same(self.get(w), {-3, -4}));
        self.close();
      });
    }
  }
}

void r023_every_rank_reports_the_global_norm(void**) {
  Setup setup;
  setup.clipping = 1;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [&](Rank& self, int32_t rank) {
      const zero_param_id a = self.add("a", {0});
      const zero_param_id b = self.add("b", {0});
      self.shard();
      zero_span own_a, own_b;
      OK(zero_param_shard(self.runtime, a, rank, &own_a));
      OK(zero_param_shard(self.runtime, b, rank, &own_b));
      // Each rank owns one of the two, where they share a bucket.
      if (setup.stage == 1 || setup.stage == 2) EXPECT(own_a.count + own_b.count == 1);
      self.give(b, {rank == 0 ? 8.0f : 0.0f});
      self.give(a, {rank == 0 ? 0.0f : 6.0f});
      const zero_step_info info = self.step();
      EXPECT(info.grad_norm == 5);
      EXPECT(near(info.clip_scale, 0.19999996, 1e-8));
      EXPECT(near(self.get(a)[0], -0.6, 1e-6));
      EXPECT(near(self.get(b)[0], -0.8, 1e-6));
      self.close();
    });
  }
}

// Not offered.  Nobody gets a 2-norm in its place without being told: a call that asks is refused,
// a file that asks gets a finding that names the key, and an infinite limit is no limit.
void r026_an_infinity_norm_is_refused_clearly(void**) {
  for (const char* key : {"norm_type", "clip_norm_type"}) {
    zero_config* config = nullptr;
    assert_int_equal(zero_config_create(&config), ZERO_OK);
    assert_int_equal(zero_config_set(config, key, "\"inf\""), ZERO_ERR_CONFIG_UNKNOWN_KEY);
    assert_non_null(std::strstr(ranks::last_error().c_str(), key));
    zero_config_destroy(config);
    const std::string text = std::string("{\"train_batch_size\": 1, \"gradient_clipping\": 1, \"") +
                             key + "\": \"inf\"}";
    assert_int_equal(zero_config_load_text(text.data(), text.size(), &config), ZERO_OK);
    zero_config_check(config);
    assert_int_equal(zero_config_diagnostic_count(config), 1);
    zero_diagnostic finding;
    zero_diagnostic_init(&finding, sizeof(finding));
    assert_int_equal(zero_config_diagnostic_at(config, 0, &finding), ZERO_OK);
    assert_string_equal(finding.key, key);
    assert_non_null(std::strstr(finding.message, "unknown"));
    zero_config_destroy(config);
  }
  const std::string text = R"({"train_batch_size": 1, "gradient_clipping": "inf"})";
  zero_config* config = nullptr;
  assert_int_equal(zero_config_load_text(text.data(), text.size(), &config), ZERO_OK);
  assert_int_equal(zero_config_check(config), ZERO_ERR_CONFIG_VALUE);
  assert_non_null(std::strstr(ranks::last_error().c_str(), "gradient_clipping"));
  zero_config_destroy(config);
}

void r028_the_norm_is_the_same_for_every_bucket_size(void**) {
  const std::vector<int64_t> sizes = {7, 1, 13, 5};
  Setup setup;
  for (const int64_t bucket : {1, 4, 7, 1000000}) {
    setup.zero = ", \"reduce_bucket_size\": " + std::to_string(bucket);
    for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
      at_ranks(3, setup, [&](Rank& self, int32_t) {
        std::vector<Floats> gradients;
        float next = 1;
        for (const int64_t size : sizes) {
          gradients.emplace_back();
          for (int64_t i = 0; i < size; ++i) gradients.back().push_back(next++);
          self.add("p" + std::to_string(gradients.size()), Floats(static_cast<size_t>(size), 0));
        }
        self.shard();
        for (size_t p = sizes.size(); p-- > 0;) {
          self.give(static_cast<zero_param_id>(p), gradients[p]);
        }
        EXPECT(self.step().grad_norm == std::sqrt(6201.0));
        self.close();
      });
    }
  }
}

void r029_the_norm_reported_is_the_one_before_clipping(void**) {
  Setup setup;
  setup.clipping = 1;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t) {
      const zero_param_id w = self.add("w", Floats(2, 0));
      self.shard();
      self.give(w, {3, 4});
      const zero_step_info info = self.step();
      EXPECT(info.grad_norm == 5);
      EXPECT(near(info.clip_scale, 0.19999996, 1e-8));
      EXPECT(near(self.get(w)[0], -0.6, 1e-6));
      EXPECT(near(self.get(w)[1], -0.8, 1e-6));
      self.close();
    });
  }
}

void r030_clipping_0_is_off_and_negative_or_nan_refused(void**) {
  Setup setup;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t) {
      const zero_param_id w = self.add("w", Floats(2, 0));
      self.shard();
      self.give(w, {3, 4});
      const zero_step_info info = self.step();
      EXPECT(info.clip_scale == 1 && info.grad_norm == 5);
      EXPECT(same(self.get(w), {-3, -4}));
      self.close();
    });
  }
  setup.top = R"(, "gradient_clipping": 1e30)";
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    Setup large = setup;
    large.top.clear();
    large.clipping = 1e30;
    at_ranks(2, large, [](Rank& self, int32_t) {
      const zero_param_id w = self.add("w", Floats(3, 0));
      self.shard();
      self.give(w, {0.1f, -1e-30f, 12345.678f});
      self.step();
      EXPECT(same(self.get(w), {-0.1f, 1e-30f, -12345.678f}));
      self.close();
    });
  }
  for (const char* value : {"-1", "NaN", "\"NaN\"", "-1e-30"}) {
    const std::string text = std::string("{\"gradient_clipping\": ") + value + "}";
    zero_config* config = nullptr;
    zero_status status = zero_config_load_text(text.data(), text.size(), &config);
    zero_runtime* runtime = nullptr;
    if (status == ZERO_OK) status = zero_init(config, nullptr, &runtime);
    assert_true(status >= ZERO_ERR_CONFIG_SYNTAX && status <= ZERO_ERR_CONFIG_CONFLICT);
    assert_true(std::strlen(ranks::last_error().c_str()) > 0);
    assert_null(runtime);
    zero_config_destroy(config);
  }
}

// Equal to the run in which the bad step never was.
void r032_a_non_finite_norm_changes_nothing(void**) {
  Setup setup;
  setup.clipping = 1;
  setup.optimizer = R"({"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.1}})";
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    const auto run = [&](bool with_nan, Floats* out) {
      ranks::SharedArray<float> result(3 * 50);
      at_ranks(2, setup, [&](Rank& self, int32_t rank) {
        const zero_param_id w = self.add("w", Floats(50, 2));
        self.shard();
        for (int32_t step = 0; step < 3; ++step) {
          if (with_nan && step == 1) {
            const Floats before[] = {self.get(w), self.get(w, ZERO_PART_STATE, 0),
                                     self.get(w, ZERO_PART_STATE, 1)};
            Floats bad(50, 1);
            if (rank == 1) bad[37] = NAN;
            self.give(w, bad);
            const zero_step_info info = self.step();
            EXPECT(info.skipped == 1 && info.skipped_total == 1 && info.step == 1);
            EXPECT(info.nonfinite_param == w && info.nonfinite_rank == 1);
            EXPECT(info.nonfinite_element == 37);
            EXPECT(same(self.get(w), before[0]));
            EXPECT(same(self.get(w, ZERO_PART_STATE, 0), before[1]));
            EXPECT(same(self.get(w, ZERO_PART_STATE, 1), before[2]));
          }
          self.give(w, Floats(50, static_cast<float>(step + rank)));
          EXPECT(self.step().step == step + 1);
        }
        const Floats parts[] = {self.get(w), self.get(w, ZERO_PART_STATE, 0),
                                self.get(w, ZERO_PART_STATE, 1)};
        self.close();
        if (rank != 1) return;
        for (size_t k = 0; k < 3; ++k) {
          std::copy(parts[k].begin(), parts[k].end(), result.data() + 50 * k);
        }
      });
      out->assign(result.data(), result.data() + result.size());
    };
    Floats clean, skipped;
    run(false, &clean);
    run(true, &skipped);
    assert_true(same(clean, skipped));
    assert_true(clean[0] < 2 && clean[0] > 1);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r018_a_parameter_without_gradient_in_some_micro_batches),
      cmocka_unit_test(r020_clipping_is_once_a_step),
      cmocka_unit_test(r022_the_norm_is_5_at_every_stage_and_size),
      cmocka_unit_test(r023_every_rank_reports_the_global_norm),
      cmocka_unit_test(r026_an_infinity_norm_is_refused_clearly),
      cmocka_unit_test(r028_the_norm_is_the_same_for_every_bucket_size),
      cmocka_unit_test(r029_the_norm_reported_is_the_one_before_clipping),
      cmocka_unit_test(r030_clipping_0_is_off_and_negative_or_nan_refused),
      cmocka_unit_test(r032_a_non_finite_norm_changes_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Reports of users of other ZeRO implementations: groups, ties, buckets, shapes, agreement.
// SPDX-License-Identifier: BSD-3-Clause
#include "report_rank.h"

using namespace reports;

namespace {

// One rank owns nothing of the second group.
void r037_a_group_empty_on_one_rank_works(void**) {
  Setup setup;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [&](Rank& self, int32_t) {
      zero_group_options group;
      zero_group_options_init(&group, sizeof(group));
      zero_param_options options = Rank::options();
      group.lr = 0.1;
      OK(zero_group_add(self.model, "first", &group, &options.group));
      const zero_param_id first = self.add("first", {10}, Floats(10, 1), options);
      group.lr = 0.5;
      group.weight_decay = 1;
      OK(zero_group_add(self.model, "second", &group, &options.group));
      const zero_param_id second = self.add("second", {2}, Floats(2, 1), options);
      self.shard();
      zero_span spans[2];
      for (int32_t r = 0; r < 2; ++r) OK(zero_param_shard(self.runtime, second, r, &spans[r]));
      if (setup.stage > 0) EXPECT(spans[0].count + spans[1].count == 2);
      if (setup.stage > 0) EXPECT(spans[0].count == 0 || spans[1].count == 0);
      self.give(second, Floats(2, 1));
      self.give(first, Floats(10, 1));
      self.step();
      for (const float value : self.get(first)) EXPECT(near(value, 0.9));
      for (const float value : self.get(second)) EXPECT(value == 0); // 1 - 0.5 x (1 + 1 x 1)
      self.close();
    });
  }
}

void r043_any_bucket_size_works_and_costs_at_most_the_model(void**) {
  Setup setup;
  setup.optimizer = R"({"type": "AdamW", "params": {"lr": 0.1}})";
  for (setup.stage = 1; setup.stage <= 3; ++setup.stage) {
    Floats first;
    for (const int64_t bucket : {0, 1, 3, 10, 500000000}) {
      setup.zero = ", \"reduce_bucket_size\": " + std::to_string(bucket);
      ranks::SharedArray<float> result(10);
      at_ranks(2, setup, [&](Rank& self, int32_t rank) {
        const zero_param_id w = self.add("w", Floats(10, 1));
        self.shard();
        for (int32_t step = 0; step < 3; ++step) {
          Floats gradient;
          for (int i = 0; i < 10; ++i) gradient.push_back(0.1f * static_cast<float>(i + rank));
          self.give(w, gradient);
          self.step();
        }
        zero_memory_info info;
        zero_memory_info_init(&info, sizeof(info));
        OK(zero_memory_usage(self.runtime, ZERO_PLACE_HOST, ZERO_MEMORY_BUCKETS, &info));
        EXPECT(info.peak <= (setup.stage == 1 ? 0u : 64u * 4u)); // 10 elements padded to 2 x 32
        const Floats values = self.get(w);
        if (rank == 0) std::copy(values.begin(), values.end(), result.data());
        self.close();
      });
      const Floats values(result.data(), result.data() + 10);
      if (first.empty()) first = values;
      assert_true(same(values, first));
      assert_true(values[9] < 1 && values[9] > 0.5f);
    }
  }
}

void r046_stages_0_to_3_agree_with_an_unused_parameter(void**) {
  Setup setup;
  setup.clipping = 1;
  setup.optimizer = R"({"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.1}})";
  Floats first;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    ranks::SharedArray<float> result(3);
    at_ranks(2, setup, [&](Rank& self, int32_t rank) {
      const zero_param_id used = self.add("used", {1, -2, 3});
      const zero_param_id unused = self.add("unused", {0.5f, -0.25f});
      self.shard();
      for (int32_t step = 0; step < 10; ++step) {
        const auto k = static_cast<float>(step + 2 * rank);
        self.give(used, {k, 1 - k, 0.5f});
        self.step();
      }
      const Floats values = self.get(used);
      EXPECT(same(self.get(unused), {0.5f, -0.25f}));
      EXPECT(same(self.get(unused, ZERO_PART_STATE, 0), {0, 0}));
      EXPECT(same(self.get(unused, ZERO_PART_STATE, 1), {0, 0}));
      // Its own step count is still 0: the first update is of its first size, about the rate.
      self.give(unused, {0.01f, -0.01f});
      EXPECT(self.step().step == 11);
      EXPECT(near(self.get(unused)[0], 0.5 * 0.99 - 0.1, 1e-5));
      EXPECT(near(self.get(unused)[1], -0.25 * 0.99 + 0.1, 1e-5));
      if (rank == 1) std::copy(values.begin(), values.end(), result.data());
      self.close();
    });
    const Floats values(result.data(), result.data() + 3);
    if (first.empty()) first = values;
    assert_true(same(values, first));
    assert_true(values[0] != 1);
  }
}

void r048_a_tied_weight_is_updated_once(void**) {
  for (const bool adam : {false, true}) {
    Setup setup;
    setup.optimizer = adam ? R"({"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0}})"
                           : R"({"type": "SGD", "params": {"lr": 0.1}})";
    for (const int32_t ranks : {1, 2}) {
      for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
        at_ranks(ranks, setup, [&](Rank& self, int32_t) {
          const zero_param_id a = self.add("a", {1});
          zero_param_options alias = Rank::options();
          alias.tied_to = a;
          const zero_param_id b = self.add("b", {1}, {1}, alias);
          self.shard();
          self.give(b, {0.1f});
          self.give(a, {0.3f});
          EXPECT(near(self.step().grad_norm, 0.4));
          EXPECT(near(self.get(a)[0], adam ? 0.9 : 0.96));
          EXPECT(same(self.get(a), self.get(b)));
          if (adam) {
            EXPECT(near(self.get(a, ZERO_PART_STATE, 0)[0], 0.04));
            EXPECT(same(self.get(b, ZERO_PART_STATE, 0), self.get(a, ZERO_PART_STATE, 0)));
            zero_memory_info info; // one pair of moments, of one element padded to 32 a rank
            zero_memory_info_init(&info, sizeof(info));
            OK(zero_memory_usage(self.runtime, ZERO_PLACE_HOST, ZERO_MEMORY_OPTIMIZER, &info));
            EXPECT(info.current ==
                   (setup.stage == 0 ? 32u * static_cast<unsigned>(ranks) : 32u) * 8);
          }
          self.close();
        });
      }
    }
  }
}

void r049_73_elements_over_4_ranks(void**) {
  Setup setup;
  setup.top = R"(, "libzero": {"param_norms": true})";
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(4, setup, [&](Rank& self, int32_t rank) {
      const zero_param_id w = self.add("w", Floats(73, 0));
      self.shard();
      Floats gradient, moved;
      double squares = 0;
      for (int i = 0; i < 73; ++i) {
        gradient.push_back(static_cast<float>(i + 100 * rank));
        moved.push_back(static_cast<float>(-(i + 150)));
        squares += (i + 150.0) * (i + 150.0);
      }
      self.give(w, gradient);
      EXPECT(self.step().grad_norm == std::sqrt(squares));
      double norm = 0;
      OK(zero_param_grad_norm(self.runtime, w, &norm));
      EXPECT(norm == std::sqrt(squares));
      EXPECT(same(self.get(w), moved));
      uint64_t owned = 0;
      for (int32_t r = 0; r < 4; ++r) {
        zero_span span;
        OK(zero_param_shard(self.runtime, w, r, &span));
        EXPECT(setup.stage == 0 || span.count == 0 || span.offset == owned);
        owned += span.count;
      }
      if (setup.stage > 0) EXPECT(owned == 73);
      self.close();
    });
  }
}

void r051_the_average_divides_by_the_ranks(void**) {
  Setup setup;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t rank) {
      const zero_param_id w = self.add("w", Floats(5, 0));
      self.shard();
      self.give(w, Floats(5, rank == 0 ? 2 : 4));
      self.step();
      EXPECT(same(self.get(w), Floats(5, -3)));
      self.close();
    });
  }
}

// What a rank does differently, and what both must say.
struct Disagreement {
  std::function<void(Rank&, int32_t)> build;
  std::vector<std::string> words;
};

void r054_ranks_that_disagree_get_the_first_difference(void**) {
  const auto vectors = [](Rank& self, const char* a, size_t n, const char* b, size_t m) {
    self.add(a, Floats(n, 0));
    self.add(b, Floats(m, 0));
  };
  const Disagreement cases[] = {
      {[&](Rank& self, int32_t r) { vectors(self, "p", 8, "q", r == 0 ? 4 : 5); },
       {"\"q\"", "4", "5"}},
      {[&](Rank& self, int32_t r) { vectors(self, "p", 8, r == 0 ? "q" : "other", 4); },
       {"\"q\"", "\"other\""}},
      {[&](Rank& self, int32_t r) { vectors(self, r == 0 ? "p" : "q", 8, r == 0 ? "q" : "p", 8); },
       {"\"p\"", "\"q\""}},
      {[&](Rank& self, int32_t r) {
         zero_param_options options = Rank::options();
         options.role = ZERO_PARAM_BUFFER;
         options.dtype = r == 0 ? ZERO_DTYPE_INT32 : ZERO_DTYPE_FP32;
         self.add("p", {8}, Floats(8, 0), options);
       },
       {"\"p\"", "int32", "fp32"}},
      {[&](Rank& self, int32_t r) {
         self.add("p", Floats(8, 0));
         if (r == 1) self.add("q", Floats(4, 0));
       },
       {"\"q\"", "nothing"}},
  };
  for (const Disagreement& difference : cases) {
    at_ranks(2, Setup(), [&](Rank& self, int32_t rank) {
      difference.build(self, rank);
      EXPECT(zero_shard_params(self.runtime, self.model) == ZERO_ERR_COMM_MISMATCH);
      const std::string said = ranks::last_error();
      for (const std::string& word : difference.words) {
        if (said.find(word) == std::string::npos) std::fprintf(stderr, "%s\n", said.c_str());
        EXPECT(said.find(word) != std::string::npos);
      }
      EXPECT(said.find("rank 1") != std::string::npos && said.find("rank 0") != std::string::npos);
      EXPECT(zero_runtime_status(self.runtime) == ZERO_ERR_COMM_MISMATCH);
    });
  }
  // Stage 2 against stage 3.
  ranks::assert_all_ended_well(ranks::run_processes(2, [](int32_t rank, const std::string& group) {
    Setup setup;
    setup.stage = 2 + rank;
    Rank self(rank, 2, group, setup);
    self.add("p", Floats(8, 0));
    EXPECT(zero_shard_params(self.runtime, self.model) == ZERO_ERR_COMM_MISMATCH);
    const std::string said = ranks::last_error();
    EXPECT(said.find("\"stage\": 2") != std::string::npos);
    EXPECT(said.find("\"stage\": 3") != std::string::npos);
  }));
}

// Without the call rank 0 wins, or "verify" says that they differ.
void r059_different_seeds_are_made_equal(void**) {
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const char* initial : {"rank:0", "rank:1", "verify"}) {
      Setup setup;
      setup.stage = stage;
      setup.optimizer = R"({"type": "AdamW", "params": {"lr": 0.1}})";
      setup.top = std::string(R"(, "libzero": {"initial_values": ")") + initial + "\"}";
      at_ranks(3, setup, [&](Rank& self, int32_t rank) {
        const zero_param_id w = self.add("w", Floats(100, static_cast<float>(rank)));
        zero_param_options options = Rank::options();
        options.role = ZERO_PARAM_BUFFER;
        const zero_param_id mean =
            self.add("mean", {7}, Floats(7, static_cast<float>(rank)), options);
        if (std::string(initial) == "verify") {
          EXPECT(zero_shard_params(self.runtime, self.model) == ZERO_ERR_COMM_MISMATCH);
          EXPECT(ranks::last_error().find("\"w\" has checksum") != std::string::npos);
          return;
        }
        self.shard();
        const float winner = std::string(initial) == "rank:1" ? 1 : 0;
        EXPECT(same(self.get(w), Floats(100, winner)));
        EXPECT(same(self.get(mean), Floats(7, winner)));
        if (stage < 3) { // the ranks part again; then the call
          const auto own = static_cast<float>(rank);
          zero_buffer buffer;
          for (const zero_param_id param : {w, mean}) {
            OK(zero_param_buffer(self.runtime, param, &buffer));
            auto* values = static_cast<float*>(buffer.data);
            for (uint64_t i = 0; i < buffer.count; ++i) values[i] = own;
          }
          OK(zero_shard_buffer(self.runtime, w, ZERO_PART_STATE, 1, &buffer));
          for (uint64_t i = 0; stage == 0 && i < buffer.count; ++i) {
            static_cast<float*>(buffer.data)[i] = own;
          }
          OK(zero_params_broadcast(self.runtime, 1));
          EXPECT(same(self.get(w), Floats(100, 1)));
          EXPECT(same(self.get(w, ZERO_PART_MASTER), Floats(100, 1)));
          EXPECT(same(self.get(mean), Floats(7, 1)));
          if (stage == 0) EXPECT(same(self.get(w, ZERO_PART_STATE, 1), Floats(100, 1)));
        } else {
          EXPECT(zero_params_broadcast(self.runtime, 1) == ZERO_ERR_UNSUPPORTED);
        }
        self.close();
      });
    }
  }
}

void r061_adam_arithmetic(void**) {
  const char* const start = R"({"type": "Adam", "params": {"lr": 0.1, "betas": [0.9, 0.999],)"
                            R"( "eps": 1e-8, )";
  struct Case {
    const char* rest;
    std::vector<double> values;
  };
  const Case cases[] = {
      {R"("weight_decay": 0.1, "adam_w_mode": true}})", {0.890000002, 0.8544662987, 0.8118787219}},
      {R"("weight_decay": 0.1, "adam_w_mode": false}})",
       {0.9000000017, 0.8544413675, 0.8005694721}},
      {R"("weight_decay": 0, "bias_correction": false}})", {0.683772434}},
  };
  for (const Case& one : cases) {
    Setup setup;
    setup.optimizer = std::string(start) + one.rest;
    for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
      at_ranks(1, setup, [&](Rank& self, int32_t) {
        const zero_param_id w = self.add("w", {1});
        self.shard();
        const float gradients[] = {0.5f, -0.25f, 0.125f};
        for (size_t step = 0; step < one.values.size(); ++step) {
          self.give(w, {gradients[step]});
          self.step();
          EXPECT(near(self.get(w)[0], one.values[step]));
        }
        if (&one != &cases[0]) return;
        EXPECT(near(self.get(w, ZERO_PART_STATE, 0)[0], 0.0305));
        EXPECT(near(self.get(w, ZERO_PART_STATE, 1)[0], 0.00032756275));
      });
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r037_a_group_empty_on_one_rank_works),
      cmocka_unit_test(r043_any_bucket_size_works_and_costs_at_most_the_model),
      cmocka_unit_test(r046_stages_0_to_3_agree_with_an_unused_parameter),
      cmocka_unit_test(r048_a_tied_weight_is_updated_once),
      cmocka_unit_test(r049_73_elements_over_4_ranks),
      cmocka_unit_test(r051_the_average_divides_by_the_ranks),
      cmocka_unit_test(r054_ranks_that_disagree_get_the_first_difference),
      cmocka_unit_test(r059_different_seeds_are_made_equal),
      cmocka_unit_test(r061_adam_arithmetic),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Saving and loading: reports of users of other ZeRO implementations, by their numbers.
// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint_rank.h"

using namespace checkpoints;
using precision::at_ranks;
using precision::kSgd;

namespace {

constexpr float kInf = INFINITY;
constexpr const char* kOpen = ", \"libzero\": {\"open_buckets\": \"all\"}";

struct Scales {
  std::vector<double> scale;
  std::vector<int64_t> skipped;
};

void r010_the_scaler_s_counters_come_back(void**) {
  for (int32_t stage = 0; stage <= 3; ++stage) {
    Setup setup;
    setup.stage = stage;
    setup.section = ", \"initial_scale_power\": 4, \"hysteresis\": 2, \"loss_scale_window\": 3";
    const std::string path = scratch().fresh();
    ranks::SharedArray<double> whole(40);
    const auto go_on = [&](Rank& self, zero_param_id w, int32_t from, int32_t to, double* out) {
      for (int32_t step = from; step <= to; ++step) {
        self.give(w, Floats(5, step == 1 ? kInf : 0.25f));
        const zero_step_info info = self.step();
        if (self.rank == 0) out[step] = info.loss_scale;
        if (self.rank == 0) out[20 + step] = static_cast<double>(info.skipped_total);
      }
    };
    at_ranks(2, setup, [&](Rank& self) {
      const zero_param_id w = self.add("w", Floats(5, 1));
      self.shard();
      go_on(self, w, 1, 3, whole.data());
      save(self, path);
      go_on(self, w, 4, 9, whole.data());
      self.close();
    });
    ranks::SharedArray<double> resumed(40);
    at_ranks(2, setup, [&](Rank& self) {
      const zero_param_id w = self.add("w", Floats(5, 7));
      self.shard();
      load(self, path);
      go_on(self, w, 4, 9, resumed.data());
      self.close();
    });
    for (size_t step = 4; step <= 9; ++step) {
      assert_true(whole[step] == resumed[step] && whole[20 + step] == resumed[20 + step]);
    }
    assert_true(whole[9] > 16); // it has grown meanwhile
    assert_true(whole[29] == 1);
  }
}

void r011_the_scale_does_not_jump_back(void**) {
  Setup setup;
  setup.stage = 2;
  setup.section = ", \"initial_scale_power\": 16, \"hysteresis\": 1";
  const std::string path = scratch().fresh();
  at_ranks(2, setup, [&](Rank& self) {
    const zero_param_id w = self.add("w", Floats(5, 1));
    self.shard();
    while (zero_loss_scale(self.runtime) > 256) {
      self.give(w, Floats(5, kInf));
      EXPECT(self.step().skipped == 1);
    }
    save(self, path);
    self.close();
  });
  at_ranks(2, setup, [&](Rank& self) {
    const zero_param_id w = self.add("w", Floats(5, 1));
    self.shard();
    EXPECT(zero_loss_scale(self.runtime) == 65536);
    load(self, path);
    EXPECT(zero_loss_scale(self.runtime) == 256);
    self.give(w, Floats(5, 0.5f));
    const zero_step_info info = self.step();
    EXPECT(info.skipped == 0 && info.skipped_total == 8 && info.loss_scale == 256);
    self.close();
  });
}

// R033, R034, R036: fewer elements than ranks, none at all, and shapes of no elements.
void r033_shards_without_elements_are_saved_and_loaded(void**) {
  struct Spec {
    const char* name;
    std::vector<int64_t> shape;
    size_t count;
  };
  const std::vector<Spec> specs = {{"three", {3}, 3},
                                   {"one", {1}, 1},
                                   {"scalar", {}, 1},
                                   {"empty", {0, 8}, 0},
                                   {"last", {0, 4}, 0}};
  for (int32_t stage = 0; stage <= 3; ++stage) {
    Setup setup;
    setup.stage = stage;
    setup.dtype = kFp32;
    setup.optimizer = kAdam;
    setup.top = kOpen;
    const std::string path = scratch().fresh();
    const auto build = [&](Rank& self, float first) {
      for (const Spec& spec : specs)
        self.add(spec.name, spec.shape, numbered(spec.count, first), kFp32);
      self.shard();
    };
    ranks::SharedArray<float> saved(15);
    at_ranks(8, setup, [&](Rank& self) {
      build(self, 1);
      for (int32_t step = 0; step < 3; ++step) {
        for (size_t p = specs.size(); p-- > 0;) {
          self.give(static_cast<zero_param_id>(p), Floats(specs[p].count, 0.5f));
        }
        self.step();
      }
      save(self, path);
      size_t at = 0;
      for (zero_param_id p = 0; p < 3; ++p) {
        for (const Floats& part : self.all_parts(p, 2)) {
          if (part.size() == 1 && self.rank == 0) saved[at++] = part[0];
        }
      }
      self.close();
    });
    for (const int32_t ranks : {1, 3, 8}) {
      at_ranks(ranks, setup, [&](Rank& self) {
        build(self, 50);
        load(self, path);
        EXPECT(zero_step_count(self.runtime) == 3);
        size_t at = 0;
        for (zero_param_id p = 0; p < 3; ++p) {
          for (const Floats& part : self.all_parts(p, 2)) {
            if (part.size() == 1) EXPECT(part[0] == saved[at++]);
          }
        }
        zero_param_info info;
        zero_param_info_init(&info, sizeof(info));
        zero_checkpoint* checkpoint = open(path);
        OK(zero_checkpoint_param_at(checkpoint, 3, &info));
        EXPECT(info.dimensions == 2 && info.shape[0] == 0 && info.shape[1] == 8);
        EXPECT(info.elements == 0);
        OK(zero_checkpoint_read(checkpoint, "empty", ZERO_PART_MASTER, 0, 0, 0, nullptr, 0));
        zero_checkpoint_destroy(checkpoint);
        self.close();
      });
    }
  }
}

// R038, R039: a group without parameters keeps its number and its values.
void r038_an_empty_group_comes_back_with_all_its_values(void**) {
  for (int32_t stage = 0; stage <= 3; ++stage) {
    Setup setup;
    setup.stage = stage;
    setup.dtype = kFp32;
    const std::string path = scratch().fresh(), again = scratch().fresh();
    zero_group_options options;
    zero_group_options_init(&options, sizeof(options));
    const auto build = [&](Rank& self) {
      zero_group_id no_decay = -1;
      OK(zero_group_add(self.model, "no_decay", nullptr, &no_decay));
      const zero_param_id w = self.add("w", Floats(8, 1));
      self.shard();
      return w;
    };
    at_ranks(2, setup, [&](Rank& self) {
      build(self);
      zero_group_options mine = options;
      mine.lr = 0.25;
      OK(zero_group_set(self.runtime, 0, &mine));
      mine.lr = 0.125;
      mine.beta2 = 0.5;
      mine.epsilon = 0.75;
      OK(zero_group_set(self.runtime, 1, &mine));
      save(self, path);
      self.close();
    });
    at_ranks(2, setup, [&](Rank& self) {
      const zero_param_id w = build(self);
      load(self, path);
      self.give(w, Floats(8, 1));
      self.step();
      EXPECT(same(self.get(w), Floats(8, 0.75f)));
      save(self, again);
      self.close();
    });
    const std::string text = text_of(again);
    assert_non_null(std::strstr(text.c_str(), "group \"no_decay\", lr 0.125"));
    assert_non_null(std::strstr(text.c_str(), "beta2 0.5, epsilon 0.75"));
  }
}

// R084, R082: saved at 4 and 12 ranks, gone on at any other number.
void r084_training_goes_on_at_another_number_of_ranks(void**) {
  const std::vector<size_t> sizes = {5, 3, 9, 1, 120};
  const auto build = [&](Rank& self, float first) {
    for (size_t p = 0; p < sizes.size(); ++p) {
      self.add("p" + std::to_string(p), numbered(sizes[p], first + static_cast<float>(p)), kFp32);
    }
    self.shard();
  };
  const auto train = [&](Rank& self, int32_t from, int32_t to) {
    for (int32_t step = from; step < to; ++step) {
      for (size_t p = sizes.size(); p-- > 0;) {
        Floats gradient(sizes[p]);
        for (size_t i = 0; i < sizes[p]; ++i) {
          gradient[i] =
              0.01f * static_cast<float>((step * 7 + static_cast<int32_t>(i) * 3) % 11) - 0.04f;
        }
        self.give(static_cast<zero_param_id>(p), gradient);
      }
      self.step();
    }
  };
  Setup setup;
  setup.dtype = kFp32;
  setup.optimizer = kAdam;
  setup.top = kOpen;
  setup.top +=
      ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.1, "
      "\"warmup_num_steps\": 5}}";
  ranks::SharedArray<float> expected(138);
  const auto collect = [&](Rank& self) {
    Floats all;
    for (size_t p = 0; p < sizes.size(); ++p) {
      const Floats values = self.get(static_cast<zero_param_id>(p));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  at_ranks(1, setup, [&](Rank& self) {
    build(self, 1);
    train(self, 0, 6);
    const Floats all = collect(self);
    EXPECT(all.size() == expected.size());
    std::copy(all.begin(), all.end(), expected.data());
    self.close();
  });
  for (const int32_t from : {4, 12}) {
    setup.stage = 2;
    const std::string path = scratch().fresh();
    at_ranks(from, setup, [&](Rank& self) {
      build(self, 1);
      train(self, 0, 3);
      save(self, path);
      self.close();
    });
    int32_t stage = 0;
    for (const int32_t to : {1, 2, 3, 5, 7, 8, 16}) {
      setup.stage = stage++ % 4;
      at_ranks(to, setup, [&](Rank& self) {
        build(self, 99);
        load(self, path);
        train(self, 3, 6);
        EXPECT(zero_step_count(self.runtime) == 6);
        const Floats all = collect(self);
        for (size_t i = 0; i < all.size(); ++i) EXPECT(precision::near(all[i], expected[i]));
        self.close();
      });
    }
  }
}

// R087, R090: every moment at its place, with groups, sub-groups, other alignment of everything.
void r087_every_moment_is_at_its_place(void**) {
  struct Spec {
    std::vector<size_t> sizes;
    std::vector<int32_t> groups;
  };
  const Spec specs[] = {{{5, 3, 9}, {0, 0, 0}}, {{25, 7, 13, 1}, {0, 1, 1, 0}}};
  for (const Spec& spec : specs) {
    const auto build = [&](Rank& self) {
      zero_group_options options;
      zero_group_options_init(&options, sizeof(options));
      options.weight_decay = 0;
      zero_group_id no_decay = -1;
      OK(zero_group_add(self.model, "no_decay", &options, &no_decay));
      for (size_t p = 0; p < spec.sizes.size(); ++p) {
        self.add("p" + std::to_string(p), {static_cast<int64_t>(spec.sizes[p])},
                 Floats(spec.sizes[p], 1), self.setup.dtype, spec.groups[p]);
      }
      self.shard();
    };
    Setup setup;
    setup.stage = 3;
    setup.dtype = kFp32;
    setup.optimizer = kAdam;
    setup.zero = ", \"sub_group_size\": 10, \"reduce_bucket_size\": 16";
    const std::string path = scratch().fresh();
    const auto moment = [](size_t p, int32_t k) {
      return 100 * static_cast<float>(p) + 10000 * static_cast<float>(k);
    };
    for (const int32_t from : {2, 3}) {
      zero_save_options replace = save_options();
      replace.replace = 1;
      at_ranks(from, setup, [&](Rank& self) {
        build(self);
        for (size_t p = 0; p < spec.sizes.size(); ++p) {
          for (int32_t k = 0; k < 2; ++k) {
            set_state(self, static_cast<zero_param_id>(p), k,
                      numbered(spec.sizes[p], moment(p, k)));
          }
        }
        OK(zero_checkpoint_save(self.runtime, path.c_str(), &replace));
        self.close();
      });
      for (const zero_dtype dtype : {kFp32, kBf16}) {
        for (const int32_t to : {2, 3}) {
          Setup other = setup;
          other.stage = to - 1;
          other.dtype = dtype;
          other.zero = ", \"reduce_bucket_size\": 1000000";
          at_ranks(to, other, [&](Rank& self) {
            build(self);
            load(self, path);
            for (size_t p = 0; p < spec.sizes.size(); ++p) {
              for (int32_t k = 0; k < 2; ++k) {
                EXPECT(same(self.get(static_cast<zero_param_id>(p), ZERO_PART_STATE, k),
                            numbered(spec.sizes[p], moment(p, k))));
              }
            }
            self.close();
          });
        }
      }
    }
  }
}

void r091_the_step_count_goes_on(void**) {
  Setup setup;
  setup.dtype = kFp32;
  setup.optimizer = kAdam;
  const std::string path = scratch().fresh();
  at_ranks(1, setup, [&](Rank& self) {
    const zero_param_id w = self.add("w", Floats{1});
    self.shard();
    for (const float g : {0.5f, -0.2f, 0.3f, 0.1f, -0.4f}) {
      self.give(w, {g});
      self.step();
    }
    EXPECT(precision::near(self.get(w)[0], 0.7491713276));
    EXPECT(precision::near(self.get(w, ZERO_PART_STATE, 0)[0], 0.011525, 1e-5));
    EXPECT(precision::near(self.get(w, ZERO_PART_STATE, 1)[0], 0.00054869171, 1e-5));
    save(self, path);
    self.close();
  });
  at_ranks(1, setup, [&](Rank& self) {
    const zero_param_id w = self.add("w", Floats{7});
    self.shard();
    load(self, path);
    self.give(w, {0.25f});
    self.step();
    EXPECT(precision::near(self.get(w)[0], 0.7255371463));
    self.close();
  });
}

void r092_step_counts_are_each_parameter_s_own(void**) {
  Setup setup;
  setup.stage = 2;
  setup.dtype = kFp32;
  setup.optimizer = kAdam;
  const std::string path = scratch().fresh(), again = scratch().fresh();
  at_ranks(2, setup, [&](Rank& self) {
    const zero_param_id a = self.add("a", Floats{1}), b = self.add("b", Floats{1});
    self.shard();
    for (int32_t step = 0; step < 5; ++step) {
      self.give(a, {0.5f});
      self.give(b, {0.5f});
      self.step();
    }
    save(self, path);
    self.close();
  });
  at_ranks(3, setup, [&](Rank& self) {
    const zero_param_id a = self.add("a", Floats{1});
    self.add("b", Floats{1});
    self.shard();
    load(self, path);
    self.give(a, {0.5f});
    self.step();
    save(self, again);
    self.close();
  });
  assert_int_equal(steps_of(path, 0), 5);
  assert_int_equal(steps_of(path, 1), 5);
  assert_int_equal(steps_of(again, 0), 6);
  assert_int_equal(steps_of(again, 1), 5);
}

void r093_weights_alone_are_not_thrown_away_by_the_next_step(void**) {
  for (const zero_dtype dtype : {kFp16, kBf16}) {
    for (int32_t stage = 1; stage <= 3; ++stage) {
      for (const bool adam : {false, true}) {
        Setup setup;
        setup.stage = stage;
        setup.dtype = dtype;
        setup.optimizer = adam ? R"({"type": "Adam", "params": {"lr": 0.1, "weight_decay": 0}})"
                               : R"({"type": "SGD", "params": {"lr": 0}})";
        const std::string path = scratch().fresh();
        at_ranks(2, setup, [&](Rank& self) {
          self.add("w", numbered(70, 3));
          self.shard();
          zero_save_options options = save_options();
          options.weights_only = 1;
          OK(zero_checkpoint_save(self.runtime, path.c_str(), &options));
          self.close();
        });
        at_ranks(2, setup, [&](Rank& self) {
          const zero_param_id w = self.add("w", Floats(70, 1));
          self.shard();
          if (adam) { // state that must not stay
            self.give(w, Floats(70, 1));
            self.step();
          }
          expect_error(try_load(self, path), ZERO_ERR_FILE_MISMATCH, {"weights alone"});
          zero_load_options options = load_options();
          options.weights_only = 1;
          load(self, path, &options);
          EXPECT(same(self.get(w), numbered(70, 3)) && same(self.master(w), numbered(70, 3)));
          if (adam) EXPECT(same(self.get(w, ZERO_PART_STATE, 0), Floats(70, 0)));
          if (adam) EXPECT(same(self.get(w, ZERO_PART_STATE, 1), Floats(70, 0)));
          self.give(w, Floats(70, adam ? 0.0f : 1.0f));
          EXPECT(self.step().skipped == 0);
          EXPECT(same(self.get(w), numbered(70, 3)));
          const std::string after = path + "-after";
          save(self, after);
          if (self.rank == 0) EXPECT(steps_of(after, 0) == 1);
          self.close();
        });
      }
    }
  }
}

// Rank 1 is alive and does not come.
void r095_a_save_that_one_rank_does_not_join_is_an_error_that_names_it(void**) {
  const std::string path = scratch().fresh();
  ranks::SharedArray<int32_t> over(1);
  ranks::assert_all_ended_well(ranks::run_processes(2, [&](int32_t rank, const std::string& group) {
    zero_config* config = nullptr;
    const std::string text = Setup{}.text();
    OK(zero_config_load_text(text.data(), text.size(), &config));
    zero_comm* comm = nullptr;
    OK(zero_comm_create_local(group.c_str(), rank, 2, 2 * ranks::kSecond, &comm));
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm;
    zero_runtime* runtime = nullptr;
    OK(zero_init(config, &init, &runtime));
    zero_model* model = nullptr;
    OK(zero_model_create(&model));
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    const int64_t shape[] = {5};
    zero_param_id id = -1;
    options.dtype = kFp16;
    OK(zero_param_add(model, "w", shape, 1, &options, &id));
    OK(zero_shard_params(runtime, model));
    if (rank == 0) {
      const zero_status status = zero_checkpoint_save(runtime, path.c_str(), nullptr);
      expect_error(status, ZERO_ERR_COMM_TIMEOUT, {"1"});
      zero_error_info info;
      zero_error_info_init(&info, sizeof(info));
      zero_last_error(&info);
      EXPECT(info.rank == 1);
      __atomic_store_n(over.data(), 1, __ATOMIC_RELEASE);
    } else {
      while (__atomic_load_n(over.data(), __ATOMIC_ACQUIRE) == 0) usleep(1000);
    }
    zero_runtime_destroy(runtime);
    zero_model_destroy(model);
    zero_comm_destroy(comm);
    zero_config_destroy(config);
  }));
  zero_checkpoint* none = nullptr;
  assert_int_equal(zero_checkpoint_open(path.c_str(), &none), ZERO_ERR_NOT_FOUND);
}

void r096_all_ranks_save_to_folders_that_do_not_exist_yet(void**) {
  Setup setup;
  setup.dtype = kFp32;
  setup.stage = 1;
  const std::string base = scratch().fresh();
  const int32_t times = ranks::full_tier() ? 50 : 6;
  at_ranks(8, setup, [&](Rank& self) {
    self.add("w", numbered(40, 0));
    self.shard();
    for (int32_t i = 0; i < times; ++i) {
      save(self, base + "/run " + std::to_string(i) + "/\xc3\xa4\xc3\xb6/step");
    }
    const std::string existing = base + "/run 0/\xc3\xa4\xc3\xb6/step";
    expect_error(zero_checkpoint_save(self.runtime, existing.c_str(), nullptr),
                 ZERO_ERR_INVALID_ARGUMENT, {existing, "exists already"});
    // A file where a folder should be; read-only folders are in tests/faults.
    const std::string below = existing + "/manifest.zero/x";
    expect_error(zero_checkpoint_save(self.runtime, below.c_str(), nullptr), ZERO_ERR_IO,
                 {"manifest.zero"});
    save(self, base + "/after");
    self.close();
  });
}

void r106_integer_buffers_are_exact(void**) {
  constexpr int64_t kBig = (INT64_C(1) << 53) + 1;
  Setup setup;
  setup.dtype = kFp32;
  const std::string path = scratch().fresh();
  const auto build = [](Rank& self, const int64_t* counter, const double* running) {
    self.add("w", numbered(40, 0));
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    options.role = ZERO_PARAM_BUFFER;
    options.dtype = ZERO_DTYPE_INT64;
    options.data = const_cast<int64_t*>(counter);
    zero_param_id id = -1;
    OK(zero_param_add(self.model, "bn.num_batches_tracked", nullptr, 0, &options, &id));
    const int64_t shape[] = {3};
    options.dtype = ZERO_DTYPE_FP64;
    options.data = const_cast<double*>(running);
    OK(zero_param_add(self.model, "bn.running", shape, 1, &options, &id));
    self.shard();
  };
  const int64_t counter = kBig;
  const double running[3] = {1.0 / 3, -2, 1e300};
  for (const int32_t from : {1, 2, 3}) {
    setup.stage = from;
    const std::string at = path + std::to_string(from);
    at_ranks(from, setup, [&](Rank& self) {
      build(self, &counter, running);
      self.give(0, Floats(40, 1));
      self.step();
      save(self, at);
      self.close();
    });
    for (const int32_t to : {1, 3}) {
      setup.stage = 4 - to;
      at_ranks(to, setup, [&](Rank& self) {
        const int64_t other = 5;
        const double none[3] = {};
        build(self, &other, none);
        load(self, at);
        int64_t read = 0;
        OK(zero_param_get(self.runtime, 1, ZERO_PART_VALUE, 0, &read, sizeof(read)));
        EXPECT(read == kBig);
        double floats[3];
        OK(zero_param_get(self.runtime, 2, ZERO_PART_VALUE, 0, floats, sizeof(floats)));
        EXPECT(std::memcmp(floats, running, sizeof(floats)) == 0);
        self.close();
      });
    }
    zero_checkpoint* checkpoint = open(at);
    int64_t read = 0;
    OK(zero_checkpoint_read(checkpoint, "bn.num_batches_tracked", ZERO_PART_VALUE, 0, 0, 1, &read,
                            sizeof(read)));
    assert_true(read == kBig);
    zero_checkpoint_destroy(checkpoint);
  }
}

} // namespace

int main() {
  scratch();
  const CMUnitTest tests[] = {
      cmocka_unit_test(r010_the_scaler_s_counters_come_back),
      cmocka_unit_test(r011_the_scale_does_not_jump_back),
      cmocka_unit_test(r033_shards_without_elements_are_saved_and_loaded),
      cmocka_unit_test(r038_an_empty_group_comes_back_with_all_its_values),
      cmocka_unit_test(r084_training_goes_on_at_another_number_of_ranks),
      cmocka_unit_test(r087_every_moment_is_at_its_place),
      cmocka_unit_test(r091_the_step_count_goes_on),
      cmocka_unit_test(r092_step_counts_are_each_parameter_s_own),
      cmocka_unit_test(r093_weights_alone_are_not_thrown_away_by_the_next_step),
      cmocka_unit_test(r095_a_save_that_one_rank_does_not_join_is_an_error_that_names_it),
      cmocka_unit_test(r096_all_ranks_save_to_folders_that_do_not_exist_yet),
      cmocka_unit_test(r106_integer_buffers_are_exact),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Offload in the engine: the same bits as the same run without it, whatever is offloaded, at every
// stage that can; what others got wrong; and the two copies of a shard.
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint_reader.h"
#include "offload_cases.h"

using namespace offload_cases;

namespace {

const std::vector<Home> kChoices = {Home::kDevice, Home::kOptimizer, Home::kPinned, Home::kBoth,
                                    Home::kParams};

void expect_same_bits_wherever_it_lies(const Case& made, const std::string& what) {
  const Outcome host = train(made, Home::kHost);
  for (const Home home : kChoices) {
    expect_same(train(made, home), host,
                what + ", stage " + std::to_string(made.stage) + ", ranks " +
                    std::to_string(made.ranks) + ", home " +
                    std::to_string(static_cast<int>(home)));
  }
}

// ---- the same bits ----

void every_stage_and_dtype_gives_the_bits_of_the_host(void**) {
  for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP16}) {
    for (const int32_t stage : {0, 1, 2, 3}) {
      for (const int32_t ranks : {1, 2, 3}) {
        Case made;
        made.stage = stage;
        made.ranks = ranks;
        made.dtype = dtype;
        expect_same_bits_wherever_it_lies(made, dtype_name(dtype));
      }
    }
  }
}

void every_elementwise_optimizer_steps_on_the_host(void**) {
  for (const char* optimizer :
       {R"("type": "Adam", "params": {"lr": 0.01, "adam_w_mode": false, "weight_decay": 0.1})",
        R"("type": "SGD", "params": {"lr": 0.1, "momentum": 0.9})",
        R"("type": "SGD", "params": {"lr": 0.1})", R"("type": "Adagrad", "params": {"lr": 0.1})",
        R"("type": "Lion", "params": {"lr": 0.01})"}) {
    for (const int32_t stage : {1, 3}) {
      Case made;
      made.stage = stage;
      made.ranks = 2;
      made.dtype = ZERO_DTYPE_BF16;
      made.optimizer = optimizer;
      expect_same_bits_wherever_it_lies(made, optimizer);
    }
  }
}

void narrow_masters_and_states_and_the_caller_s_storage_too(void**) {
  for (const int32_t stage : {1, 2}) {
    Case made;
    made.stage = stage;
    made.ranks = 2;
    made.callers = true;
    for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16}) {
      made.dtype = dtype;
      expect_same_bits_wherever_it_lies(made, "the caller's storage");
    }
  }
  for (const char* sections :
       {R"(, "libzero": {"master_weights": "remainder"})",
        R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
        R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, )"
        R"("bf16_optimizer_states": true})",
        R"(, "data_types": {"grad_accum_dtype": "bf16"})"}) {
    for (const int32_t stage : {1, 2, 3}) {
      Case made;
      made.stage = stage;
      made.ranks = 2;
      made.dtype = ZERO_DTYPE_BF16;
      made.accumulation = 2;
      made.sections = sections;
      expect_same_bits_wherever_it_lies(made, sections);
    }
  }
}

void overlap_or_none_is_the_same(void**) {
  for (const char* overlap : {"true", "false"}) {
    Case made;
    made.ranks = 2;
    made.sizes = std::vector<int64_t>(12, 3000);
    made.zero = std::string(R"(, "reduce_bucket_size": 3000, "overlap_comm": )") + overlap;
    expect_same_bits_wherever_it_lies(made, overlap);
  }
}

void a_step_that_is_skipped_changes_nothing_anywhere(void**) {
  for (const zero_dtype dtype : {ZERO_DTYPE_FP16, ZERO_DTYPE_FP32}) {
    for (const int32_t stage : {1, 2, 3}) {
      Case made;
      made.stage = stage;
      made.ranks = 2;
      made.dtype = dtype;
      made.accumulation = 2;
      made.infinite_in_step = 1;
      expect_same_bits_wherever_it_lies(made, "a step that is skipped");
      const Outcome outcome = train(made, Home::kOptimizer);
      assert_true(std::isinf(outcome.norms[1]) && std::isfinite(outcome.norms[2]));
    }
  }
}

// ---- what others got wrong ----

void r015_accumulation_clipping_and_offload_together(void**) {
  Case made;
  made.ranks = 2;
  made.sizes = {5, 3};
  made.accumulation = 4;
  made.sections = R"(, "gradient_clipping": 1.0)";
  expect_same_bits_wherever_it_lies(made, "R015");
}

void r016_no_micro_batch_is_dropped(void**) {
  for (const int32_t stage : {1, 2, 3}) {
    for (const Home home : {Home::kOptimizer, Home::kBoth}) {
      Case made;
      made.stage = stage;
      made.sizes = {1};
      made.accumulation = 4;
      made.optimizer = R"("type": "SGD", "params": {"lr": 1})";
      made.sections = R"(, "gradient_clipping": 0)";
      on_ranks(made, home, [&](Rank& rank, int32_t) {
        const float first = noise(0);
        const StepReport report =
            rank.step([](size_t, size_t, int64_t micro) { return static_cast<float>(micro + 1); });
        float value = 0;
        rank.runtime().access("test").get(0, ZERO_PART_VALUE, 0, &value, sizeof(value));
        if (report.grad_norm != 2.5) throw Error(ZERO_ERR_INTERNAL, "the norm is not 2.5");
        if (value != first - 2.5f)
          throw Error(ZERO_ERR_INTERNAL, format("a weight of %.9g became %.9g", first, value));
      });
    }
  }
}

void r065_sub_groups_make_no_difference(void**) {
  constexpr float kRate = 0.01f;
  std::vector<std::byte> first;
  for (const char* size : {"1", "7", "100", "1000", "1000000000"}) {
    Case made;
    made.stage = 3;
    made.sizes = {1000};
    made.optimizer = R"("type": "Adam", "params": {"lr": 0.01, "weight_decay": 0})";
    made.zero = std::string(R"(, "sub_group_size": )") + size;
    on_ranks(made, Home::kOptimizer, [&](Rank& rank, int32_t) {
      std::vector<float> ones(1000, 1.0f), values(1000);
      rank.runtime().access("test").set(0, ZERO_PART_VALUE, 0, ones.data(), 4000);
      for (int32_t s = 0; s < 5; ++s) rank.step([](size_t, size_t, int64_t) { return 0.5f; });
      rank.runtime().access("test").get(0, ZERO_PART_VALUE, 0, values.data(), 4000);
      for (const float value : values) {
        const bool falls = std::fabs(value - (1 - 5 * kRate)) < 1e-6f;
        if (!falls) throw Error(ZERO_ERR_INTERNAL, format("a weight is %.9g", value));
      }
      std::vector<std::byte> all = rank.everything();
      if (first.empty()) first = all;
      if (first != all) throw Error(ZERO_ERR_INTERNAL, "another sub_group_size, other bits");
    });
  }
}

// ---- the two copies of a shard ----

// A value that the host program changes between steps reaches the update, and a master the values.
void what_is_set_between_steps_is_what_steps_on(void**) {
  for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16}) {
    for (const int32_t stage : {1, 2, 3}) {
      Case made;
      made.stage = stage;
      made.ranks = 2;
      made.dtype = dtype;
      const auto run = [&](Home home) {
        Outcome outcome;
        on_ranks(made, home, [&](Rank& rank, int32_t r) {
          const auto step = [&](int64_t s) {
            rank.step(
                [&](size_t p, size_t i, int64_t micro) { return rank.noisy(p, i, micro, s); });
          };
          step(0);
          const std::vector<float> fives(1000, 5.0f), sevens(4097, 7.00001f);
          const std::vector<std::byte> value = narrowed(fives, dtype);
          ParameterAccess& access = rank.runtime().access("test");
          access.set(0, ZERO_PART_VALUE, 0, value.data(), value.size());
          access.set(2, ZERO_PART_MASTER, 0, sevens.data(), sevens.size() * sizeof(float));
          step(1);
          const zero_param_id lent = 3;
          zero_buffer loan{};
          rank.runtime().loans("test").acquire(&lent, 1, &loan);
          const std::vector<std::byte> ones = narrowed(std::vector<float>(33, 1.0f), dtype);
          std::memcpy(loan.data, ones.data(), ones.size());
          rank.runtime().loans("test").release(&lent, 1, true);
          step(2);
          std::vector<std::byte> all = rank.everything();
          if (r == 0) outcome.everything = std::move(all);
        });
        return outcome;
      };
      const Outcome host = run(Home::kHost);
      for (const Home home : kChoices) expect_same(run(home), host, "set between steps");
    }
  }
}

// Saved under offload and carried on without it, and the other way.
void a_checkpoint_moves_between_homes(void**) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("offload-" + std::to_string(getpid()));
  for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16}) {
    for (const int32_t stage : {1, 3}) {
      Case made;
      made.stage = stage;
      made.ranks = 2;
      made.dtype = dtype;
      const auto steps = [&](Rank& rank, int64_t from, int64_t to) {
        for (int64_t s = from; s < to; ++s) {
          rank.step([&](size_t p, size_t i, int64_t micro) { return rank.noisy(p, i, micro, s); });
        }
      };
      const auto run = [&](Home saved_at, Home loaded_at) {
        const std::string path = (folder / "run").string();
        on_ranks(made, saved_at, [&](Rank& rank, int32_t) {
          steps(rank, 0, 2);
          rank.runtime().saver("test").save(path, SaveOptions{});
          rank.runtime().saver("test").wait();
        });
        Outcome outcome;
        on_ranks(made, loaded_at, [&](Rank& rank, int32_t r) {
          steps(rank, 5, 6); // forgotten again
          const auto reader = checkpoint::CheckpointReader(path);
          rank.runtime().loader("test").load(reader, LoadOptions{});
          steps(rank, 2, 4);
          std::vector<std::byte> all = rank.everything();
          if (r == 0) outcome.everything = std::move(all);
        });
        fs::remove_all(folder);
        return outcome;
      };
      fs::create_directories(folder);
      const Outcome host = run(Home::kHost, Home::kHost);
      for (const Home home : kChoices) {
        fs::create_directories(folder);
        expect_same(run(home, Home::kHost), host, "saved under offload");
        fs::create_directories(folder);
        expect_same(run(Home::kHost, home), host, "loaded under offload");
      }
    }
  }
}

// What is planned at each place is what the ledger holds there.
void what_is_planned_at_each_place_is_held_there(void**) {
  for (const Home home : kChoices) {
    for (const int32_t stage : {1, 2, 3}) {
      Case made;
      made.stage = stage;
      made.ranks = 2;
      made.dtype = ZERO_DTYPE_BF16;
      on_ranks(made, home, [&](Rank& rank, int32_t) {
        rank.step([](size_t, size_t, int64_t) { return 1.0f; });
        const memory::Ledger& ledger = rank.runtime().ledger();
        for (const zero_place place : plan::kPlacesHeld) {
          for (int32_t use = ZERO_MEMORY_PARAMS; use < ZERO_MEMORY_TABLES; ++use) {
            const uint64_t planned = rank.runtime().plan("test").memory.placed[place][use];
            if (ledger.current(place, use) == planned && ledger.planned(place, use) == planned) {
              continue;
            }
            throw Error(ZERO_ERR_INTERNAL, format("place %d, use %d", place, use));
          }
        }
      });
    }
  }
}

// The budget holds for each place on its own: offload makes room on the device, and a host that is
// too small says so, without a word of the device.
void the_budget_holds_at_each_place(void**) {
  const auto started = [](Home home, uint64_t budget) {
    Case made;
    made.dtype = ZERO_DTYPE_BF16;
    made.sizes = {1 << 20};
    made.sections = R"(, "libzero": {"memory_budget": )" + std::to_string(budget) + "}";
    try {
      Rank rank(made, home, comm::make_self());
      return std::string();
    } catch (const Error& error) {
      assert_int_equal(error.status(), ZERO_ERR_OUT_OF_MEMORY);
      return error.message();
    }
  };
  // 2 MiB of parameters, 12 of masters and states, 4 of sums, and buckets.
  const std::string device = started(Home::kDevice, 15 << 20);
  assert_non_null(std::strstr(device.c_str(), "bytes do not fit"));
  assert_non_null(
      std::strstr(device.c_str(), "\"zero_optimization.offload_optimizer.device\": \"cpu\""));
  assert_string_equal(started(Home::kOptimizer, 15 << 20).c_str(), "");
  const std::string host = started(Home::kOptimizer, 11 << 20);
  assert_non_null(std::strstr(host.c_str(), "bytes of host memory do not fit"));
  assert_null(std::strstr(host.c_str(), "offload_optimizer"));
  const std::string pinned = started(Home::kPinned, 15 << 20);
  assert_non_null(std::strstr(pinned.c_str(), "bytes of pinned memory do not fit"));
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_stage_and_dtype_gives_the_bits_of_the_host),
      cmocka_unit_test(every_elementwise_optimizer_steps_on_the_host),
      cmocka_unit_test(narrow_masters_and_states_and_the_caller_s_storage_too),
      cmocka_unit_test(overlap_or_none_is_the_same),
      cmocka_unit_test(a_step_that_is_skipped_changes_nothing_anywhere),
      cmocka_unit_test(r015_accumulation_clipping_and_offload_together),
      cmocka_unit_test(r016_no_micro_batch_is_dropped),
      cmocka_unit_test(r065_sub_groups_make_no_difference),
      cmocka_unit_test(what_is_set_between_steps_is_what_steps_on),
      cmocka_unit_test(a_checkpoint_moves_between_homes),
      cmocka_unit_test(what_is_planned_at_each_place_is_held_there),
      cmocka_unit_test(the_budget_holds_at_each_place),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Ranks that do not do the same: another call, another model, another config, or nothing at all.
// Every rank that calls is told which rank differs, and which parameter where there is one.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "fault_ranks.h"

namespace {

constexpr int32_t kRanks = 3;
constexpr int32_t kOdd = 1; // the rank that differs
constexpr int64_t kTimeoutNs = 2 * ranks::kSecond;
// What such a time-out may need on a busy machine.
const int64_t kLimitNs = (ranks::full_tier() ? 4 : 20) * ranks::kSecond;

using faults::Entry;

training::RunSpec spec_of(int32_t stage, int32_t overlap) {
  training::RunSpec spec;
  spec.ranks = kRanks;
  spec.stage = stage;
  spec.overlap = overlap;
  spec.bucket = 3000;
  return spec;
}

// A rank up to its model; ends with whatever the test makes it do.
struct Rank {
  zero_config* config = nullptr;
  zero_comm* comm = nullptr;
  zero_runtime* runtime = nullptr;
  training::Values values;

  Rank(const training::RunSpec& spec, int32_t rank, const std::string& group,
       int64_t timeout_ns = kTimeoutNs) {
    const std::string text = training::config_text(spec);
    OK(zero_config_load_text(text.data(), text.size(), &config));
    OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, timeout_ns, &comm));
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm;
    OK(zero_init(config, &init, &runtime));
  }
  zero_status shard(const training::ModelSpec& model, const training::RunSpec& spec) {
    zero_model* made = training::make_model(model, spec, &values);
    const zero_status status = zero_shard_params(runtime, made);
    zero_model_destroy(made);
    return status;
  }
  ~Rank() {
    const int64_t start = faults::now_ns();
    zero_runtime_destroy(runtime);
    zero_comm_destroy(comm);
    EXPECT(faults::now_ns() - start < kLimitNs);
    zero_config_destroy(config);
  }
};

using Board = ranks::SharedArray<Entry>;

// Runs `act` on every rank; it returns the status of the call that must fail.
void run(const char* what, Board& board,
         const std::function<zero_status(int32_t, const std::string&)>& act) {
  const auto endings = ranks::run_processes(
      static_cast<int32_t>(board.size()),
      [&](int32_t rank, const std::string& group) {
        Entry& entry = board[static_cast<size_t>(rank)];
        const zero_status status = act(rank, group);
        if (entry.error_ns == 0) faults::write_error(entry, status, what);
      },
      30);
  ranks::assert_all_ended_well(endings);
}

bool contains(const Entry& entry, const std::string& text) {
  return std::strstr(entry.text, text.c_str()) != nullptr;
}

void expect_told(const std::string& what, const Entry& entry, size_t rank,
                 const std::string& needed = "") {
  const bool good = faults::is_comm_family(entry.status) && entry.rank_named == kOdd &&
                    contains(entry, "rank " + std::to_string(kOdd)) && contains(entry, needed);
  if (good) return;
  print_message("%s: rank %zu was told: status %d, rank %d: %s\n", what.c_str(), rank, entry.status,
                entry.rank_named, entry.text);
  assert_true(false);
}

// ---- another call -----------------------------------------------------------------------------

struct Act {
  const char* name;
  bool names_parameter; // where it is a bucket or a unit that is reduced or gathered
  zero_status (*call)(Rank&, const training::ModelSpec&);
};

zero_status hand_over_all(Rank& own, const training::ModelSpec& model) {
  for (size_t p = model.size(); p-- > 0;) {
    const auto param = static_cast<int32_t>(p);
    zero_buffer buffer;
    int32_t add = 0;
    zero_status status = zero_grad_buffer(own.runtime, param, nullptr, &buffer, &add);
    if (status == ZERO_OK) {
      std::memset(buffer.data, 0, buffer.bytes);
      status = zero_grad_ready(own.runtime, &param, 1, nullptr);
    }
    if (status != ZERO_OK) return status;
  }
  return ZERO_OK;
}

const Act kActs[] = {
    {"step", false,
     [](Rank& own, const training::ModelSpec&) {
       return zero_step(own.runtime, nullptr, nullptr, nullptr);
     }},
    {"micro_end", true,
     [](Rank& own, const training::ModelSpec&) { return zero_micro_end(own.runtime, nullptr); }},
    {"acquire", true,
     [](Rank& own, const training::ModelSpec& model) {
       const int32_t param =
           static_cast<int32_t>(model.size()) - 5; // a large one of the last block
       zero_buffer buffer;
       return zero_params_acquire(own.runtime, &param, 1, nullptr, &buffer);
     }},
    {"grads", true, &hand_over_all},
    {"param_get", false,
     [](Rank& own, const training::ModelSpec& model) {
       std::vector<float> whole(model[0].elements());
       return zero_param_get(own.runtime, 0, ZERO_PART_STATE, 0, whole.data(), whole.size() * 4);
     }},
    {"grads_clear", false,
     [](Rank& own, const training::ModelSpec&) { return zero_grads_clear(own.runtime, nullptr); }},
    {"comm_barrier", false,
     [](Rank& own, const training::ModelSpec&) { return zero_comm_barrier(own.comm); }},
    {"comm_broadcast", false,
     [](Rank& own, const training::ModelSpec&) {
       int64_t seed = 1;
       return zero_comm_broadcast(own.comm, &seed, sizeof(seed), 0);
     }},
    {"params_broadcast", false,
     [](Rank& own, const training::ModelSpec&) { return zero_params_broadcast(own.runtime, 0); }},
    {"close", false,
     [](Rank& own, const training::ModelSpec&) { return zero_runtime_close(own.runtime); }},
};

// Has places in the runtime's one sequence, which ranks compare before they wait for each other.
bool is_in_sequence(const Act& act) {
  const std::string name = act.name;
  return name.rfind("comm_", 0) != 0 && name != "params_broadcast";
}

// Does not communicate at this stage, or only by itself.
bool is_local(const Act& act, int32_t stage) {
  const std::string name = act.name;
  if (name == "acquire") return stage < 3;
  if (name == "grads") return stage < 2;
  if (name == "param_get") return stage == 0;
  if (name == "params_broadcast") return stage == 3;
  return false;
}

// One act on the odd rank, another on the others; a call that returns is followed by the step,
// which no rank gets through.
void check_pair(const Act& others, const Act& odd, int32_t stage, int32_t overlap) {
  const training::ModelSpec model = training::gpt_model();
  const std::string what = std::string(others.name) + " against " + odd.name + " at stage " +
                           std::to_string(stage) + " overlap " + std::to_string(overlap);
  // Whatever the channels: these need no time-out.
  const bool compared = is_in_sequence(others) && is_in_sequence(odd);
  Board board(kRanks);
  run(what.c_str(), board, [&](int32_t rank, const std::string& group) {
    const training::RunSpec spec = spec_of(stage, overlap);
    Rank own(spec, rank, group, compared ? 60 * ranks::kSecond : kTimeoutNs);
    OK(own.shard(model, spec));
    const Act& act = rank == kOdd ? odd : others;
    Entry& entry = board[static_cast<size_t>(rank)];
    entry.begun_ns.store(faults::now_ns());
    zero_status status = act.call(own, model);
    // With overlap a call may return before its collective has met those of the others.
    if (status == ZERO_OK) status = zero_step(own.runtime, nullptr, nullptr, nullptr);
    if (status == ZERO_OK) status = zero_runtime_close(own.runtime);
    EXPECT(status != ZERO_OK && status != ZERO_ERR_FAILED);
    faults::write_error(entry, status, act.name);
    EXPECT(zero_step(own.runtime, nullptr, nullptr, nullptr) != ZERO_OK);
    EXPECT(zero_step(own.runtime, nullptr, nullptr, nullptr) == ZERO_ERR_FAILED);
    return status;
  });
  for (size_t r = 0; r < kRanks; ++r) {
    const Entry& entry = board[r];
    const bool good = faults::is_comm_family(entry.status) && entry.rank_named >= 0 &&
                      (!compared || entry.status == ZERO_ERR_COMM_MISMATCH) &&
                      contains(entry, "rank " + std::to_string(kOdd)) &&
                      entry.error_ns - entry.begun_ns.load() < kLimitNs;
    // Who of two is named when they meet first depends on who looks; the odd one is in the text.
    if (good) continue;
    print_message("%s: rank %zu was told: status %d, rank %d, after %.3f s: %s\n", what.c_str(), r,
                  entry.status, entry.rank_named,
                  static_cast<double>(entry.error_ns - entry.begun_ns.load()) / 1e9, entry.text);
    assert_true(false);
  }
  const bool bucket_or_unit = (others.names_parameter && !is_local(others, stage)) ||
                              (odd.names_parameter && !is_local(odd, stage));
  if (bucket_or_unit && stage >= 2 && !contains(board[0], " .. ")) {
    print_message("%s: no parameter is named: %s\n", what.c_str(), board[0].text);
    assert_true(false);
  }
}

void a_different_call_is_named(void**) {
  int32_t turn = 0;
  for (const int32_t stage : {3, 2, 1, 0}) {
    for (const Act& others : kActs) {
      for (const Act& odd : kActs) {
        if (&others == &odd || is_local(others, stage) || is_local(odd, stage)) continue;
        const std::string a = others.name, b = odd.name;
        // These two begin with the same reductions: a rank that ends a micro-batch may still step.
        const auto reduces = [](const std::string& name) {
          return name == "step" || name == "micro_end" || name == "grads";
        };
        if (reduces(a) && reduces(b)) continue;
        ++turn;
        if (!ranks::full_tier() && turn % 9 != 0) continue;
        check_pair(others, odd, stage, turn / 9 % 2);
      }
    }
  }
}

// ---- another model, another config ------------------------------------------------------------

struct Difference {
  const char* name;
  const char* needed; // in the text
  void (*change)(training::ModelSpec&, training::RunSpec&);
};

const Difference kModels[] = {
    {"shape", "h.1.mlp.c_fc.bias",
     [](training::ModelSpec& model, training::RunSpec&) {
       for (auto& param : model) {
         if (param.name == "h.1.mlp.c_fc.bias") param.shape = {97};
       }
     }},
    {"name", "wpf", [](training::ModelSpec& model, training::RunSpec&) { model[1].name = "wpf"; }},
    {"order", "h.0.ln_1.bias",
     [](training::ModelSpec& model, training::RunSpec&) { std::swap(model[2], model[3]); }},
    {"role", "ln_f.bias",
     [](training::ModelSpec& model, training::RunSpec&) { model.back().role = ZERO_PARAM_FROZEN; }},
    {"group", "ln_f.bias",
     [](training::ModelSpec& model, training::RunSpec&) { model.back().group = 0; }},
    {"unit", "ln_f.bias",
     [](training::ModelSpec& model, training::RunSpec&) { model.back().unit = 3; }},
    {"one more", "extra",
     [](training::ModelSpec& model, training::RunSpec&) {
       training::ParamSpec extra;
       extra.name = "extra";
       extra.shape = {3};
       model.push_back(extra);
     }},
    {"one less", "ln_f.bias",
     [](training::ModelSpec& model, training::RunSpec&) { model.pop_back(); }},
};

const Difference kConfigs[] = {
    {"stage", "stage", [](training::ModelSpec&, training::RunSpec& spec) { spec.stage = 1; }},
    {"bucket", "reduce_bucket_size",
     [](training::ModelSpec&, training::RunSpec& spec) { spec.bucket = 3001; }},
    {"overlap", "overlap_comm",
     [](training::ModelSpec&, training::RunSpec& spec) { spec.overlap = 1; }},
    {"clipping", "gradient_clipping",
     [](training::ModelSpec&, training::RunSpec& spec) { spec.clipping = 0.25; }},
    {"accumulation", "gradient_accumulation_steps",
     [](training::ModelSpec&, training::RunSpec& spec) { spec.accumulation = 2; }},
    {"optimizer", "0.02",
     [](training::ModelSpec&, training::RunSpec& spec) {
       spec.optimizer = R"({"type": "AdamW", "params": {"lr": 0.02, "weight_decay": 0.1}})";
     }},
};

void check_difference(const Difference& difference, int32_t stage) {
  Board board(kRanks);
  run(difference.name, board, [&](int32_t rank, const std::string& group) {
    training::ModelSpec model = training::gpt_model();
    training::RunSpec spec = spec_of(stage, 0);
    if (rank == kOdd) difference.change(model, spec);
    Rank own(spec, rank, group);
    const zero_status status = own.shard(model, spec);
    faults::write_error(board[static_cast<size_t>(rank)], status, difference.name);
    EXPECT(zero_step(own.runtime, nullptr, nullptr, nullptr) == ZERO_ERR_FAILED);
    return status;
  });
  for (size_t r = 0; r < kRanks; ++r) {
    assert_int_equal(board[r].status, ZERO_ERR_COMM_MISMATCH);
    expect_told(difference.name, board[r], r, difference.needed);
  }
}

void a_different_shape_is_named(void**) {
  for (const Difference& difference : kModels) check_difference(difference, 2);
}

void a_different_config_is_named(void**) {
  for (const Difference& difference : kConfigs) check_difference(difference, 2);
}

// A dtype of which this build has only one for trained parameters: a buffer's.
void a_different_dtype_is_named(void**) {
  Board board(kRanks);
  run("dtype", board, [&](int32_t rank, const std::string& group) {
    const training::RunSpec spec = spec_of(2, 0);
    Rank own(spec, rank, group);
    const training::ModelSpec model = training::gpt_model();
    zero_model* made = training::make_model(model, spec, &own.values);
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    options.role = ZERO_PARAM_BUFFER;
    options.dtype = rank == kOdd ? ZERO_DTYPE_INT64 : ZERO_DTYPE_FP64;
    const int64_t shape[] = {5};
    zero_param_id id = -1;
    OK(zero_param_add(made, "running.count", shape, 1, &options, &id));
    const zero_status status = zero_shard_params(own.runtime, made);
    zero_model_destroy(made);
    return status;
  });
  for (size_t r = 0; r < kRanks; ++r) expect_told("dtype", board[r], r, "running.count");
}

// ---- nothing at all -----------------------------------------------------------------------------

void a_rank_that_never_comes_is_named(void**) {
  Board board(kRanks);
  // It never meets the others.
  run("never there", board, [&](int32_t rank, const std::string& group) {
    if (rank == kOdd) return zero_status{ZERO_OK};
    zero_comm* comm = nullptr;
    board[static_cast<size_t>(rank)].begun_ns.store(faults::now_ns());
    return zero_comm_create_local(group.c_str(), rank, kRanks, kTimeoutNs, &comm);
  });
  for (const size_t r : {0, 2}) {
    assert_int_equal(board[r].status, ZERO_ERR_COMM_TIMEOUT);
    expect_told("never there", board[r], r);
    assert_true(board[r].error_ns - board[r].begun_ns.load() < kLimitNs);
  }
}

void a_live_rank_that_makes_no_progress_is_named(void**) {
  const training::ModelSpec model = training::gpt_model();
  for (const char* call : {"shard_params", "step", "acquire"}) {
    const bool shards = std::strcmp(call, "shard_params") != 0;
    const bool steps = std::strcmp(call, "step") == 0;
    for (int32_t overlap = 0; overlap <= 1; ++overlap) {
      Board board(kRanks);
      run(call, board, [&](int32_t rank, const std::string& group) {
        const training::RunSpec spec = spec_of(3, overlap);
        Rank own(spec, rank, group);
        if (shards) OK(own.shard(model, spec));
        if (rank == kOdd) { // alive, elsewhere
          while (board[0].error_ns == 0 || board[2].error_ns == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
          const zero_status late = shards ? kActs[0].call(own, model) : own.shard(model, spec);
          EXPECT(faults::is_comm_family(late));
          return late;
        }
        board[static_cast<size_t>(rank)].begun_ns.store(faults::now_ns());
        if (!shards) return own.shard(model, spec);
        return steps ? kActs[0].call(own, model) : kActs[2].call(own, model);
      });
      for (const size_t r : {0, 2}) {
        assert_int_equal(board[r].status, ZERO_ERR_COMM_TIMEOUT);
        expect_told(call, board[r], r, steps || !shards ? "" : " .. ");
        assert_true(board[r].error_ns - board[r].begun_ns.load() < kLimitNs);
      }
    }
  }
}

// A gradient that one rank completes before a point and another after it.
void a_gradient_on_the_other_side_of_a_point_is_named(void**) {
  const training::ModelSpec model = training::gpt_model();
  Board board(kRanks);
  run("point", board, [&](int32_t rank, const std::string& group) {
    const training::RunSpec spec = spec_of(3, 0);
    Rank own(spec, rank, group);
    OK(own.shard(model, spec));
    const int32_t last = static_cast<int32_t>(model.size()) - 1, before = last - 1;
    const auto hand_over = [&](int32_t param) {
      zero_buffer buffer;
      int32_t add = 0;
      zero_status status = zero_grad_buffer(own.runtime, param, nullptr, &buffer, &add);
      if (status != ZERO_OK) return status;
      std::memset(buffer.data, 0, buffer.bytes);
      return zero_grad_ready(own.runtime, &param, 1, nullptr);
    };
    OK(hand_over(last));
    if (rank != kOdd) OK(hand_over(before));
    const int32_t other = 0;
    zero_buffer buffer;
    zero_status status = zero_params_acquire(own.runtime, &other, 1, nullptr, &buffer);
    if (status == ZERO_OK) status = zero_micro_end(own.runtime, nullptr);
    return status;
  });
  for (size_t r = 0; r < kRanks; ++r) {
    assert_int_equal(board[r].status, ZERO_ERR_COMM_MISMATCH);
    assert_true(contains(board[r], "ln_f.bias") && contains(board[r], "rank 1"));
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_different_call_is_named),
      cmocka_unit_test(a_different_shape_is_named),
      cmocka_unit_test(a_different_dtype_is_named),
      cmocka_unit_test(a_different_config_is_named),
      cmocka_unit_test(a_rank_that_never_comes_is_named),
      cmocka_unit_test(a_live_rank_that_makes_no_progress_is_named),
      cmocka_unit_test(a_gradient_on_the_other_side_of_a_point_is_named),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

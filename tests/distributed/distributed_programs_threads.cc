// Random programs: each rank hands its gradients over in an order of its own, with few open buckets
// and sometimes a unit missing.  Every program ends, done or refused, never stuck, and what it
// trains is what stage 0 trains.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <random>

#include "model_values.h"
#include "training.h"

namespace {

constexpr int32_t kUnits = 8;
constexpr int32_t kParamsPerUnit = 4;
constexpr int32_t kSteps = 2;
constexpr int64_t kStuckNs = 20 * ranks::kSecond; // of no progress at all: the time-out's answer

// What all ranks know of a program.
struct Program {
  uint64_t seed = 0;
  training::RunSpec spec;
  training::ModelSpec model;
  bool across_units = false; // the order mixes neighbouring units
  bool anyhow = false; // or all of them (stage 2)
  int32_t missing_unit = -1; // closed on every rank but 0
};

std::string describe(const Program& program) {
  return "program " + std::to_string(program.seed) + ": " + training::describe(program.spec) +
         " across units " + std::to_string(program.across_units) + " anyhow " +
         std::to_string(program.anyhow) + " missing unit " + std::to_string(program.missing_unit);
}

Program random_program(uint64_t seed, int32_t size) {
  std::mt19937_64 random(seed * 2 + static_cast<uint64_t>(size));
  Program program;
  program.seed = seed;
  const char* open_buckets[] = {"2", "3", "4", "6"};
  const uint64_t buckets[] = {64, 300, 1200};
  program.spec.ranks = size;
  program.spec.stage = 2 + static_cast<int32_t>(random() % 2);
  program.spec.open_buckets = open_buckets[random() % 4];
  program.spec.bucket = buckets[random() % 3];
  program.spec.overlap = static_cast<int32_t>(random() % 2);
  program.spec.prefetch = random() % 2 == 0;
  program.across_units = random() % 2 == 0;
  program.anyhow = program.spec.stage == 2 && program.across_units && random() % 3 == 0;
  // At stage 3 a gradient refused on one rank and closed on another would part their sequences.
  const bool may_miss = program.spec.stage == 2 || !program.across_units;
  if (may_miss && random() % 2 == 0) {
    program.missing_unit = static_cast<int32_t>(random() % kUnits);
  }
  for (int32_t p = 0; p < kUnits * kParamsPerUnit; ++p) {
    training::ParamSpec param;
    param.name = "p" + std::to_string(p);
    // Now and then one that is larger than four buckets, or empty.
    const uint64_t kind = random() % 16;
    const uint64_t most = kind == 0 ? 3000 : 150;
    param.shape = {kind == 1 ? 0 : static_cast<int64_t>(1 + random() % most)};
    param.unit = p / kParamsPerUnit;
    program.model.push_back(param);
  }
  return program;
}

// The parameters in the order of a rank's backward pass, a list for each unit acquired.
std::vector<std::vector<int32_t>> order_of(const Program& program, int32_t rank, int32_t step) {
  std::mt19937_64 common(program.seed * 1000 + static_cast<uint64_t>(step));
  std::mt19937_64 own(program.seed * 1000 + static_cast<uint64_t>(step * 10 + rank) + 500);
  // At stage 3 what crosses a unit's end must do so on all ranks alike.
  std::mt19937_64& random = program.spec.stage == 3 && program.across_units ? common : own;
  std::vector<std::vector<int32_t>> order;
  for (int32_t unit = kUnits - 1; unit >= 0; --unit) {
    std::vector<int32_t> params;
    for (int32_t p = 0; p < kParamsPerUnit; ++p) params.push_back(unit * kParamsPerUnit + p);
    order.push_back(params);
  }
  if (program.across_units) { // some come one or two units later
    for (size_t u = 0; u + 1 < order.size(); ++u) {
      for (size_t i = 0; i < order[u].size();) {
        const size_t later = u + 1 + random() % 2;
        if (random() % 4 != 0 || later >= order.size()) {
          ++i;
          continue;
        }
        order[later].push_back(order[u][i]);
        order[u].erase(order[u].begin() + static_cast<ptrdiff_t>(i));
      }
    }
  }
  if (program.anyhow) {
    for (size_t u = 1; u < order.size(); ++u) {
      order[0].insert(order[0].end(), order[u].begin(), order[u].end());
      order[u].clear();
    }
  }
  for (auto& params : order) std::shuffle(params.begin(), params.end(), random);
  return order;
}

class RankRun {
 public:
  RankRun(const Program& program, int32_t rank, const std::string& group)
      : program_(program), rank_(rank) {
    const std::string text = training::config_text(program.spec);
    OK(zero_config_load_text(text.data(), text.size(), &config_));
    OK(zero_comm_create_local(group.c_str(), rank, program.spec.ranks, kStuckNs, &comm_));
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm_;
    OK(zero_init(config_, &init, &runtime_));
    zero_model* model = training::make_model(program.model, program.spec, &values_);
    OK(zero_shard_params(runtime_, model));
    zero_model_destroy(model);
  }
  ~RankRun() {
    zero_runtime_destroy(runtime_);
    zero_comm_destroy(comm_);
    zero_config_destroy(config_);
  }

  // Returns in how many of the steps a micro-batch was refused and had to be done again in order.
  int32_t train() {
    int32_t refused = 0;
    for (int32_t step = 0; step < kSteps; ++step) {
      double any = micro_batch(step, order_of(program_, rank_, step)) ? 0 : 1;
      check(zero_comm_all_reduce(comm_, &any, 1, ZERO_REDUCE_MAX), "zero_comm_all_reduce");
      if (any != 0) {
        ++refused;
        check(zero_grads_clear(runtime_, nullptr), "zero_grads_clear");
        Program in_order = program_;
        in_order.across_units = in_order.anyhow = false;
        auto order = order_of(in_order, rank_, step);
        for (auto& params : order) std::sort(params.rbegin(), params.rend());
        EXPECT(micro_batch(step, order));
      }
      check(zero_step(runtime_, nullptr, nullptr, nullptr), "zero_step");
    }
    return refused;
  }

  std::vector<float> parameters() {
    std::vector<float> all;
    for (size_t p = 0; p < program_.model.size(); ++p) {
      std::vector<float> whole(program_.model[p].elements() + 1);
      check(zero_param_get(runtime_, static_cast<int32_t>(p), ZERO_PART_VALUE, 0, whole.data(),
                           (whole.size() - 1) * 4),
            "zero_param_get");
      all.insert(all.end(), whole.begin(), whole.end() - 1);
    }
    check(zero_runtime_close(runtime_), "zero_runtime_close");
    return all;
  }

 private:
  void check(zero_status status, const char* call) {
    if (status == ZERO_OK) return;
    std::fprintf(stderr, "%s\nrank %d: %s: %s: %s\n", describe(program_).c_str(), rank_, call,
                 zero_status_name(status), ranks::last_error().c_str());
    std::abort();
  }

  bool is_missing(int32_t param) const {
    return rank_ != 0 && program_.model[static_cast<size_t>(param)].unit == program_.missing_unit;
  }

  // False: refused for now.
  bool hand_over(int32_t step, int32_t param) {
    if (is_missing(param)) {
      check(zero_grads_close(runtime_, &param, 1, nullptr), "zero_grads_close");
      return true;
    }
    zero_buffer buffer{};
    int32_t add = -1;
    const zero_status status = zero_grad_buffer(runtime_, param, nullptr, &buffer, &add);
    if (status == ZERO_ERR_NO_OPEN_BUCKET) {
      EXPECT(buffer.data == nullptr && add == -1);
      EXPECT(zero_runtime_status(runtime_) == ZERO_OK);
      return false;
    }
    check(status, "zero_grad_buffer");
    EXPECT(add == 0);
    auto* values = static_cast<float*>(buffer.data);
    for (uint64_t i = 0; i < buffer.count; ++i) {
      values[i] = training::gradient(step, 0, rank_, static_cast<size_t>(param), i);
    }
    check(zero_grad_ready(runtime_, &param, 1, nullptr), "zero_grad_ready");
    return true;
  }

  bool try_again(int32_t step, std::vector<int32_t>& refused) {
    bool progress = false;
    for (size_t i = 0; i < refused.size();) {
      if (!hand_over(step, refused[i])) {
        ++i;
        continue;
      }
      refused.erase(refused.begin() + static_cast<ptrdiff_t>(i));
      progress = true;
    }
    return progress;
  }

  // False: some gradient could never be handed over; it was closed.
  bool micro_batch(int32_t step, const std::vector<std::vector<int32_t>>& order) {
    check(zero_micro_begin(runtime_, -1), "zero_micro_begin");
    std::vector<int32_t> refused;
    zero_buffer buffers[kParamsPerUnit];
    for (size_t u = 0; u < order.size(); ++u) {
      const auto unit = unit_params(u);
      check(zero_params_acquire(runtime_, unit.data(), unit.size(), nullptr, buffers),
            "zero_params_acquire");
      if (program_.spec.prefetch && u + 1 < order.size()) {
        const auto next = unit_params(u + 1);
        check(zero_params_prefetch(runtime_, next.data(), next.size()), "zero_params_prefetch");
      }
      for (const int32_t param : order[u]) {
        if (!hand_over(step, param)) refused.push_back(param);
        try_again(step, refused);
      }
      check(zero_params_release(runtime_, unit.data(), unit.size(), 0, nullptr),
            "zero_params_release");
    }
    while (try_again(step, refused)) {
    }
    if (!refused.empty()) {
      check(zero_grads_close(runtime_, refused.data(), refused.size(), nullptr),
            "zero_grads_close");
    }
    check(zero_micro_end(runtime_, nullptr), "zero_micro_end");
    return refused.empty();
  }

  static std::vector<int32_t> unit_params(size_t place) {
    std::vector<int32_t> params;
    const int32_t unit = kUnits - 1 - static_cast<int32_t>(place);
    for (int32_t p = 0; p < kParamsPerUnit; ++p) params.push_back(unit * kParamsPerUnit + p);
    return params;
  }

  const Program& program_;
  const int32_t rank_;
  zero_config* config_ = nullptr;
  zero_comm* comm_ = nullptr;
  zero_runtime* runtime_ = nullptr;
  training::Values values_;
};

// The parameters, equal on all ranks; refused: steps that were done again.
std::vector<float> run(const Program& program, int32_t* refused) {
  std::vector<std::vector<float>> results(static_cast<size_t>(program.spec.ranks));
  std::atomic<int32_t> count{0};
  ranks::run_threads(program.spec.ranks, [&](int32_t rank, const std::string& group) {
    RankRun own(program, rank, group);
    const int32_t refusals = own.train();
    if (rank == 0) count.store(refusals);
    results[static_cast<size_t>(rank)] = own.parameters();
  });
  for (const auto& other : results) {
    EXPECT(other.size() == results[0].size());
    EXPECT(std::memcmp(other.data(), results[0].data(), other.size() * 4) == 0);
  }
  *refused = count.load();
  return results[0];
}

void random_programs_end_or_are_refused(void**) {
  const uint64_t programs = ranks::full_tier() ? 300 : 60;
  int32_t refused_in_all = 0, done_in_all = 0;
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    // Quick: 2 and 3 ranks in turn.
    for (int32_t size = 2; size <= 3; ++size) {
      if (!ranks::full_tier() && static_cast<int32_t>(2 + seed % 2) != size) continue;
      const Program program = random_program(seed, size);
      int32_t refused = 0, none = 0;
      const std::vector<float> trained = run(program, &refused);
      (refused > 0 ? refused_in_all : done_in_all) += 1;
      Program plain = program;
      plain.spec.stage = 0;
      plain.spec.prefetch = false;
      plain.spec.open_buckets = "all";
      plain.across_units = plain.anyhow = false;
      const std::vector<float> expected = run(plain, &none);
      assert_int_equal(none, 0);
      assert_int_equal(trained.size(), expected.size());
      if (std::memcmp(trained.data(), expected.data(), trained.size() * 4) != 0) {
        print_message("%s: parameters differ from stage 0\n", describe(program).c_str());
        assert_true(false);
      }
    }
  }
  print_message("%d done, %d refused and done again\n", done_in_all, refused_in_all);
  // Both ends are reached, or the programs do not test what they should.
  assert_true(done_in_all > 0 && refused_in_all > 0);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(random_programs_end_or_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

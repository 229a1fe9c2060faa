// What a run that is out of memory is told to change is changed here, and then it fits: to the
// byte, and not with one byte less. SPDX-License-Identifier: BSD-3-Clause
#include <map>
#include <regex>
#include <set>

#include "memory_help.h"
#include "model_values.h"

namespace {

using memory_help::blocks_model;
using memory_help::train;
using memory_help::usage;
using training::ModelSpec;
using training::RunSpec;

struct Job {
  RunSpec spec;
  uint64_t budget = 0; // 0: none
  uint64_t early = 0; // bytes of the host program before its model is sharded
  uint64_t late = 0; // and after
  bool own_allocator = false;
  std::vector<std::pair<std::string, std::string>> changes;
};

struct Outcome {
  bool fits = false;
  std::string said; // the whole error of rank 0
  uint64_t total = 0; // what the plan has and the host program holds
};

std::string whole_error() {
  uint64_t length = 0;
  zero_last_error_text(nullptr, 0, &length);
  std::string text(length + 1, '\0');
  OK(zero_last_error_text(text.data(), text.size(), &length));
  text.resize(length);
  return text;
}

std::string one_rank(const Job& job, int32_t rank, const std::string& group, Outcome* outcome) {
  const ModelSpec model = blocks_model();
  const std::string text = training::config_text(job.spec);
  zero_config* config = nullptr;
  OK(zero_config_load_text(text.data(), text.size(), &config));
  if (job.budget > 0) {
    OK(zero_config_set(config, "libzero.memory_budget", std::to_string(job.budget).c_str()));
  }
  for (const auto& [key, value] : job.changes) {
    OK(zero_config_set(config, key.c_str(), value.c_str()));
  }
  zero_comm* comm = nullptr;
  if (job.spec.ranks == 1) {
    OK(zero_comm_create_self(&comm));
  } else {
    OK(zero_comm_create_local(group.c_str(), rank, job.spec.ranks, 60 * ranks::kSecond, &comm));
  }
  zero_init_options init;
  zero_init_options_init(&init, sizeof(init));
  init.comm = comm;
  zero_runtime* runtime = nullptr;
  OK(zero_init(config, &init, &runtime));
  training::Values values;
  zero_model* made = training::make_model(model, job.spec, &values);
  void *early = nullptr, *late = nullptr;
  std::string said;
  const auto failed = [&](zero_status status) {
    if (status == ZERO_OK) return false;
    EXPECT(status == ZERO_ERR_OUT_OF_MEMORY);
    said = whole_error();
    EXPECT(zero_runtime_status(runtime) == ZERO_OK);
    return true;
  };
  const bool out = failed(zero_memory_allocate(runtime, ZERO_PLACE_HOST, job.early, 0, &early)) ||
                   failed(zero_shard_params(runtime, made)) ||
                   failed(zero_memory_allocate(runtime, ZERO_PLACE_HOST, job.late, 0, &late));
  zero_model_destroy(made);
  if (!out) {
    train(runtime, model, job.spec.accumulation);
    if (rank == 0) {
      outcome->total =
          usage(runtime, ZERO_MEMORY_TOTAL, true) + usage(runtime, ZERO_MEMORY_HOST_PROGRAM, false);
    }
    OK(zero_runtime_close(runtime));
  }
  if (rank == 0) {
    outcome->fits = !out;
    outcome->said = said;
  }
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
  zero_config_destroy(config);
  return said;
}

Outcome run(const Job& job) {
  Outcome outcome;
  std::vector<std::string> said(static_cast<size_t>(job.spec.ranks));
  ranks::run_threads(job.spec.ranks, [&](int32_t rank, const std::string& group) {
    said[static_cast<size_t>(rank)] = one_rank(job, rank, group, &outcome);
  });
  return outcome;
}

// What a plan of the same needs, from the plan alone.
uint64_t planned(const Job& job) {
  const std::string text = training::config_text(job.spec);
  zero_config* config = nullptr;
  OK(zero_config_load_text(text.data(), text.size(), &config));
  training::Values values;
  zero_model* made = training::make_model(blocks_model(), job.spec, &values);
  zero_plan_options options;
  zero_plan_options_init(&options, sizeof(options));
  options.world_size = job.spec.ranks;
  zero_plan* plan = nullptr;
  OK(zero_plan_create(config, made, &options, &plan));
  uint64_t bytes = 0;
  OK(zero_plan_memory(plan, 0, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, &bytes));
  zero_plan_destroy(plan);
  zero_model_destroy(made);
  zero_config_destroy(config);
  return bytes;
}

struct Advice {
  std::string kind;
  uint64_t total = 0;
  Job job; // with the changes made
};

// Every numbered piece of advice in the text, applied to the job it was given for.
std::vector<Advice> parse(const std::string& text, const Job& job) {
  static const std::regex piece(R"re((\d+)\. ([a-z -]+): (.*?) -> (\d+) bytes)re");
  static const std::regex change(R"re("([a-z0-9_.]+)": ("[a-z]+"|\d+))re");
  static const std::regex world(R"re((\d+) ranks)re");
  std::vector<Advice> list;
  for (std::sregex_iterator at(text.begin(), text.end(), piece), end; at != end; ++at) {
    EXPECT(std::stoul((*at)[1]) == list.size() + 1);
    Advice advice{(*at)[2], std::stoull((*at)[4]), job};
    const std::string what = (*at)[3];
    for (std::sregex_iterator one(what.begin(), what.end(), change); one != end; ++one) {
      const std::string key = (*one)[1], value = (*one)[2];
      advice.job.changes.emplace_back(key, value);
      if (key == "zero_optimization.stage") advice.job.spec.stage = std::stoi(value);
      if (key != "gradient_accumulation_steps") continue;
      const auto steps = static_cast<int32_t>(std::stol(value));
      const auto divisor = static_cast<uint64_t>(steps / job.spec.accumulation);
      advice.job.spec.accumulation = steps;
      advice.job.early = (job.early + divisor - 1) / divisor;
      advice.job.late = (job.late + divisor - 1) / divisor;
    }
    std::smatch found;
    if (std::regex_search(what, found, world)) advice.job.spec.ranks = std::stoi(found[1]);
    list.push_back(advice);
  }
  return list;
}

struct Seen {
  std::map<std::string, int> kinds;
  int without = 0; // cases in which nothing fits
};

const char* const kOrder[] = {"smaller buckets", "masters as remainders", "a higher stage",
                              "more ranks", "a smaller micro-batch"};

// job fails within its budget; each piece of advice makes it fit, into its own total exactly.
void follow(const Job& job, Seen* seen) {
  const Outcome before = run(job);
  EXPECT(!before.fits);
  const std::string budget = "libzero.memory_budget = " + std::to_string(job.budget);
  EXPECT(before.said.find(budget) != std::string::npos);
  const std::vector<Advice> list = parse(before.said, job);
  size_t place = 0;
  for (const Advice& advice : list) {
    while (place < 5 && advice.kind != kOrder[place]) ++place; // cheapest first, each kind once
    EXPECT(place++ < 5);
    if (advice.job.spec.ranks > 8) continue; // more threads than a test should have
    EXPECT(advice.total <= job.budget);
    Job changed = advice.job;
    const Outcome within = run(changed);
    if (!within.fits) print_message("%s\n%s\n", before.said.c_str(), within.said.c_str());
    EXPECT(within.fits);
    EXPECT(within.total == advice.total);
    changed.budget = advice.total;
    EXPECT(run(changed).fits);
    changed.budget = advice.total - 1;
    EXPECT(!run(changed).fits);
    ++seen->kinds[advice.kind];
  }
  if (!list.empty()) return;
  EXPECT(before.said.find("no change tried here fits") != std::string::npos);
  ++seen->without;
}

Job job_of(int32_t ranks, int32_t stage, zero_dtype dtype) {
  Job job;
  job.spec.ranks = ranks;
  job.spec.stage = stage;
  job.spec.dtype = dtype;
  return job;
}

void what_zero_shard_params_advises_fits_to_the_byte(void**) {
  Seen seen;
  const bool full = ranks::full_tier();
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP16}) {
      for (int32_t size = 1; size <= (full ? 3 : 2); ++size) {
        for (const uint64_t percent : {99, 90, 80, 60, 40, 20, 2}) {
          if (!full && (percent / 10 + static_cast<uint64_t>(stage + dtype + size)) % 3 != 0) {
            continue;
          }
          Job job = job_of(size, stage, dtype);
          job.early = 10000;
          job.budget = planned(job) * percent / 100 + job.early;
          follow(job, &seen);
        }
      }
    }
  }
  for (const char* kind :
       {"smaller buckets", "masters as remainders", "a higher stage", "more ranks"}) {
    if (seen.kinds[kind] == 0) print_message("never: %s\n", kind);
    assert_true(seen.kinds[kind] > 0);
  }
  assert_true(seen.without > 0);
}

void what_an_activation_allocation_advises_fits_to_the_byte(void**) {
  Seen seen;
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16}) {
      for (const uint64_t short_by : {1, 30000, 300000, 3000000}) {
        for (const int64_t samples : {0, 6}) {
          const bool quick =
              (stage + dtype + (samples > 0 ? 1 : 0) + (short_by > 1 ? 1 : 0)) % 3 == 0;
          if (!ranks::full_tier() && !quick) continue;
          Job job = job_of(2, stage, dtype);
          job.spec.accumulation = 1 + stage % 2;
          if (samples > 0) {
            job.spec.top = ", \"train_micro_batch_size_per_gpu\": " + std::to_string(samples);
          }
          job.early = 20000;
          job.late = 3100000;
          job.budget = planned(job) + job.early + job.late - short_by;
          follow(job, &seen);
        }
      }
    }
  }
  for (const char* kind : kOrder) {
    if (seen.kinds[kind] == 0) print_message("never: %s\n", kind);
    assert_true(seen.kinds[kind] > 0);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_zero_shard_params_advises_fits_to_the_byte),
      cmocka_unit_test(what_an_activation_allocation_advises_fits_to_the_byte),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

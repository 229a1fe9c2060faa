// Memory over a long run: forked ranks train at each stage, and after a warm-up neither does their
// memory grow nor is anything allocated.
// SPDX-License-Identifier: BSD-3-Clause
#include "counted_allocations.h"

#include <fcntl.h>

#include "memory_help.h"
#include "model_values.h"

namespace {

using training::RunSpec;

constexpr int32_t kWarmUp = 50;
constexpr uint64_t kMostGrowth = 1000000;

// What this rank's process holds, memory that it shares with others divided by their number; pages
// of files left out, which come and go with other programs.
uint64_t proportional_bytes() {
  static char text[4096];
  const int file = open("/proc/self/smaps_rollup", O_RDONLY);
  EXPECT(file >= 0);
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  EXPECT(length > 0);
  text[length] = '\0';
  uint64_t kilobytes = 0;
  for (const char* name : {"Pss_Anon:", "Pss_Shmem:"}) {
    const char* at = std::strstr(text, name);
    EXPECT(at != nullptr);
    kilobytes += std::strtoull(at + std::strlen(name), nullptr, 10);
  }
  return 1024 * kilobytes;
}

struct Growth {
  int64_t allocations;
  uint64_t before, after;
};

Growth soak(const RunSpec& spec, int32_t rank, const std::string& group) {
  const std::string text = training::config_text(spec);
  const training::ModelSpec model = memory_help::blocks_model();
  zero_config* config = nullptr;
  OK(zero_config_load_text(text.data(), text.size(), &config));
  zero_comm* comm = nullptr;
  OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
  zero_init_options init;
  zero_init_options_init(&init, sizeof(init));
  init.comm = comm;
  zero_runtime* runtime = nullptr;
  OK(zero_init(config, &init, &runtime));
  training::Values values;
  zero_model* made = training::make_model(model, spec, &values);
  OK(zero_shard_params(runtime, made));
  zero_model_destroy(made);
  Growth growth{};
  counting.store(true);
  for (int32_t step = 0; step < spec.steps; ++step) {
    if (step == kWarmUp) {
      OK(zero_comm_barrier(comm));
      growth.before = proportional_bytes();
    }
    memory_help::train(runtime, model, spec.accumulation);
  }
  growth.allocations = end_count();
  OK(zero_comm_barrier(comm)); // both are there: neither holds the other's share
  growth.after = proportional_bytes();
  OK(zero_comm_barrier(comm));
  const uint64_t held = memory_help::usage(runtime, ZERO_MEMORY_TOTAL, false);
  EXPECT(held <= memory_help::usage(runtime, ZERO_MEMORY_TOTAL, true));
  OK(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
  zero_config_destroy(config);
  return growth;
}

void memory_stays_flat_and_nothing_is_allocated_at_any_stage(void**) {
#ifdef LIBZERO_SANITIZED
  skip();
#endif
  bool good = true;
  for (int32_t stage = 0; stage <= 3; ++stage) {
    RunSpec spec;
    spec.ranks = 2;
    spec.stage = stage;
    spec.dtype = stage % 2 == 0 ? ZERO_DTYPE_BF16 : ZERO_DTYPE_FP32;
    spec.overlap = stage % 2;
    spec.accumulation = 1 + stage / 2;
    spec.steps = ranks::full_tier() ? 10000 : 300;
    ranks::SharedArray<Growth> growth(2);
    ranks::assert_all_ended_well(ranks::run_processes(
        spec.ranks,
        [&](int32_t rank, const std::string& group) {
          growth[static_cast<size_t>(rank)] = soak(spec, rank, group);
        },
        ranks::full_tier() ? 3600 : 90));
    for (size_t rank = 0; rank < 2; ++rank) {
      const Growth& of = growth[rank];
      assert_true(of.before > 1000000); // the measure sees the run's memory
      if (of.allocations == 0 && of.after <= of.before + kMostGrowth) continue;
      print_message("stage %d, rank %zu: %lld allocations, from %llu to %llu bytes\n", stage, rank,
                    static_cast<long long>(of.allocations),
                    static_cast<unsigned long long>(of.before),
                    static_cast<unsigned long long>(of.after));
      good = false;
    }
  }
  assert_true(good);
}

} // namespace

int main() {
  void* warm[4];
  backtrace(warm, 4); // loads what it needs
  const CMUnitTest tests[] = {
      cmocka_unit_test(memory_stays_flat_and_nothing_is_allocated_at_any_stage),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

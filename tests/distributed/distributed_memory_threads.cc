// The ledger from any thread: while ranks train, others read it, allocate under the budget, ask for
// explanations.  Nothing ever exceeds the budget, and at the end every byte is accounted for.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <thread>

#include "memory_help.h"
#include "model_values.h"

namespace {

using training::RunSpec;

constexpr uint64_t kRoom = 5000000; // beside the plan

zero_memory_info info_of(const zero_runtime* runtime, zero_memory_use use) {
  zero_memory_info info;
  zero_memory_info_init(&info, sizeof(info));
  OK(zero_memory_usage(runtime, ZERO_PLACE_HOST, use, &info));
  return info;
}

// Blocks of many sizes, small ones and huge pages, until told to stop.
void host_program(zero_runtime* runtime, uint64_t seed, const std::atomic<bool>& stop,
                  std::atomic<int>* refused) {
  std::vector<std::pair<void*, uint64_t>> blocks;
  uint64_t number = seed;
  while (!stop.load() || blocks.empty()) {
    number = number * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bytes = (number >> 33) % 2500000 + 1;
    void* memory = nullptr;
    const zero_status status = zero_memory_allocate(runtime, ZERO_PLACE_HOST, bytes, 64, &memory);
    if (status == ZERO_OK) {
      std::memset(memory, static_cast<int>(seed), bytes);
      blocks.emplace_back(memory, bytes);
    } else {
      EXPECT(status == ZERO_ERR_OUT_OF_MEMORY);
      refused->fetch_add(1);
    }
    const bool full = status != ZERO_OK || blocks.size() > 6;
    while (!blocks.empty() && (full || stop.load()) && blocks.size() > (stop.load() ? 0u : 2u)) {
      const auto* values = static_cast<const unsigned char*>(blocks.back().first);
      EXPECT(values[0] == seed && values[blocks.back().second - 1] == seed);
      zero_memory_free(runtime, blocks.back().first);
      blocks.pop_back();
    }
    if (stop.load()) break;
  }
}

void reader(zero_runtime* runtime, const std::atomic<bool>& stop) {
  char text[20000];
  uint64_t length = 0;
  for (int round = 0; !stop.load(); ++round) {
    for (zero_memory_use use = ZERO_MEMORY_TOTAL; use <= ZERO_MEMORY_HOST_PROGRAM; ++use) {
      const zero_memory_info info = info_of(runtime, use);
      if (use == ZERO_MEMORY_HOST_PROGRAM) EXPECT(info.current <= kRoom);
    }
    if (round % 8 == 0) {
      OK(zero_memory_explain(runtime, ZERO_PLACE_HOST, 1000, text, sizeof(text), &length));
    }
    if (round % 16 == 0) OK(zero_memory_reset_peak(runtime));
    std::this_thread::yield();
  }
}

void every_thread_sees_one_ledger_and_one_budget(void**) {
  for (int32_t stage = 0; stage <= 3; ++stage) {
    RunSpec spec;
    spec.ranks = 2;
    spec.stage = stage;
    spec.overlap = 1;
    ranks::run_threads(spec.ranks, [&](int32_t rank, const std::string& group) {
      const training::ModelSpec model = memory_help::blocks_model();
      const std::string text = training::config_text(spec);
      zero_config* config = nullptr;
      OK(zero_config_load_text(text.data(), text.size(), &config));
      training::Values values;
      zero_model* made = training::make_model(model, spec, &values);
      zero_plan_options options;
      zero_plan_options_init(&options, sizeof(options));
      options.world_size = spec.ranks;
      zero_plan* plan = nullptr;
      OK(zero_plan_create(config, made, &options, &plan));
      uint64_t planned = 0;
      OK(zero_plan_memory(plan, rank, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, &planned));
      zero_plan_destroy(plan);
      OK(zero_config_set(config, "libzero.memory_budget", std::to_string(planned + kRoom).c_str()));
      zero_comm* comm = nullptr;
      OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
      zero_init_options init;
      zero_init_options_init(&init, sizeof(init));
      init.comm = comm;
      zero_runtime* runtime = nullptr;
      OK(zero_init(config, &init, &runtime));
      std::atomic<bool> stop{false};
      std::atomic<int> refused{0};
      std::thread watching([&] { reader(runtime, stop); });
      OK(zero_shard_params(runtime, made)); // under the reader's eyes
      zero_model_destroy(made);
      std::thread first([&] { host_program(runtime, 1, stop, &refused); });
      std::thread second([&] { host_program(runtime, 2, stop, &refused); });
      for (int32_t step = 0; step < 10; ++step) memory_help::train(runtime, model, 1);
      while (refused.load() < 3) std::this_thread::yield();
      stop.store(true);
      for (std::thread* thread : {&watching, &first, &second}) thread->join();
      EXPECT(info_of(runtime, ZERO_MEMORY_HOST_PROGRAM).current == 0);
      uint64_t sum = 0;
      for (zero_memory_use use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; ++use) {
        sum += info_of(runtime, use).current;
      }
      EXPECT(info_of(runtime, ZERO_MEMORY_TOTAL).current == sum);
      // All of the room is there again, and not a byte more.
      void* memory = nullptr;
      EXPECT(zero_memory_allocate(runtime, ZERO_PLACE_HOST, kRoom + 1, 0, &memory) ==
             ZERO_ERR_OUT_OF_MEMORY);
      OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, kRoom, 0, &memory));
      OK(zero_runtime_close(runtime));
      zero_memory_free(runtime, memory);
      zero_runtime_destroy(runtime);
      zero_comm_destroy(comm);
      zero_config_destroy(config);
    });
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_thread_sees_one_ledger_and_one_budget),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Nothing is allocated in a step.
// SPDX-License-Identifier: BSD-3-Clause
#include "counted_allocations.h"

#include <algorithm>
#include <thread>

#include "model_values.h"
#include "training.h"

namespace {

// Where ranks that are threads wait for each other without allocating.
class Meeting {
 public:
  explicit Meeting(int32_t size) : size_(size) {}
  void wait() {
    const int32_t turn = turn_.load();
    if (arrived_.fetch_add(1) + 1 == size_) {
      arrived_.store(0);
      turn_.store(turn + 1);
    }
    while (turn_.load() == turn) std::this_thread::yield();
  }

 private:
  const int32_t size_;
  std::atomic<int32_t> arrived_{0}, turn_{0};
};

// All that the calls between the marks need, made before.
struct Prepared {
  std::vector<std::vector<int32_t>> units; // in backward order
  std::vector<zero_buffer> buffers;
  std::vector<float> gradient;
};

Prepared prepare(const training::ModelSpec& model) {
  Prepared prepared;
  prepared.units.resize(5);
  uint64_t largest = 0;
  for (size_t p = model.size(); p-- > 0;) {
    prepared.units[static_cast<size_t>(4 - model[p].unit)].push_back(static_cast<int32_t>(p));
    largest = std::max(largest, model[p].elements());
  }
  prepared.buffers.resize(model.size());
  prepared.gradient.assign(largest, 0.25f);
  return prepared;
}

void hand_over(zero_runtime* runtime, const training::ModelSpec& model, const Prepared& prepared,
               int32_t param) {
  const uint64_t count = model[static_cast<size_t>(param)].elements();
  if (param % 7 == 3) {
    OK(zero_grads_close(runtime, &param, 1, nullptr));
    return;
  }
  if (param % 3 == 0) {
    const zero_buffer gradient{const_cast<float*>(prepared.gradient.data()),
                               count * 4,
                               count,
                               ZERO_DTYPE_FP32,
                               ZERO_PLACE_HOST,
                               -1,
                               0};
    OK(zero_grad_submit(runtime, param, &gradient, nullptr));
    return;
  }
  zero_buffer buffer;
  int32_t add = 0;
  OK(zero_grad_buffer(runtime, param, nullptr, &buffer, &add));
  auto* values = static_cast<float*>(buffer.data);
  for (uint64_t i = 0; i < count; ++i) values[i] = (add != 0 ? values[i] : 0.0f) + 0.5f;
  OK(zero_grad_ready(runtime, &param, 1, nullptr));
}

void micro_batch(zero_runtime* runtime, const training::ModelSpec& model, Prepared& prepared) {
  OK(zero_micro_begin(runtime, -1));
  for (size_t u = 0; u < prepared.units.size(); ++u) {
    const auto& unit = prepared.units[u];
    OK(zero_params_acquire(runtime, unit.data(), unit.size(), nullptr, prepared.buffers.data()));
    if (u + 1 < prepared.units.size()) {
      const auto& next = prepared.units[u + 1];
      OK(zero_params_prefetch(runtime, next.data(), next.size()));
    }
    for (const int32_t param : unit) hand_over(runtime, model, prepared, param);
    OK(zero_params_release(runtime, unit.data(), unit.size(), u % 2 == 0 ? 1 : 0, nullptr));
  }
  OK(zero_micro_end(runtime, nullptr));
}

constexpr const char* kHostOptimizer = R"({"type": "libzero.host", "params": {"states": 1}})";

void one_step(zero_runtime* runtime, const training::RunSpec& spec, zero_step_info* info) {
  if (spec.optimizer != kHostOptimizer) {
    OK(zero_step(runtime, nullptr, nullptr, info));
    return;
  }
  OK(zero_step_begin(runtime, nullptr, nullptr, info));
  zero_buffer part;
  OK(zero_shard_buffer(runtime, 0, ZERO_PART_STATE, 0, &part));
  OK(zero_step_end(runtime, nullptr));
}

void steps(zero_runtime* runtime, const training::ModelSpec& model, const training::RunSpec& spec,
           Prepared& prepared) {
  zero_step_info info;
  zero_step_info_init(&info, sizeof(info));
  for (int32_t step = 0; step < spec.steps; ++step) {
    for (int32_t micro = 0; micro < spec.accumulation; ++micro) {
      micro_batch(runtime, model, prepared);
    }
    one_step(runtime, spec, &info);
    EXPECT(info.skipped == 0);
  }
  // A micro-batch that is forgotten, and a step without micro calls.
  micro_batch(runtime, model, prepared);
  OK(zero_grads_clear(runtime, nullptr));
  one_step(runtime, spec, nullptr);
  EXPECT(zero_step_count(runtime) == spec.steps + 1);
  if (spec.stage < 3) OK(zero_params_broadcast(runtime, spec.ranks - 1));
  OK(zero_runtime_status(runtime));
}

int64_t allocations_of(const training::RunSpec& spec) {
  const training::ModelSpec model = training::gpt_model();
  Meeting meeting(spec.ranks);
  std::atomic<int64_t> total{0};
  ranks::run_threads(spec.ranks, [&](int32_t rank, const std::string& group) {
    const std::string text = training::config_text(spec);
    zero_config* config = nullptr;
    OK(zero_config_load_text(text.data(), text.size(), &config));
    zero_comm* comm = nullptr;
    if (spec.ranks == 1 && spec.overlap == 0) {
      OK(zero_comm_create_self(&comm));
    } else {
      OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
    }
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm;
    zero_runtime* runtime = nullptr;
    OK(zero_init(config, &init, &runtime));
    training::Values values;
    zero_model* made = training::make_model(model, spec, &values);
    OK(zero_shard_params(runtime, made));
    zero_model_destroy(made);
    Prepared prepared = prepare(model);
    meeting.wait();
    if (rank == 0) counting.store(true);
    meeting.wait();
    steps(runtime, model, spec, prepared);
    meeting.wait();
    if (rank == 0) total.store(end_count());
    meeting.wait();
    OK(zero_runtime_close(runtime));
    zero_runtime_destroy(runtime);
    zero_comm_destroy(comm);
    zero_config_destroy(config);
  });
  return total.load();
}

void the_counter_sees_what_the_library_allocates(void**) {
#ifdef LIBZERO_SANITIZED
  skip();
#endif
  zero_config* config = nullptr;
  counting.store(true);
  const zero_status status = zero_config_create(&config);
  counting.store(false);
  const int64_t seen = counted.exchange(0);
  assert_int_equal(status, ZERO_OK);
  assert_true(seen > 0);
  zero_config_destroy(config);
  // Memory for the shards comes from mmap, which is counted as well.
  counting.store(true);
  void* const mapping =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  counting.store(false);
  assert_int_equal(counted.exchange(0), 1);
  munmap(mapping, 4096);
}

void no_step_allocates(void**) {
#ifdef LIBZERO_SANITIZED
  skip();
#endif
  bool good = true;
  for (int32_t size = 1; size <= 2; ++size) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      for (int32_t variant = 0; variant < 32; ++variant) {
        training::RunSpec spec;
        spec.ranks = size;
        spec.stage = stage;
        spec.bucket = 3000;
        spec.steps = 2;
        spec.overlap = variant & 1;
        spec.accumulation = (variant & 2) != 0 ? 3 : 1;
        if ((variant & 4) != 0) spec.libzero = ", \"param_norms\": true";
        if ((variant & 8) != 0 && stage < 3) spec.storage = ZERO_STORAGE_CALLER;
        if ((variant & 8) != 0 && stage == 3) spec.reproducible = true;
        if ((variant & 16) != 0) spec.optimizer = kHostOptimizer;
        const int64_t allocations = allocations_of(spec);
        if (allocations == 0) continue;
        print_message("%s, variant %d: %lld allocations\n", training::describe(spec).c_str(),
                      variant, static_cast<long long>(allocations));
        good = false;
      }
    }
  }
  assert_true(good);
}

} // namespace

int main() {
  void* warm[4];
  backtrace(warm, 4); // loads what it needs
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_counter_sees_what_the_library_allocates),
      cmocka_unit_test(no_step_allocates),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

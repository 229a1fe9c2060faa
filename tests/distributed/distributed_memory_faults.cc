// Memory that runs out anywhere: this program's own operator new fails at its k-th call, for every
// k of a whole run, once or from then on; and so does the host program's allocator.  Always a
// status, never a leak; what the header calls usable afterwards is used.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>

#include "model_values.h"
#include "training.h"

namespace {

constexpr int64_t kNever = INT64_MAX;

// Of this thread alone, so that one rank of several can be the one without memory.
thread_local int64_t calls_left = kNever; // the call that finds 0 fails
thread_local bool fails_on = false; // and all after it
thread_local int64_t failures = 0;
thread_local bool in_library = false; // only there
std::atomic<int64_t> live{0};

void* obtain(size_t bytes, size_t alignment) noexcept {
  if (in_library && calls_left != kNever) {
    if (calls_left <= 0 && (calls_left == 0 || fails_on)) {
      ++failures;
      --calls_left;
      return nullptr;
    }
    --calls_left;
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes == 0 ? 1 : bytes) != 0) {
    return nullptr;
  }
  live.fetch_add(1);
  return memory;
}

void* obtain_or_throw(size_t bytes, size_t alignment = alignof(std::max_align_t)) {
  void* memory = obtain(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give_back(void* memory) noexcept {
  if (memory == nullptr) return;
  live.fetch_sub(1);
  std::free(memory);
}

void fail_at(int64_t call, bool from_then_on) {
  calls_left = call;
  fails_on = from_then_on;
  failures = 0;
}
// Whether there was a failure; then there are no more.
bool stop_after_failure() {
  if (failures > 0) calls_left = kNever;
  return failures > 0;
}

} // namespace

void* operator new(size_t bytes) {
  return obtain_or_throw(bytes);
}
void* operator new[](size_t bytes) {
  return obtain_or_throw(bytes);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return obtain_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return obtain_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return obtain(bytes, alignof(std::max_align_t));
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return obtain(bytes, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept {
  give_back(memory);
}
void operator delete[](void* memory) noexcept {
  give_back(memory);
}
void operator delete(void* memory, size_t) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  give_back(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  give_back(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  give_back(memory);
}

namespace {

constexpr int64_t kElements = 300;
constexpr int64_t kTimeout = 60 * ranks::kSecond;

// Thousands of plans are made for an explanation: every k of it in the full tier only.
bool explains() {
  return ranks::full_tier();
}

// The host program of one rank.  A call that fails is made again where memory is back; what is left
// alone by a failure is as it was, so that the run ends with the same values all the same.
class Program {
 public:
  Program(int32_t stage, int32_t rank, int32_t size, const char* group, int64_t fail_call,
          bool from_then_on)
      : stage_(stage),
        rank_(rank),
        size_(size),
        group_(group),
        fail_call_(fail_call),
        from_then_on_(from_then_on) {
    if (size == 1) arm();
  }

  // The first element after two steps; NaN where the run was ended by a failure.
  float run();
  bool had_failure() const { return had_failure_; }

 private:
  void arm() const {
    if (fail_call_ >= 0) fail_at(fail_call_, from_then_on_);
  }
  // True: done, at the second attempt if need be.  False: the runtime is ended.
  template <typename Call>
  bool made(Call call, zero_runtime* runtime = nullptr) {
    in_library = true;
    const zero_status status = call();
    in_library = false;
    if (stop_after_failure()) had_failure_ = true;
    if (status == ZERO_OK) return true;
    EXPECT(zero_status_name(status)[0] == 'Z');
    zero_error_info info;
    zero_error_info_init(&info, sizeof(info));
    EXPECT(zero_last_error(&info) == ZERO_OK && info.status == status);
    EXPECT(info.message[0] != '\0');
    if (runtime != nullptr && zero_runtime_status(runtime) != ZERO_OK) {
      EXPECT(size_ > 1); // one rank is never left in the middle of anything
      return false;
    }
    // On one rank, or before the ranks meet, nothing else can be meant; among ranks the others are
    // told, and all stand as before.
    if (status != ZERO_ERR_OUT_OF_MEMORY) {
      print_message("%s: %s\n", zero_status_name(status), info.message);
    }
    EXPECT(status == ZERO_ERR_OUT_OF_MEMORY);
    OK(call());
    return true;
  }
  bool train(zero_runtime* runtime, zero_param_id* ids);

  const int32_t stage_, rank_, size_;
  const char* const group_;
  const int64_t fail_call_; // -1: none
  const bool from_then_on_;
  bool had_failure_ = false;
};

bool Program::train(zero_runtime* runtime, zero_param_id* ids) {
  for (int32_t step = 0; step < 2; ++step) {
    for (int32_t p = 1; p >= 0; --p) {
      zero_buffer gradient, value;
      int32_t add = 0;
      if (!made([&] { return zero_params_acquire(runtime, ids + p, 1, nullptr, &value); },
                runtime) ||
          !made([&] { return zero_grad_buffer(runtime, ids[p], nullptr, &gradient, &add); },
                runtime)) {
        return false;
      }
      auto* values = static_cast<float*>(gradient.data);
      for (int64_t i = 0; i < kElements; ++i) values[i] = 0.5f;
      if (!made([&] { return zero_grad_ready(runtime, ids + p, 1, nullptr); }, runtime) ||
          !made([&] { return zero_params_release(runtime, ids + p, 1, 0, nullptr); }, runtime)) {
        return false;
      }
    }
    zero_step_info info;
    zero_step_info_init(&info, sizeof(info));
    if (!made([&] { return zero_step(runtime, nullptr, nullptr, &info); }, runtime)) return false;
  }
  return true;
}

float Program::run() {
  const std::string text =
      R"({"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 0.25}}, )"
      R"("zero_optimization": {"stage": )" +
      std::to_string(stage_) +
      R"(, "reduce_bucket_size": 0, "stage3_param_persistence_threshold": 0},)"
      R"("libzero": {"threads": 1}})";
  float first = NAN;
  zero_config* config = nullptr;
  zero_model* model = nullptr;
  zero_comm* comm = nullptr;
  zero_runtime* runtime = nullptr;
  zero_plan* plan = nullptr;
  void* memory = nullptr;
  zero_param_id ids[2] = {-1, -1};
  std::vector<float> values(kElements, 1.0f);
  char report[20000];
  uint64_t length = 0;
  zero_init_options init;
  zero_init_options_init(&init, sizeof(init));
  const auto create_comm = [&] {
    return size_ == 1 ? zero_comm_create_self(&comm)
                      : zero_comm_create_local(group_, rank_, size_, kTimeout, &comm);
  };
  const auto start = [&] {
    init.comm = comm;
    return zero_init(config, &init, &runtime);
  };
  const auto add = [&](int32_t p, const char* name) {
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    options.data = values.data();
    return zero_param_add(model, name, &kElements, 1, &options, &ids[p]);
  };
  bool going = made([&] { return zero_config_load_text(text.data(), text.size(), &config); }) &&
               made([&] { return zero_config_check(config); }) &&
               made([&] { return zero_model_create(&model); }) &&
               made([&] { return add(0, "first"); }) &&
               made([&] { return add(1, "a second one with a long name"); }) &&
               made([&] { return zero_plan_create(config, model, nullptr, &plan); }) &&
               made([&] { return zero_plan_text(plan, report, sizeof(report), &length); }) &&
               made(create_comm);
  // Several ranks have met: from here on one may be without memory.
  if (size_ > 1) arm();
  going =
      going && made(start) && made([&] { return zero_shard_params(runtime, model); }, runtime) &&
      made([&] { return zero_memory_allocate(runtime, ZERO_PLACE_HOST, 100, 0, &memory); },
           runtime) &&
      train(runtime, ids) &&
      (!explains() || made(
                          [&] {
                            return zero_memory_explain(runtime, ZERO_PLACE_HOST, 1000, report,
                                                       sizeof(report), &length);
                          },
                          runtime)) &&
      made([&] { return zero_runtime_text(runtime, report, sizeof(report), &length); }, runtime) &&
      made(
          [&] {
            return zero_param_get(runtime, ids[0], ZERO_PART_VALUE, 0, values.data(),
                                  kElements * sizeof(float));
          },
          runtime) &&
      made([&] { return zero_runtime_close(runtime); }, runtime);
  if (going) first = values[0];
  calls_left = kNever;
  zero_memory_free(runtime, memory);
  zero_plan_destroy(plan);
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
  zero_model_destroy(model);
  zero_config_destroy(config);
  return first;
}

// Texts that a thread keeps of its last error; made as long as they get.
void settle() {
  const std::string longest(3000, 'x');
  zero_set_last_error(ZERO_ERR_USER, longest.c_str());
}

void any_one_allocation_may_fail_and_the_run_goes_on(void**) {
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const bool from_then_on : {false, true}) {
      settle();
      const float expected = Program(stage, 0, 1, "", -1, false).run();
      assert_true(expected == 0.75f); // two steps of 0.25 x 0.5
      settle();
      const int64_t before = live.load();
      int64_t call = ranks::full_tier() ? 0 : stage % 2 + 2 * (from_then_on ? 1 : 0);
      for (;; call += ranks::full_tier() ? 1 : 13) {
        {
          Program program(stage, 0, 1, "", call, from_then_on);
          const float value = program.run();
          if (value != expected) print_message("stage %d, call %d: %g\n", stage, (int)call, value);
          assert_true(value == expected);
          if (!program.had_failure()) break;
        }
        settle();
        if (live.load() != before) print_message("stage %d, call %d leaks\n", stage, (int)call);
        assert_int_equal(live.load(), before);
      }
      assert_true(call > 300);
    }
  }
}

// One of two ranks: both are told and stand as before, or both are ended, soon and without a leak.
void one_rank_without_memory_leaves_no_other_waiting(void**) {
  int ended = 0, went_on = 0;
  const auto run = [](int32_t stage, int64_t call, bool from_then_on, float* values) {
    bool had_failure = false;
    ranks::run_threads(2, [&](int32_t rank, const std::string& group) {
      Program program(stage, rank, 2, group.c_str(), rank == 0 ? call : -1, from_then_on);
      values[rank] = program.run();
      if (rank == 0) had_failure = program.had_failure();
    });
    return had_failure;
  };
  const int64_t stride = ranks::full_tier() ? 1 : 23;
  float first[2];
  assert_false(run(0, -1, false, first)); // what is made once a process
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (int64_t call = 0;; call += stride) {
      settle();
      const int64_t before = live.load();
      float values[2];
      const bool had_failure = run(stage, call, (call & 1) != 0, values);
      assert_int_equal(live.load(), before);
      const bool whole = values[0] == 0.75f && values[1] == 0.75f;
      if (!had_failure) {
        assert_true(whole);
        break;
      }
      if (!whole) assert_true(std::isnan(values[0]) || std::isnan(values[1]));
      ++(whole ? went_on : ended);
    }
  }
  print_message("%d times the run went on, %d times it ended\n", went_on, ended);
  assert_true(went_on > 20 && ended > 20);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(any_one_allocation_may_fail_and_the_run_goes_on),
      cmocka_unit_test(one_rank_without_memory_leaves_no_other_waiting),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Ranks that are threads of one process, with all that may happen on other threads at the same
// time. Run under ThreadSanitizer as well, which judges whether everything waits for what it needs.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "model_values.h"
#include "training.h"

namespace {

// Hands gradients over from a thread of its own, in the order they were asked for.
class ReadyThread {
 public:
  explicit ReadyThread(zero_runtime* runtime) : runtime_(runtime), thread_([this] { work(); }) {}
  ~ReadyThread() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(int32_t param) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      params_.push_back(param);
    }
    changed_.notify_all();
  }
  void wait_until_idle() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_ == params_.size(); });
    params_.clear();
    done_ = 0;
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return done_ < params_.size() || ending_; });
      if (done_ == params_.size()) return;
      const int32_t param = params_[done_];
      lock.unlock();
      OK(zero_grad_ready(runtime_, &param, 1, nullptr));
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  zero_runtime* const runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> params_;
  size_t done_ = 0;
  bool ending_ = false;
  std::thread thread_; // last: it uses all of the above
};

// Asks, all the time, whatever may be asked from any thread.
class Watcher {
 public:
  explicit Watcher(zero_runtime* runtime) : runtime_(runtime), thread_([this] { watch(); }) {}
  ~Watcher() {
    ending_.store(true);
    thread_.join();
  }

 private:
  void watch() {
    char text[4096];
    int64_t steps = 0;
    while (!ending_.load()) {
      uint64_t length = 0;
      OK(zero_runtime_text(runtime_, text, sizeof(text), &length));
      EXPECT(std::strstr(text, "rank ") != nullptr);
      EXPECT(zero_runtime_status(runtime_) == ZERO_OK);
      const int64_t now = zero_step_count(runtime_);
      EXPECT(now >= steps);
      steps = now;
      EXPECT(zero_loss_scale(runtime_) == 1);
      zero_memory_info memory;
      zero_memory_info_init(&memory, sizeof(memory));
      OK(zero_memory_usage(runtime_, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, &memory));
      zero_log_level level = 0;
      const zero_status read = zero_log_read(runtime_, &level, text, sizeof(text), &length);
      EXPECT(read == ZERO_OK || read == ZERO_ERR_NOT_FOUND);
      std::this_thread::yield();
    }
  }

  zero_runtime* const runtime_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

struct Rank {
  zero_config* config = nullptr;
  zero_comm* comm = nullptr;
  zero_runtime* runtime = nullptr;
  training::Values values;

  Rank(const training::RunSpec& spec, int32_t rank, const std::string& group) {
    const std::string text = training::config_text(spec);
    OK(zero_config_load_text(text.data(), text.size(), &config));
    OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm;
    OK(zero_init(config, &init, &runtime));
  }
  void shard(const training::ModelSpec& model, const training::RunSpec& spec) {
    zero_model* made = training::make_model(model, spec, &values);
    OK(zero_shard_params(runtime, made));
    zero_model_destroy(made);
  }
  ~Rank() {
    zero_runtime_destroy(runtime);
    zero_comm_destroy(comm);
    zero_config_destroy(config);
  }
};

constexpr int32_t kSteps = 3;
constexpr int32_t kUnits = 5;

std::vector<int32_t> unit_of(const training::ModelSpec& model, int32_t unit) {
  std::vector<int32_t> params;
  for (size_t p = model.size(); p-- > 0;) {
    if (model[p].unit == unit) params.push_back(static_cast<int32_t>(p));
  }
  return params;
}

// The same micro-batch as training.cc's, its gradients completed by a second thread.
void train_with_second_thread(Rank& own, const training::ModelSpec& model, int32_t rank) {
  ReadyThread second(own.runtime);
  std::vector<zero_buffer> loans(model.size());
  for (int32_t step = 0; step < kSteps; ++step) {
    OK(zero_micro_begin(own.runtime, -1));
    for (int32_t u = kUnits - 1; u >= 0; --u) {
      const std::vector<int32_t> unit = unit_of(model, u);
      OK(zero_params_acquire(own.runtime, unit.data(), unit.size(), nullptr, loans.data()));
      for (const int32_t param : unit) {
        zero_buffer buffer;
        int32_t add = 0;
        OK(zero_grad_buffer(own.runtime, param, nullptr, &buffer, &add));
        auto* values = static_cast<float*>(buffer.data);
        for (uint64_t i = 0; i < buffer.count; ++i) {
          values[i] = training::gradient(step, 0, rank, static_cast<size_t>(param), i);
        }
        second.add(param);
      }
      second.wait_until_idle(); // what is complete must be the same on all ranks at a point
      OK(zero_params_release(own.runtime, unit.data(), unit.size(), 0, nullptr));
    }
    OK(zero_micro_end(own.runtime, nullptr));
    OK(zero_step(own.runtime, nullptr, nullptr, nullptr));
  }
}

std::vector<float> values_of(Rank& own, const training::ModelSpec& model) {
  std::vector<float> all;
  for (size_t p = 0; p < model.size(); ++p) {
    std::vector<float> whole(model[p].elements());
    OK(zero_param_get(own.runtime, static_cast<int32_t>(p), ZERO_PART_VALUE, 0, whole.data(),
                      whole.size() * 4));
    all.insert(all.end(), whole.begin(), whole.end());
  }
  return all;
}

training::RunSpec spec_of(int32_t stage, int32_t size, int32_t overlap) {
  training::RunSpec spec;
  spec.stage = stage;
  spec.ranks = size;
  spec.overlap = overlap;
  spec.bucket = 3000;
  spec.steps = kSteps;
  return spec;
}

void threads_of_one_process_are_ranks(void**) {
  const training::ModelSpec model = training::gpt_model();
  std::vector<float> expected[4];
  int32_t turn = 0;
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (int32_t overlap = 0; overlap <= 1; ++overlap) {
      for (const training::Order order :
           {training::Order::kReverse, training::Order::kForward, training::Order::kRandom}) {
        const int32_t size = 2 + turn % 2;
        training::RunSpec spec = spec_of(stage, size, overlap);
        spec.order = order;
        spec.open_buckets = order == training::Order::kReverse ? "4" : "all";
        spec.prefetch = turn % 4 < 2;
        spec.submit = turn % 3 == 0;
        if (stage < 3 && turn % 5 == 0) spec.storage = ZERO_STORAGE_CALLER;
        if (turn % 4 == 3) spec.libzero = ", \"param_norms\": true, \"threads\": 2";
        const training::Result result = training::run_with_threads(model, spec);
        std::vector<float>& first = expected[size];
        if (first.empty()) first = result.params;
        assert_int_equal(result.params.size(), first.size());
        assert_memory_equal(result.params.data(), first.data(), first.size() * 4);
        ++turn;
      }
    }
  }
}

void gradients_may_be_complete_on_another_thread(void**) {
  const training::ModelSpec model = training::gpt_model();
  const training::RunSpec plain = spec_of(0, 2, 0);
  const training::Result expected = training::run_with_threads(model, plain);
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (int32_t overlap = 0; overlap <= 1; ++overlap) {
      const training::RunSpec spec = spec_of(stage, 2, overlap);
      ranks::run_threads(2, [&](int32_t rank, const std::string& group) {
        Rank own(spec, rank, group);
        own.shard(model, spec);
        train_with_second_thread(own, model, rank);
        const std::vector<float> values = values_of(own, model);
        EXPECT(values == expected.params);
        OK(zero_runtime_close(own.runtime));
      });
    }
  }
}

void a_watcher_reads_status_and_texts_all_along(void**) {
  const training::ModelSpec model = training::gpt_model();
  for (int32_t stage = 0; stage <= 3; ++stage) {
    const training::RunSpec spec = spec_of(stage, 2, 1);
    ranks::run_threads(2, [&](int32_t rank, const std::string& group) {
      Rank own(spec, rank, group);
      Watcher watcher(own.runtime); // zero_shard_params and close included
      own.shard(model, spec);
      train_with_second_thread(own, model, rank);
      OK(zero_grads_clear(own.runtime, nullptr));
      OK(zero_runtime_close(own.runtime));
    });
  }
}

// Rank 0's last reduction is in flight when another thread ends it all.
void an_abort_from_another_thread_unblocks_both_ranks(void**) {
  const training::ModelSpec model = training::gpt_model();
  for (int32_t overlap = 0; overlap <= 1; ++overlap) {
    const training::RunSpec spec = spec_of(2, 2, overlap);
    std::atomic<bool> told{false};
    ranks::run_threads(2, [&](int32_t rank, const std::string& group) {
      Rank own(spec, rank, group);
      own.shard(model, spec);
      if (rank == 0) {
        std::thread other([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          zero_comm_abort(own.comm);
        });
        EXPECT(zero_step(own.runtime, nullptr, nullptr, nullptr) == ZERO_ERR_COMM_ABORTED);
        EXPECT(zero_step(own.runtime, nullptr, nullptr, nullptr) == ZERO_ERR_FAILED);
        EXPECT(zero_runtime_status(own.runtime) == ZERO_ERR_COMM_ABORTED);
        other.join();
        told.store(true);
      } else {
        while (!told.load()) std::this_thread::yield();
        EXPECT(zero_step(own.runtime, nullptr, nullptr, nullptr) == ZERO_ERR_COMM_ABORTED);
      }
    });
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(threads_of_one_process_are_ranks),
      cmocka_unit_test(gradients_may_be_complete_on_another_thread),
      cmocka_unit_test(a_watcher_reads_status_and_texts_all_along),
      cmocka_unit_test(an_abort_from_another_thread_unblocks_both_ranks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// SPDX-License-Identifier: BSD-3-Clause
#include "fault_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

namespace faults {
namespace {

// Two steps need no more.
constexpr int32_t kSteps = 2;

[[noreturn]] void die(Entry& entry) {
  entry.died_ns.store(now_ns());
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// Numbers the calls, dies at the planned one, and remembers the first error.
class Caller {
 public:
  Caller(const KillPlan& plan, int32_t rank, Entry& entry, std::vector<std::string>* names)
      : plan_(plan), is_victim_(rank == plan.victim), entry_(entry), names_(names) {}

  // False: it failed, and nothing more is to be called.
  bool operator()(const char* name, const std::function<zero_status()>& function) {
    const int32_t number = entry_.call.load() + 1;
    if (names_ != nullptr) names_->emplace_back(name);
    const bool here = is_victim_ && number == plan_.call;
    if (here && plan_.moment == Moment::kBefore) die(entry_);
    if (here && plan_.moment == Moment::kInside) start_killer();
    entry_.begun_ns.store(now_ns());
    entry_.call.store(number);
    const zero_status status = function();
    if (status != ZERO_OK) {
      write_error(entry_, status, name);
      return false;
    }
    if (here && plan_.moment == Moment::kAfter) die(entry_);
    return true;
  }

  void leave_child() {
    if (!is_victim_ || !plan_.with_child) return;
    const pid_t child = fork();
    if (child == 0) {
      alarm(30); // should the test be gone
      for (;;) pause();
    }
    entry_.child.store(child);
  }

 private:
  void start_killer() {
    std::atomic<bool> started{false};
    std::thread([this, &started] {
      started.store(true);
      const int64_t end = now_ns() + plan_.delay_us * int64_t{1000};
      while (now_ns() < end) {
      }
      die(entry_);
    }).detach();
    while (!started.load()) std::this_thread::yield();
  }

  const KillPlan plan_;
  const bool is_victim_;
  Entry& entry_;
  std::vector<std::string>* names_;
};

struct Handles {
  zero_config* config = nullptr;
  zero_comm* comm = nullptr;
  zero_runtime* runtime = nullptr;
  zero_model* model = nullptr;
};

bool hand_over(Caller& call, zero_runtime* runtime, const training::ModelSpec& model, int32_t rank,
               int32_t step, int32_t param) {
  zero_buffer buffer{};
  int32_t add = 0;
  if (!call("grad_buffer",
            [&] { return zero_grad_buffer(runtime, param, nullptr, &buffer, &add); })) {
    return false;
  }
  auto* values = static_cast<float*>(buffer.data);
  for (uint64_t i = 0; i < model[static_cast<size_t>(param)].elements(); ++i) {
    values[i] = training::gradient(step, 0, rank, static_cast<size_t>(param), i);
  }
  return call("grad_ready", [&] { return zero_grad_ready(runtime, &param, 1, nullptr); });
}

bool one_step(Caller& call, zero_runtime* runtime, const training::ModelSpec& model, int32_t rank,
              int32_t step) {
  constexpr int32_t kUnits = 5;
  std::vector<std::vector<int32_t>> units(kUnits);
  for (size_t p = 0; p < model.size(); ++p) {
    units[static_cast<size_t>(model[p].unit)].push_back(static_cast<int32_t>(p));
  }
  std::vector<zero_buffer> buffers(model.size());
  if (!call("micro_begin", [&] { return zero_micro_begin(runtime, -1); })) return false;
  for (int32_t u = kUnits - 1; u >= 0; --u) {
    const auto& unit = units[static_cast<size_t>(u)];
    if (!call("params_acquire", [&] {
          return zero_params_acquire(runtime, unit.data(), unit.size(), nullptr, buffers.data());
        })) {
      return false;
    }
    if (u > 0 && !call("params_prefetch", [&] {
          const auto& next = units[static_cast<size_t>(u - 1)];
          return zero_params_prefetch(runtime, next.data(), next.size());
        })) {
      return false;
    }
    for (size_t i = unit.size(); i-- > 0;) {
      if (!hand_over(call, runtime, model, rank, step, unit[i])) return false;
    }
    if (!call("params_release",
              [&] { return zero_params_release(runtime, unit.data(), unit.size(), 0, nullptr); })) {
      return false;
    }
  }
  return call("micro_end", [&] { return zero_micro_end(runtime, nullptr); }) &&
         call("step", [&] { return zero_step(runtime, nullptr, nullptr, nullptr); });
}

bool all_calls(Caller& call, const Scene& scene, const training::ModelSpec& model, int32_t rank,
               const std::string& group, Handles& at) {
  const training::RunSpec& spec = scene.spec;
  if (!call("comm_create", [&] {
        return zero_comm_create_local(group.c_str(), rank, spec.ranks, scene.timeout_ns, &at.comm);
      })) {
    return false;
  }
  call.leave_child();
  zero_init_options options;
  zero_init_options_init(&options, sizeof(options));
  options.comm = at.comm;
  if (!call("init", [&] { return zero_init(at.config, &options, &at.runtime); })) return false;
  if (!call("shard_params", [&] { return zero_shard_params(at.runtime, at.model); })) return false;
  for (int32_t step = 0; step < kSteps; ++step) {
    if (!one_step(call, at.runtime, model, rank, step)) return false;
  }
  std::vector<float> whole(model[0].elements());
  double sum = 1;
  return call("param_get",
              [&] {
                return zero_param_get(at.runtime, 0, ZERO_PART_VALUE, 0, whole.data(),
                                      whole.size() * 4);
              }) &&
         call("param_get",
              [&] {
                return zero_param_get(at.runtime, 0, ZERO_PART_STATE, 1, whole.data(),
                                      whole.size() * 4);
              }) &&
         call("grads_clear", [&] { return zero_grads_clear(at.runtime, nullptr); }) &&
         (spec.stage == 3 ||
          call("params_broadcast", [&] { return zero_params_broadcast(at.runtime, 0); })) &&
         call("comm_all_reduce",
              [&] { return zero_comm_all_reduce(at.comm, &sum, 1, ZERO_REDUCE_SUM); }) &&
         call("comm_barrier", [&] { return zero_comm_barrier(at.comm); }) &&
         call("close", [&] { return zero_runtime_close(at.runtime); });
}

// What is left of a runtime after an error of the COMM family.
void check_failed(zero_runtime* runtime) {
  // The error may have come from a call on the communicator: this one is told, later ones are not.
  const zero_status first = zero_runtime_close(runtime);
  EXPECT(first == ZERO_ERR_FAILED || is_comm_family(first));
  EXPECT(is_comm_family(zero_runtime_status(runtime)));
  zero_buffer buffer{};
  int32_t add = 0;
  const int32_t param = 0;
  float value = 0;
  EXPECT(zero_step(runtime, nullptr, nullptr, nullptr) == ZERO_ERR_FAILED);
  EXPECT(zero_micro_begin(runtime, -1) == ZERO_ERR_FAILED);
  EXPECT(zero_micro_end(runtime, nullptr) == ZERO_ERR_FAILED);
  EXPECT(zero_grad_buffer(runtime, 0, nullptr, &buffer, &add) == ZERO_ERR_FAILED);
  EXPECT(zero_params_acquire(runtime, &param, 1, nullptr, &buffer) == ZERO_ERR_FAILED);
  EXPECT(zero_param_get(runtime, 0, ZERO_PART_VALUE, 0, &value, 4) == ZERO_ERR_FAILED);
  EXPECT(zero_runtime_close(runtime) == ZERO_ERR_FAILED);
  char text[4096];
  uint64_t length = 0;
  EXPECT(zero_runtime_text(runtime, text, sizeof(text), &length) == ZERO_OK);
  EXPECT(std::strstr(text, "failed: ") != nullptr);
}

} // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void write_error(Entry& entry, zero_status status, const char* call) {
  entry.error_ns = now_ns();
  zero_error_info info;
  zero_error_info_init(&info, sizeof(info));
  zero_last_error(&info);
  entry.status = status;
  entry.rank_named = info.rank;
  std::snprintf(entry.call_name, sizeof(entry.call_name), "%s", call);
  std::snprintf(entry.text, sizeof(entry.text), "%s", info.message);
}

void run_calls(const Scene& scene, int32_t rank, const std::string& group, Entry& entry,
               std::vector<std::string>* names) {
  const training::ModelSpec model = training::gpt_model();
  const std::string text = training::config_text(scene.spec);
  Handles at;
  OK(zero_config_load_text(text.data(), text.size(), &at.config));
  training::Values values;
  at.model = training::make_model(model, scene.spec, &values);
  entry.call.store(-1);
  Caller call(scene.kill, rank, entry, names);
  const bool done = all_calls(call, scene, model, rank, group, at);
  entry.finished.store(1);
  if (done && rank == scene.kill.victim) {
    for (;;) pause(); // the killer is on its way
  }
  if (!done && at.runtime != nullptr) check_failed(at.runtime);
  const int64_t start = now_ns();
  zero_runtime_destroy(at.runtime);
  zero_comm_destroy(at.comm);
  entry.destroy_ns = now_ns() - start;
  zero_model_destroy(at.model);
  zero_config_destroy(at.config);
}

} // namespace faults

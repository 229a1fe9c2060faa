// Ranks that train a small model and save it, and the state that a checkpoint must hold: a pure
// function of the number of steps, the number of ranks given.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ranks.h"

namespace faults {

constexpr int32_t kRanks = 2;

// Every byte that must come back, by name of the part.
using State = std::map<std::string, std::string>;

struct Outcome {
  zero_status status = ZERO_OK;
  int32_t native_code = 0;
  std::string text;
  bool operator==(const Outcome&) const = default;
};
// With this thread's last error; the rank at fault is not told to itself, so it is left out.
Outcome outcome(zero_status status);

struct SaveAs {
  bool replace = false;
  bool background = false;
  int32_t keep_last = 0;
  bool latest = false;
};

class SavingRank {
 public:
  SavingRank(int32_t rank, int32_t ranks, const std::string& group, int32_t stage = 2,
             int64_t timeout_ns = 30 * ::ranks::kSecond);
  ~SavingRank();
  SavingRank(const SavingRank&) = delete;
  SavingRank& operator=(const SavingRank&) = delete;

  void train_to(int64_t step);
  int64_t step() const { return step_; }
  State state(); // of the runtime, all ranks take part
  zero_status save(const std::string& path, const SaveAs& as = {});
  zero_status load(const std::string& path); // a checkpoint, or what open finds from there
  zero_runtime* runtime() const { return runtime_; }
  void close() { OK(zero_runtime_close(runtime_)); }

 private:
  void add(const char* name, const std::vector<int64_t>& shape, zero_dtype dtype,
           zero_param_role role);
  int32_t rank_;
  int64_t step_ = 0;
  zero_config* config_ = nullptr;
  zero_comm* comm_ = nullptr;
  zero_runtime* runtime_ = nullptr;
  zero_model* model_ = nullptr;
  std::vector<std::vector<char>> data_;
};

// The states after 0, 1, ... steps of a run that nothing disturbs, as its runtime has them.
std::vector<State> states_of_a_run(int64_t steps, int32_t ranks = kRanks);

// What open, verify and read find at path; step: of the state.  Anything but ZERO_OK: no state.
Outcome read_state(const std::string& path, State* state, int64_t* step);

// Ranks as threads of this process.
void at_thread_ranks(int32_t ranks, const std::function<void(int32_t, const std::string&)>& body);

} // namespace faults

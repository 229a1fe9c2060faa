// The window of micro-batches between two steps: which one is open, which counts as the last.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "base/error.h"

namespace zero::engine {

class MicroBatchWindow {
 public:
  explicit MicroBatchWindow(int64_t accumulation_steps) : accumulation_(accumulation_steps) {}

  // is_last: 1, 0, or -1: as gradient_accumulation_steps says.
  void begin(int32_t is_last) {
    if (is_last < -1 || is_last > 1) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "is_last is %d, expected 1, 0 or -1", is_last);
    }
    if (open_) {
      fail(ZERO_ERR_INVALID_STATE,
           "micro-batch %lld is still open: zero_micro_end must come before the next begin",
           static_cast<long long>(ended_.load() + 1));
    }
    refuse_after_last();
    open_ = true;
    last_ = is_last == -1 ? ended_ + 1 == accumulation_ : is_last == 1;
  }
  void begin_unless_open() {
    if (!open_) begin(-1);
  }
  void end() {
    open_ = false;
    last_ended_ = last_;
    ++ended_;
  }
  void clear() {
    open_ = last_ = last_ended_ = false;
    ended_ = 0;
  }

  bool open() const { return open_; }
  bool is_last() const { return last_; } // of the open one
  bool last_ended() const { return last_ended_; }
  int64_t ended() const { return ended_.load(); }

 private:
  void refuse_after_last() const {
    if (!last_ended_) return;
    fail(
        ZERO_ERR_INVALID_STATE,
        "micro-batch %lld counted as the step's last (gradient_accumulation_steps is %lld): "
        "expected zero_step before another one; zero_micro_begin(runtime, 0) says that more follow",
        static_cast<long long>(ended_.load()), static_cast<long long>(accumulation_));
  }

  int64_t accumulation_;
  std::atomic<int64_t> ended_{0}; // read by any thread
  bool open_ = false;
  bool last_ = false;
  bool last_ended_ = false;
};

} // namespace zero::engine

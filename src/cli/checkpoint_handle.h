// An opened checkpoint as the subcommands use it: owned, with texts, and progress on a terminal.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace zero::cli {

constexpr int kDone = 0;
constexpr int kDifferent = 1; // or damaged
constexpr int kFailed = 2;
constexpr int kUsage = 64;

// "zero checkpoint WORD: sentence" on stderr; returns kFailed.
int complain(const char* word);

struct CheckpointParam {
  std::string name;
  std::vector<int64_t> shape;
  zero_dtype dtype = 0;
  zero_param_role role = 0;
  int32_t group = 0;
  int32_t tied_to = -1;
  uint64_t elements = 0;
  int64_t steps = 0;
};

class CheckpointHandle {
 public:
  // ok() says whether it could be opened; the reason is the last error.
  explicit CheckpointHandle(const std::string& path);
  bool ok() const { return handle_ != nullptr; }
  zero_checkpoint* get() const { return handle_.get(); }
  zero_checkpoint_info info() const;
  CheckpointParam param(int64_t index) const;
  std::string text() const;
  // The lines of text() that start with this word.
  std::vector<std::string> lines(const std::string& word) const;

 private:
  struct Destroy {
    void operator()(zero_checkpoint* checkpoint) const { zero_checkpoint_destroy(checkpoint); }
  };
  std::unique_ptr<zero_checkpoint, Destroy> handle_;
};

// One line on stderr that is written again, where that is a terminal; nothing elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(const char* word);
  ~ProgressLine(); // clears it
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  // For zero_checkpoint_progress; lives as long as this.
  const zero_progress* callback() const { return &progress_; }
  void show(uint64_t done, uint64_t total);

 private:
  const char* word_;
  bool on_terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
  zero_progress progress_;
};

const char* role_text(zero_param_role role);
const char* dtype_text(zero_dtype dtype);
std::string shape_text(const std::vector<int64_t>& shape); // "[2, 3]"

} // namespace zero::cli

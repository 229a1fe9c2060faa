// Lines for the host program to pull; the oldest are dropped when nobody reads.  Nothing is
// printed, unless a person asks for it by ZERO_LOG in the environment. SPDX-License-Identifier:
// BSD-3-Clause
#pragma once

#include <zero.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>

namespace zero::engine {

class Log {
 public:
  Log();
  void write(zero_log_level level, std::string text);
  // False: nothing unread.  peek: leaves the line where it is.
  bool front(zero_log_level* level, std::string* text) const;
  void pop();

 private:
  static constexpr size_t kCapacity = 1024;
  mutable std::mutex mutex_;
  std::deque<std::pair<zero_log_level, std::string>> lines_;
  zero_log_level to_stderr_ = 0;
};

} // namespace zero::engine

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/log.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace zero::engine {

Log::Log() {
  const char* wanted = std::getenv("ZERO_LOG");
  if (wanted == nullptr) return;
  if (std::strcmp(wanted, "warn") == 0) to_stderr_ = ZERO_LOG_WARN;
  if (std::strcmp(wanted, "info") == 0) to_stderr_ = ZERO_LOG_INFO;
  if (std::strcmp(wanted, "debug") == 0) to_stderr_ = ZERO_LOG_DEBUG;
}

void Log::write(zero_log_level level, std::string text) {
  if (level <= to_stderr_) {
    const std::string line = "libzero: " + text + "\n";
    // A person asked for it; a closed stderr is his affair.
    [[maybe_unused]] const ssize_t written = ::write(2, line.data(), line.size());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lines_.size() == kCapacity) lines_.pop_front();
  lines_.emplace_back(level, std::move(text));
}

bool Log::front(zero_log_level* level, std::string* text) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lines_.empty()) return false;
  *level = lines_.front().first;
  *text = lines_.front().second;
  return true;
}

void Log::pop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!lines_.empty()) lines_.pop_front();
}

} // namespace zero::engine

// The one exception type of libzero: a status and a sentence.  The wall in src/api turns it
// into the caller's zero_error_info; nothing else may escape from a C function.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdarg>
#include <exception>
#include <string>

namespace zero {

class Error : public std::exception {
 public:
  Error(zero_status status, std::string message, int32_t rank = -1, int32_t native_code = 0,
        std::string origin = "libzero")
      : status_(status),
        rank_(rank),
        native_code_(native_code),
        origin_(std::move(origin)),
        message_(std::move(message)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  zero_status status() const { return status_; }
  int32_t rank() const { return rank_; } // the rank at fault, -1 where unknown
  int32_t native_code() const { return native_code_; }
  const std::string& origin() const { return origin_; }
  const std::string& message() const { return message_; }

  // The same error with a sentence of context put behind it.
  Error with_context(const std::string& context) const {
    return Error(status_, message_ + "; " + context, rank_, native_code_, origin_);
  }

 private:
  zero_status status_;
  int32_t rank_;
  int32_t native_code_;
  std::string origin_;
  std::string message_;
};

// printf-style text.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

// Throws Error with a printf-style sentence: names the thing and its value, says what was expected.
[[noreturn]] void fail(zero_status status, const char* pattern, ...)
    __attribute__((format(printf, 2, 3)));

// Throws an IO error (NO_SPACE for a full disk or quota) with errno's text: what was tried on which
// path.
[[noreturn]] void fail_os(int errno_value, const char* pattern, ...)
    __attribute__((format(printf, 2, 3)));

// COMM and DEVICE family: after such a status a runtime is failed.
inline bool is_fatal(zero_status status) {
  return status >= 60 && status < 100;
}

} // namespace zero

// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace zero {
namespace {

std::string format_list(const char* pattern, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, again);
  va_end(again);
  if (length <= 0) return {};
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, arguments);
  return text;
}

} // namespace

std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  std::string text = format_list(pattern, arguments);
  va_end(arguments);
  return text;
}

void fail(zero_status status, const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  std::string text = format_list(pattern, arguments);
  va_end(arguments);
  throw Error(status, std::move(text));
}

void fail_os(int errno_value, const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  std::string text = format_list(pattern, arguments);
  va_end(arguments);
  text += ": " + std::generic_category().message(errno_value);
  const bool no_space = errno_value == ENOSPC || errno_value == EDQUOT;
  throw Error(no_space ? ZERO_ERR_NO_SPACE : ZERO_ERR_IO, std::move(text), -1, errno_value, "os");
}

} // namespace zero

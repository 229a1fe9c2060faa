// Repeats a call of the FileSystem that a signal interrupted.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>

namespace zero {

template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result == -EINTR) result = call();
  return result;
}

} // namespace zero

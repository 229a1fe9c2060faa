// Sizes are 64-bit and checked: a wrap is an error, never a small number.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "base/error.h"

namespace zero {

// `what` names the size in the error's sentence.
inline uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "%s: %llu + %llu does not fit in 64 bits", what,
         static_cast<unsigned long long>(a), static_cast<unsigned long long>(b));
  }
  return sum;
}

inline uint64_t checked_multiply(uint64_t a, uint64_t b, const char* what) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "%s: %llu x %llu does not fit in 64 bits", what,
         static_cast<unsigned long long>(a), static_cast<unsigned long long>(b));
  }
  return product;
}

constexpr uint64_t divide_up(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// The next multiple of `alignment` (not only powers of two).
inline uint64_t round_up(uint64_t value, uint64_t alignment) {
  const uint64_t rest = value % alignment;
  return rest == 0 ? value : checked_add(value, alignment - rest, "rounded size");
}

} // namespace zero

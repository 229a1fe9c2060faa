// Chunk sums gathered by their exponent: one integer addition each.  Emptied into the limbs of an
// exact sum after at most kCapacity of them, which is when 64 bits could overflow.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace zero::kernels {

// Adds units * 2^(exponent - 1075), exponent being the biased one of a double.
void exact_sum_add_units(ExactSum* sum, uint64_t units, int exponent);

class ExactBins {
 public:
  static constexpr uint64_t kCapacity = 2048; // mantissas are below 2^53
  // Below as many chunks, emptying the bins costs more than adding each chunk to the limbs.
  static constexpr uint64_t kWorthwhile = 64;

  void clear() { // before the first add; bins that no sum can fall into stay untouched
    for (int e = kLowest; e < kHighest; e++) bin_[e] = 0;
    bin_[0] = 0;
    bin_[kNotFinite] = 0;
  }

  // mantissa with its implied bit, whatever it is where exponent is 0.
  void add(uint64_t exponent, uint64_t mantissa) { bin_[exponent] += mantissa; }
  // Whether a sum that was not finite has come since the last call of empty.
  bool not_finite() const { return bin_[kNotFinite] != 0; }
  void empty(ExactSum* sum);

 private:
  // Sums of squares of fp32 lie in [2^-298, 2^262): biased exponents 725 to 1284, and 0.
  static constexpr int kLowest = 720;
  static constexpr int kHighest = 1288; // exclusive
  static constexpr int kNotFinite = 2047;
  static constexpr int kStep = 8;
  static_assert((kHighest - kLowest) % kStep == 0);

  alignas(64) uint64_t bin_[kNotFinite + 1];
};

} // namespace zero::kernels

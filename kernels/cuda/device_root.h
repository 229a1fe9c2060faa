// The nearest double of the square root of an exact sum, by integers alone: kernels/exact_sum.cc,
// for one thread of the device.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/cuda/device_norm.h"

namespace zero::cuda {

__extension__ typedef unsigned __int128 Wide;

// floor(sqrt(value)), digit by digit.
__device__ inline uint64_t integer_root(Wide value) {
  Wide root = 0;
  Wide rest = value;
  for (Wide bit = static_cast<Wide>(1) << 126; bit != 0; bit >>= 2) {
    if (rest >= root + bit) {
      rest -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  return static_cast<uint64_t>(root);
}

// Bit `index` of normalised limbs; the last may hold more than 32.
__device__ inline uint32_t bit_at(const ExactSum& sum, int index) {
  if (index < 0 || index >= 32 * (kLimbs + 1)) return 0;
  const int limb = index / 32 < kLimbs ? index / 32 : kLimbs - 1;
  return static_cast<uint32_t>(static_cast<uint64_t>(sum.limb[limb]) >> (index - limb * 32)) & 1u;
}

__device__ inline double exact_root(const ExactSum* sum) {
  ExactSum n = *sum;
  normalise(n.limb);
  int highest = 32 * (kLimbs + 1) - 1;
  while (highest >= 0 && bit_at(n, highest) == 0) highest--;
  if (highest < 0) return 0;
  // The 128 highest bits, an even number of bits cut off below; what is lost is one sticky bit.
  int cut = highest - 127;
  if (cut % 2 != 0) cut++;
  Wide top = 0;
  for (int index = highest; index >= cut; index--) top = (top << 1) | bit_at(n, index);
  bool sticky = false;
  for (int index = 0; index < cut; index++) sticky = sticky || bit_at(n, index) != 0;

  const uint64_t root = integer_root(top);
  sticky = sticky || static_cast<Wide>(root) * root != top;
  int bits = 64; // of the root: 63 or 64
  while ((root >> (bits - 1)) == 0) bits--;
  const int surplus = bits - 53;
  const uint64_t half = 1ull << (surplus - 1);
  const uint64_t lost = root & (2 * half - 1);
  uint64_t kept = root >> surplus;
  if (lost > half || (lost == half && (sticky || (kept & 1) != 0))) kept++;
  const int64_t exponent = surplus + cut / 2 - 160; // far from either end of a double's
  const double unit = __longlong_as_double((1023 + exponent) << 52);
  return __dmul_rn(__ll2double_rn(static_cast<int64_t>(kept)), unit);
}

} // namespace zero::cuda

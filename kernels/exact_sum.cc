// The exact sum of chunk sums: integer limbs, so that the order of additions, the number of threads
// and the number of ranks never change it; and the one correctly rounded square root at its end.
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstring>

#include "kernels/host/exact_bins.h"
#include "kernels/kernels.h"

namespace zero::kernels {

namespace {

constexpr int kLimbBits = 32;
constexpr int kLowestExponent = -320; // limb 0 counts units of 2^-320
// exact_sum_add normalises once a limb has grown this far: long before 2^63, and rarely.
constexpr int64_t kGrown = INT64_C(1) << 61;

__extension__ typedef unsigned __int128 Wide;

// floor(sqrt(value)), digit by digit: no floating point, so nothing to prove about its rounding.
uint64_t integer_root(Wide value) {
  Wide root = 0;
  Wide rest = value;
  for (Wide bit = Wide{1} << 126; bit != 0; bit >>= 2) {
    if (rest >= root + bit) {
      rest -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  return static_cast<uint64_t>(root);
}

// Bit `index` of normalised limbs; bits below and above them are 0.
unsigned bit_at(const ExactSum& sum, int index) {
  if (index < 0 || index >= kLimbBits * (kLimbs + 1)) return 0;
  // The last limb may hold more than 32 bits.
  const int limb = index / kLimbBits < kLimbs ? index / kLimbBits : kLimbs - 1;
  return static_cast<unsigned>(static_cast<uint64_t>(sum.limb[limb]) >>
                               (index - limb * kLimbBits)) &
         1u;
}

} // namespace

void exact_sum_clear(ExactSum* sum) {
  std::memset(sum->limb, 0, sizeof(sum->limb));
}

void exact_sum_normalise(ExactSum* sum) {
  int64_t carry = 0;
  for (int k = 0; k < kLimbs - 1; k++) {
    // carry is below 2^32 and limbs stay below 2^62 (kGrown): no overflow.  >> rounds down.
    const int64_t total = sum->limb[k] + carry;
    carry = total >> kLimbBits;
    sum->limb[k] = total - carry * (INT64_C(1) << kLimbBits);
  }
  sum->limb[kLimbs - 1] += carry;
}

void exact_sum_add(ExactSum* sum, double chunk_sum) {
  uint64_t bits;
  std::memcpy(&bits, &chunk_sum, sizeof(bits));
  const int exponent = static_cast<int>(bits >> 52);
  if (exponent == 0) return; // 0: a sum of squares of fp32 is never a denormal double
  const uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | (UINT64_C(1) << 52);
  exact_sum_add_units(sum, mantissa, exponent);
}

void exact_sum_add_units(ExactSum* sum, uint64_t units, int exponent) {
  int shift = exponent - 1075 - kLowestExponent;
  if (shift < 0) {
    units >>= -shift; // sums of squares have no bits below 2^-298, let alone 2^-320
    shift = 0;
  }
  int64_t* limb = sum->limb + shift / kLimbBits;
  const Wide shifted = static_cast<Wide>(units) << (shift % kLimbBits);
  limb[0] += static_cast<int64_t>(static_cast<uint64_t>(shifted) & UINT32_MAX);
  limb[1] += static_cast<int64_t>(static_cast<uint64_t>(shifted >> kLimbBits) & UINT32_MAX);
  limb[2] += static_cast<int64_t>(static_cast<uint64_t>(shifted >> (2 * kLimbBits)));
  if ((limb[0] | limb[1] | limb[2]) >= kGrown) exact_sum_normalise(sum);
}

void ExactBins::empty(ExactSum* sum) {
  for (int e = kLowest; e < kHighest; e += kStep) {
    uint64_t any = 0;
    for (int k = 0; k < kStep; k++) any |= bin_[e + k];
    if (any == 0) continue;
    for (int k = 0; k < kStep; k++) {
      if (bin_[e + k] != 0) exact_sum_add_units(sum, bin_[e + k], e + k);
      bin_[e + k] = 0;
    }
  }
  bin_[0] = 0;
  bin_[kNotFinite] = 0;
}

void exact_sum_merge(ExactSum* sum, const ExactSum& other) {
  ExactSum term = other;
  exact_sum_normalise(&term);
  exact_sum_normalise(sum);
  for (int k = 0; k < kLimbs; k++) sum->limb[k] += term.limb[k];
  exact_sum_normalise(sum);
}

// The sum is an integer N of units 2^-320.  Its 128 highest bits (an even number of bits cut off
// below) have an integer root of 64 bits, which is the root of N cut off as well; whatever was lost
// is one sticky bit, and 64 bits are rounded to 53, to nearest even.
double exact_sum_root(const ExactSum& sum) {
  ExactSum n = sum;
  exact_sum_normalise(&n);
  int highest = kLimbBits * (kLimbs + 1) - 1;
  while (highest >= 0 && bit_at(n, highest) == 0) highest--;
  if (highest < 0) return 0;
  int cut = highest - 127;
  if (cut % 2 != 0) cut++;
  Wide top = 0;
  for (int index = highest; index >= cut; index--) top = (top << 1) | bit_at(n, index);
  bool sticky = false;
  for (int index = 0; index < cut; index++) sticky = sticky || bit_at(n, index) != 0;

  const uint64_t root = integer_root(top);
  sticky = sticky || static_cast<Wide>(root) * root != top;
  // root has 63 or 64 bits.
  const int surplus = 64 - __builtin_clzll(root) - 53;
  const uint64_t half = UINT64_C(1) << (surplus - 1);
  const uint64_t lost = root & (2 * half - 1);
  uint64_t kept = root >> surplus;
  if (lost > half || (lost == half && (sticky || (kept & 1) != 0))) kept++;
  return std::ldexp(static_cast<double>(kept), surplus + cut / 2 + kLowestExponent / 2);
}

} // namespace zero::kernels

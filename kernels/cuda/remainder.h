// A master kept as its bf16 parameter and a 16-bit remainder, on the device; the rules are those of
// kernels/host/blocked_update.h.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/cuda/device_numbers.h"

namespace zero::cuda {

constexpr uint32_t kTie = 0x8000;

// Whether bits lie half a place above an even parameter, which may be zero.
__device__ __forceinline__ bool is_upper_end(uint32_t bits) {
  return (bits & 0x1ffffu) == kTie;
}

__device__ __forceinline__ float joined(uint32_t model, uint32_t remainder, bool tie) {
  const uint32_t magnitude = model & 0x7fffu;
  // Of zero only the upper end exists: the lower would have the other sign.  A NaN is not rounded.
  const uint32_t lowest = kTie + (magnitude == 0 ? 1u : 0u);
  const bool rounded_up = remainder >= lowest && magnitude <= 0x7f80u;
  const uint32_t bits = ((model << 16) | remainder) - (rounded_up ? 0x10000u : 0u);
  return __uint_as_float(tie ? (model << 16) | kTie : bits);
}

__device__ __forceinline__ uint32_t remainder_of(float master, bool nearer) {
  const uint32_t bits = __float_as_uint(master);
  // Without a bit for ties the upper end is kept one unit nearer; that of zero is its own.
  const bool moved = nearer && is_upper_end(bits) && (bits << 1 >> 17) != 0;
  return (bits - (moved ? 1u : 0u)) & 0xffffu;
}

// Bits of the group that starts at i: eight of a word of ties.
__device__ __forceinline__ uint32_t ties_of(const float (&p)[kGroup], uint64_t i, uint64_t count) {
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < kGroup; k++) {
    const bool upper = i + k < count && is_upper_end(__float_as_uint(p[k]));
    bits |= upper ? 1u << k : 0u;
  }
  return bits;
}

__device__ __forceinline__ void join_group(const Group& model, const Group& remainder,
                                           uint32_t ties, float (&p)[kGroup]) {
  const uint32_t high[4] = {model.low.x, model.low.y, model.low.z, model.low.w};
  const uint32_t low[4] = {remainder.low.x, remainder.low.y, remainder.low.z, remainder.low.w};
#pragma unroll
  for (int k = 0; k < kGroup; k++) {
    const uint32_t shift = k % 2 * 16;
    p[k] = joined(high[k / 2] >> shift & 0xffffu, low[k / 2] >> shift & 0xffffu,
                  (ties >> k & 1u) != 0);
  }
}
__device__ __forceinline__ void join_part(const uint16_t* model, const uint16_t* remainder,
                                          uint32_t ties, uint64_t i, uint64_t count,
                                          float (&p)[kGroup]) {
#pragma unroll
  for (int k = 0; k < kGroup; k++) {
    p[k] = i + k < count ? joined(model[i + k], remainder[i + k], (ties >> k & 1u) != 0) : 0.0f;
  }
}

__device__ __forceinline__ void keep_group(const float (&p)[kGroup], bool nearer,
                                           uint16_t* remainder, uint64_t i) {
  uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    words[k] = remainder_of(p[2 * k], nearer) | remainder_of(p[2 * k + 1], nearer) << 16;
  }
  *reinterpret_cast<uint4*>(remainder + i) = make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void keep_part(const float (&p)[kGroup], bool nearer,
                                          uint16_t* remainder, uint64_t i, uint64_t count) {
#pragma unroll
  for (int k = 0; k < kGroup; k++) {
    if (i + k < count) remainder[i + k] = static_cast<uint16_t>(remainder_of(p[k], nearer));
  }
}

} // namespace zero::cuda

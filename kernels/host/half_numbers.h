// fp16 and bf16 to fp32 and back, one number at a time, by integer arithmetic: round to nearest
// even, denormals kept, overflow to infinity, NaN stays a (quiet) NaN of the same sign.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <cstring>

namespace zero::kernels {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float float_from_bf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  return float_of(bits);
}

inline uint16_t bf16_from_float(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  // Half a unit of the last kept place, less one where that place is even: ties go to even.
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float float_from_fp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 31) {
    const uint32_t quiet = fraction != 0 ? 0x400000u : 0u;
    return float_of(sign | 0x7f800000u | (fraction << 13) | quiet);
  }
  if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
  // A denormal is fraction * 2^-24, exact in fp32.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return float_of(sign | bits_of(magnitude));
}

inline uint16_t fp16_from_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u); // 65520 and above
  uint32_t kept; // in units of the last place of the result
  uint32_t lost, half;
  if (magnitude >= 0x38800000u) { // 2^-14: a normal number
    kept = (magnitude >> 13) - (112u << 10);
    lost = magnitude & 0x1fffu;
    half = 0x1000u;
  } else {
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return static_cast<uint16_t>(sign); // below 2^-25, half of the smallest
    const uint32_t shift = 126 - exponent; // 14 to 24
    const uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    kept = fraction >> shift;
    lost = fraction & ((1u << shift) - 1);
    half = 1u << (shift - 1);
  }
  if (lost > half || (lost == half && (kept & 1u) != 0)) kept++; // may carry into the exponent
  return static_cast<uint16_t>(sign | kept);
}

// Element `index` of an array of any of the three float dtypes.
inline float load_float(const void* values, zero_dtype dtype, uint64_t index) {
  switch (dtype) {
    case ZERO_DTYPE_FP16:
      return float_from_fp16(static_cast<const uint16_t*>(values)[index]);
    case ZERO_DTYPE_BF16:
      return float_from_bf16(static_cast<const uint16_t*>(values)[index]);
    default:
      return static_cast<const float*>(values)[index];
  }
}

inline void store_float(float value, void* values, zero_dtype dtype, uint64_t index) {
  switch (dtype) {
    case ZERO_DTYPE_FP16:
      static_cast<uint16_t*>(values)[index] = fp16_from_float(value);
      return;
    case ZERO_DTYPE_BF16:
      static_cast<uint16_t*>(values)[index] = bf16_from_float(value);
      return;
    default:
      static_cast<float*>(values)[index] = value;
  }
}

} // namespace zero::kernels

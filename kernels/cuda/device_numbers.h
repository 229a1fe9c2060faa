// fp32, fp16 and bf16 on the device, one number or a group of eight at a time, 16 bytes an access.
// The conversions are those of kernels/host/half_numbers.h, to the bits of a NaN, by integers: the
// machine's own instructions give every NaN one payload.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_kernels.h"

namespace zero::cuda {

constexpr int32_t kFp32 = ZERO_DTYPE_FP32, kFp16 = ZERO_DTYPE_FP16, kBf16 = ZERO_DTYPE_BF16;
constexpr int kGroup = 8; // elements of a thread: two or one access of 16 bytes

// Functions take the dtype as an argument; where it is a constant of the instance, the choice is
// made by the compiler.

__device__ __forceinline__ float from_fp16(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  // A denormal is fraction * 2^-24, exact in fp32.
  const uint32_t denormal = __float_as_uint(__fmul_rn(__uint2float_rn(fraction), 0x1p-24f));
  const uint32_t quiet = fraction != 0 ? 0x400000u : 0u;
  const uint32_t special = 0x7f800000u | (fraction << 13) | quiet;
  const uint32_t normal = ((exponent + 112) << 23) | (fraction << 13);
  const uint32_t magnitude = exponent == 31 ? special : exponent == 0 ? denormal : normal;
  return __uint_as_float(sign | magnitude);
}

__device__ __forceinline__ uint32_t to_fp16(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: the exponent moved, half a unit less one or none added.  May carry into the exponent.
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  // Denormal: 0.5f has a unit in the last place of 2^-24, so the sum rounds as it should.
  const float shifted = __fadd_rn(__uint_as_float(magnitude), 0.5f);
  const uint32_t denormal = __float_as_uint(shifted) - 0x3f000000u;
  uint32_t result = magnitude >= 0x38800000u ? normal : denormal;
  if (magnitude >= 0x477ff000u) result = 0x7c00u; // 65520 and above
  if (magnitude > 0x7f800000u) result = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  return sign | result;
}

__device__ __forceinline__ float from_bf16(uint32_t half) {
  return __uint_as_float(half << 16);
}

__device__ __forceinline__ uint32_t to_bf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : nearest;
}

__device__ __forceinline__ float widened(uint32_t half, int32_t dtype) {
  return dtype == ZERO_DTYPE_BF16 ? from_bf16(half) : from_fp16(half);
}
__device__ __forceinline__ uint32_t narrowed(float value, int32_t dtype) {
  return dtype == ZERO_DTYPE_BF16 ? to_bf16(value) : to_fp16(value);
}
// As it will be read again once it has been stored.
__device__ __forceinline__ float rounded_to(float value, int32_t dtype) {
  return dtype == ZERO_DTYPE_FP32 ? value : widened(narrowed(value, dtype), dtype);
}

__device__ __forceinline__ float load_one(const void* from, int32_t dtype, uint64_t i) {
  if (dtype == ZERO_DTYPE_FP32) return static_cast<const float*>(from)[i];
  return widened(static_cast<const uint16_t*>(from)[i], dtype);
}
__device__ __forceinline__ void store_one(float value, void* to, int32_t dtype, uint64_t i) {
  if (dtype == ZERO_DTYPE_FP32) {
    static_cast<float*>(to)[i] = value;
  } else {
    static_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(narrowed(value, dtype));
  }
}

// Eight elements as they lie in memory: 16-bit ones fill the first half.  Loading is apart from
// widening, so that the loads of all streams are on their way before the first is waited for.
struct Group {
  uint4 low, high;
};

__device__ __forceinline__ void load_group(const void* from, int32_t dtype, uint64_t i,
                                           Group* group) {
  if (dtype == ZERO_DTYPE_FP32) {
    const uint4* const p = reinterpret_cast<const uint4*>(static_cast<const float*>(from) + i);
    group->low = p[0];
    group->high = p[1];
  } else {
    group->low = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(from) + i);
  }
}

__device__ __forceinline__ void unpack(const Group& group, int32_t dtype, float (&values)[kGroup]) {
  if (dtype == ZERO_DTYPE_FP32) {
    values[0] = __uint_as_float(group.low.x);
    values[1] = __uint_as_float(group.low.y);
    values[2] = __uint_as_float(group.low.z);
    values[3] = __uint_as_float(group.low.w);
    values[4] = __uint_as_float(group.high.x);
    values[5] = __uint_as_float(group.high.y);
    values[6] = __uint_as_float(group.high.z);
    values[7] = __uint_as_float(group.high.w);
    return;
  }
  const uint32_t words[4] = {group.low.x, group.low.y, group.low.z, group.low.w};
#pragma unroll
  for (int k = 0; k < kGroup; k++) {
    const uint32_t word = words[k / 2];
    values[k] = widened(k % 2 == 0 ? word & 0xffffu : word >> 16, dtype);
  }
}

__device__ __forceinline__ void store_group(const float (&values)[kGroup], void* to, int32_t dtype,
                                            uint64_t i) {
  if (dtype == ZERO_DTYPE_FP32) {
    uint4* const p = reinterpret_cast<uint4*>(static_cast<float*>(to) + i);
    p[0] = make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]),
                      __float_as_uint(values[2]), __float_as_uint(values[3]));
    p[1] = make_uint4(__float_as_uint(values[4]), __float_as_uint(values[5]),
                      __float_as_uint(values[6]), __float_as_uint(values[7]));
    return;
  }
  uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    words[k] = narrowed(values[2 * k], dtype) | (narrowed(values[2 * k + 1], dtype) << 16);
  }
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(to) + i) =
      make_uint4(words[0], words[1], words[2], words[3]);
}

// The same of fewer than eight elements, or of memory that is not aligned; what is missing is 0.
__device__ __forceinline__ void load_part(const void* from, int32_t dtype, uint64_t i,
                                          uint64_t count, float (&values)[kGroup]) {
#pragma unroll
  for (int k = 0; k < kGroup; k++) values[k] = i + k < count ? load_one(from, dtype, i + k) : 0.0f;
}
__device__ __forceinline__ void store_part(const float (&values)[kGroup], void* to, int32_t dtype,
                                           uint64_t i, uint64_t count) {
#pragma unroll
  for (int k = 0; k < kGroup; k++) {
    if (i + k < count) store_one(values[k], to, dtype, i + k);
  }
}

__device__ __forceinline__ bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// p + elements, in bytes of the dtype.
__device__ __forceinline__ const void* at(const void* p, int32_t dtype, uint64_t elements) {
  return static_cast<const char*>(p) + elements * (dtype == ZERO_DTYPE_FP32 ? 4 : 2);
}
__device__ __forceinline__ void* at(void* p, int32_t dtype, uint64_t elements) {
  return static_cast<char*>(p) + elements * (dtype == ZERO_DTYPE_FP32 ? 4 : 2);
}

} // namespace zero::cuda

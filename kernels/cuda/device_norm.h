// Chunk sums of squares and the exact sum on the device (architecture section 3).  Eight elements a
// thread make a chunk four neighbours of a warp; sums go into integers, so that the order in which
// threads and blocks come does not matter.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/cuda/device_numbers.h"
#include "kernels/cuda/launch.h"

namespace zero::cuda {

using kernels::ExactSum;
using kernels::kLimbs;
using kernels::kNone;

constexpr uint32_t kLanes = kernels::kChunk / kGroup; // of a chunk
constexpr int kNotFiniteExponent = 0x7ff;
// The biased exponent of a double whose last bit weighs 2^-320, limb 0's unit.
constexpr int kUnitExponent = 1075 - 320;

// Both lanes of a pair that lie `distance` apart take half of the other's work: of 2n values each
// keeps n, the upper lane the upper half, and receives the other's n of the same numbers.
template <typename T, int n>
__device__ __forceinline__ void trade(const T* mine, bool upper, int distance, T* kept, T* other) {
#pragma unroll
  for (int k = 0; k < n; k++) {
    kept[k] = upper ? mine[n + k] : mine[k];
    other[k] = __shfl_xor_sync(0xffffffffu, upper ? mine[k] : mine[n + k], distance);
  }
}

// The chunk's sum, in all four lanes.  All lanes of a warp call it together.
__device__ __forceinline__ double chunk_sum(const float (&values)[kGroup]) {
  const uint32_t lane = threadIdx.x % 4;
  const bool late = lane >= 2, odd = lane % 2 != 0; // elements 16 to 31; the second half of 16
  float kept[4], other[4];
  trade<float, 4>(values, late, 2, kept, other);
  double squares[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const double low = late ? other[k] : kept[k], high = late ? kept[k] : other[k];
    squares[k] = __fma_rn(high, high, __dmul_rn(low, low));
  }
  double pair[2], pair_other[2]; // stride 8: the lanes next to each other
  trade<double, 2>(squares, odd, 1, pair, pair_other);
  pair[0] = __dadd_rn(pair[0], pair_other[0]);
  pair[1] = __dadd_rn(pair[1], pair_other[1]);
  double sum, sum_other; // stride 4
  trade<double, 1>(pair, late, 2, &sum, &sum_other);
  sum = __dadd_rn(sum, sum_other);
  sum = __dadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1)); // stride 2
  return __dadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2)); // stride 1
}

__device__ __forceinline__ void add_atomically(int64_t* limb, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(limb), static_cast<unsigned long long>(value));
}

// A number of 128 bits, whose last is worth 2^(exponent - 1075), into limbs.
__device__ __forceinline__ void add_wide(int64_t* limbs, uint64_t low, uint64_t high,
                                         int exponent) {
  const int shift = exponent - kUnitExponent; // >= 0
  const int first = shift / 32, rest = shift % 32;
  const uint64_t cut[5] = {
      (low << rest) & UINT32_MAX,
      (low >> (32 - rest)) & UINT32_MAX,
      (((low >> 32) >> (32 - rest)) | (high << rest)) & UINT32_MAX,
      (high >> (32 - rest)) & UINT32_MAX,
      (high >> 32) >> (32 - rest),
  };
  for (int k = 0; k < 5; k++) {
    if (cut[k] != 0) add_atomically(limbs + first + k, cut[k]);
  }
}

// One thread's chunk sums: those whose exponents lie in a window of 64 above its first are added as
// integers of 128 bits, the rare others go to the block's limbs at once.
class ThreadSum {
 public:
  __device__ __forceinline__ void add(double sum, uint64_t chunk, int64_t* limbs) {
    const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(sum));
    int exponent = static_cast<int>(bits >> 52) & 0x7ff;
    if (exponent == 0) return; // 0: a sum of squares of fp32 is never a denormal double
    if (exponent == kNotFiniteExponent) {
      if (chunk < first_bad_) first_bad_ = chunk;
      return;
    }
    uint64_t mantissa = (bits & ((1ull << 52) - 1)) | (1ull << 52);
    if (exponent < kUnitExponent) { // no sum has bits below limb 0's unit
      mantissa >>= kUnitExponent - exponent;
      exponent = kUnitExponent;
    }
    if (base_ < 0) base_ = exponent > kUnitExponent + kBelow ? exponent - kBelow : kUnitExponent;
    const int shift = exponent - base_;
    if (shift < 0 || shift > 63) return add_wide(limbs, mantissa, 0, exponent);
    const uint64_t part = mantissa << shift;
    low_ += part;
    high_ += (shift == 0 ? 0 : mantissa >> (64 - shift)) + (low_ < part ? 1 : 0);
    if (++count_ == kMost) flush(limbs);
  }
  __device__ __forceinline__ void flush(int64_t* limbs) {
    if (base_ >= 0) add_wide(limbs, low_, high_, base_);
    low_ = high_ = 0;
    count_ = 0;
  }
  __device__ __forceinline__ uint64_t first_bad() const { return first_bad_; }

 private:
  static constexpr int kBelow = 24; // the first sum is somewhere in the middle of what comes
  static constexpr uint32_t kMost = 1024; // of at most 116 bits each
  uint64_t low_ = 0, high_ = 0, first_bad_ = kNone;
  uint32_t count_ = 0;
  int base_ = -1;
};

// A block's share: cleared by begin, added to the sum in device memory by end.
struct BlockSum {
  int64_t limb[kLimbs];
  unsigned long long first_bad;
};

__device__ __forceinline__ void begin_block_sum(BlockSum* shared) {
  if (threadIdx.x < kLimbs) shared->limb[threadIdx.x] = 0;
  if (threadIdx.x == 0) shared->first_bad = kNone;
  __syncthreads();
}

// Carries brought up, so that each limb but the last is in [0, 2^32).  By one thread.
__device__ __forceinline__ void normalise(int64_t* limb) {
  int64_t carry = 0;
  for (int k = 0; k < kLimbs - 1; k++) {
    const int64_t total = limb[k] + carry;
    carry = total >> 32;
    limb[k] = total - carry * (1ll << 32);
  }
  limb[kLimbs - 1] += carry;
}

__device__ __forceinline__ void end_block_sum(ThreadSum* mine, BlockSum* shared, ExactSum* sum,
                                              uint64_t* first_bad) {
  if (threadIdx.x % kLanes == 0) { // a chunk is kept by its first lane
    mine->flush(shared->limb);
    if (mine->first_bad() != kNone) atomicMin(&shared->first_bad, mine->first_bad());
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    normalise(shared->limb);
    if (shared->first_bad != kNone && first_bad != nullptr) {
      atomicMin(reinterpret_cast<unsigned long long*>(first_bad), shared->first_bad);
    }
  }
  __syncthreads();
  if (threadIdx.x < kLimbs && shared->limb[threadIdx.x] != 0) {
    add_atomically(sum->limb + threadIdx.x, static_cast<uint64_t>(shared->limb[threadIdx.x]));
  }
}

} // namespace zero::cuda

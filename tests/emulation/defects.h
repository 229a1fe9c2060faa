// Kernels with mistakes in them, which the emulation must report, and two kernels that are right
// until a macro puts a mistake in: a barrier or a fence that is missing.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/cuda/launch.h"

namespace defects {

// Some threads wait at another barrier than the rest.
__global__ void divergent_barrier(float* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    out[threadIdx.x] = 1;
    __syncthreads();
  }
}

__global__ void early_exit(float* out, int count) {
  if (static_cast<int>(threadIdx.x) >= count) return;
  out[threadIdx.x] = 1;
  __syncthreads();
}

__global__ void outside_global(float* out, int value) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(value);
}

__global__ void outside_shared(float* out) {
  CU_SHARED(float, values, [64]);
  values[threadIdx.x + 1] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void misaligned(const float* in, float* out) {
  const uint4 four = *reinterpret_cast<const uint4*>(in + threadIdx.x);
  out[threadIdx.x] = __uint_as_float(four.x);
}

// Reads lanes that are not in the mask: what comes is poison.
__global__ void lane_not_in_mask(float* out) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) value += __shfl_xor_sync(0xffffu, value, 16);
  out[threadIdx.x] = value;
}

__global__ void caller_not_in_mask(float* out) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x % 32 < 16) value += __shfl_xor_sync(0xffff0000u, value, 1);
  out[threadIdx.x] = value;
}

__global__ void divergent_shuffle(float* out) {
  float value = static_cast<float>(threadIdx.x);
  if ((threadIdx.x & 1) != 0) value += __shfl_xor_sync(0xffffffffu, value, 1);
  out[threadIdx.x] = value;
  if (threadIdx.x < 2) __syncwarp();
}

__global__ void unset_shared(float* out) {
  CU_SHARED(float, values, [64]);
  if (threadIdx.x < 63) values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void race_global(float* out) {
  out[0] += 1;
}

// A sum over a block, twice through the same shared memory, the last block adding up the others'.
__device__ inline float block_sum(float value) { // in thread 0
  CU_SHARED(float, parts, [2]);
#ifndef DEFECT_BARRIER_BEFORE // the second sum overwrites what the first is still read from
  __syncthreads();
#endif
  for (int distance = 16; distance != 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
#ifndef DEFECT_BARRIER
  __syncthreads();
#endif
  return parts[0] + parts[1];
}

__global__ void two_sums(const float* values, float* partial, unsigned* ticket, float* out) {
  CU_SHARED(int, is_last, [1]);
  const unsigned i = blockIdx.x * 64 + threadIdx.x;
  const float sum = block_sum(values[i]) + block_sum(2 * values[i]);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
#ifndef DEFECT_FENCE
    __threadfence();
#endif
    is_last[0] = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1 ? 1 : 0;
  }
  __syncthreads();
  if (is_last[0] == 0) return;
  __threadfence();
  if (threadIdx.x != 0) return;
  float all = 0;
  for (unsigned block = 0; block < gridDim.x; block++) all += partial[block];
  *out = all;
}

} // namespace defects

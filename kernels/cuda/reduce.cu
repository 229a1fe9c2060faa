// The ordered reduction, its norm taken on the way, and the norm alone.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/cuda_launchers.h"
#include "kernels/cuda/device_norm.h"
#include "kernels/cuda/launch.h"

namespace zero::cuda {

// Not restrict: the result may be one of the contributions.
template <int32_t from, int32_t to>
__global__ void __launch_bounds__(kThreads, 4) reduce_kernel(CudaReduce r) {
  CU_SHARED(BlockSum, shared, [1]);
  const bool has_norm = r.norm != nullptr;
  if (has_norm) begin_block_sum(&shared[0]);
  ThreadSum sums;
  bool aligned = is_aligned(r.accumulate);
  for (int32_t rank = 0; rank < r.ranks; rank++) {
    aligned = aligned && is_aligned(r.contributions[rank]);
  }
  const uint64_t turn = static_cast<uint64_t>(gridDim.x) * kThreads * kGroup;
  // The whole block goes round together: chunks are summed by shuffles.
  for (uint64_t begin = static_cast<uint64_t>(blockIdx.x) * kThreads * kGroup; begin < r.count;
       begin += turn) {
    const uint64_t i = begin + threadIdx.x * kGroup;
    const bool whole = aligned && i + kGroup <= r.count;
    float sum[kGroup] = {};
#pragma unroll 4
    for (int32_t rank = 0; rank < r.ranks; rank++) {
      float x[kGroup];
      if (whole) {
        Group raw;
        load_group(r.contributions[rank], from, i, &raw);
        unpack(raw, from, x);
      } else {
        load_part(r.contributions[rank], from, i, r.count, x);
      }
#pragma unroll
      for (int k = 0; k < kGroup; k++) sum[k] = __fadd_rn(sum[k], x[k]);
    }
#pragma unroll
    for (int k = 0; k < kGroup; k++) sum[k] = rounded_to(__fmul_rn(sum[k], r.scale), to);
    if (r.add != 0) {
      float old[kGroup];
      if (whole) {
        Group raw;
        load_group(r.accumulate, to, i, &raw);
        unpack(raw, to, old);
      } else {
        load_part(r.accumulate, to, i, r.count, old);
      }
#pragma unroll
      for (int k = 0; k < kGroup; k++) sum[k] = rounded_to(__fadd_rn(old[k], sum[k]), to);
    }
    if (whole) {
      store_group(sum, r.accumulate, to, i);
    } else {
      store_part(sum, r.accumulate, to, i, r.count);
    }
    if (!has_norm) continue;
#pragma unroll
    for (int k = 0; k < kGroup; k++) { // behind the end nothing counts, whatever scale made of it
      if (i + k >= r.count) sum[k] = 0.0f;
    }
    const double chunk = chunk_sum(sum);
    if (threadIdx.x % kLanes == 0) sums.add(chunk, i / kernels::kChunk, shared[0].limb);
  }
  if (has_norm) end_block_sum(&sums, &shared[0], r.norm, r.first_bad);
}

// Values of [0, count) behind `values` into the thread's sums.
template <typename Count>
__device__ __forceinline__ void add_chunks(const void* values, int32_t dtype, Count count,
                                           Count begin, Count turn, ThreadSum* sums,
                                           BlockSum* shared) {
  const bool aligned = is_aligned(values);
  for (; begin < count; begin += turn) {
    const Count i = begin + threadIdx.x * kGroup;
    float x[kGroup];
    if (aligned && i + kGroup <= count) {
      Group raw;
      load_group(values, dtype, i, &raw);
      unpack(raw, dtype, x);
    } else {
      load_part(values, dtype, i, count, x);
    }
    const double chunk = chunk_sum(x);
    if (threadIdx.x % kLanes == 0) sums->add(chunk, i / kernels::kChunk, shared->limb);
  }
}

template <int32_t dtype>
__global__ void __launch_bounds__(kThreads, 4) norm_kernel(CudaNorm n) {
  CU_SHARED(BlockSum, shared, [1]);
  begin_block_sum(&shared[0]);
  ThreadSum sums;
  const uint64_t turn = static_cast<uint64_t>(gridDim.x) * kThreads * kGroup;
  add_chunks<uint64_t>(n.values, dtype, n.count,
                       static_cast<uint64_t>(blockIdx.x) * kThreads * kGroup, turn, &sums,
                       &shared[0]);
  end_block_sum(&sums, &shared[0], n.norm, n.first_bad);
}

// A tile a block; first_bad counts from the tile's begin within its parameter's sum, so that only
// whether there is one is of use.
__global__ void __launch_bounds__(kThreads, 4) norm_tiles_kernel(CudaNorm n) {
  CU_SHARED(BlockSum, shared, [1]);
  begin_block_sum(&shared[0]);
  ThreadSum sums;
  const CudaTile tile = n.tiles[blockIdx.x];
  const void* const values = tile.value != nullptr ? tile.value : at(n.values, n.dtype, tile.at);
  add_chunks<uint32_t>(values, n.dtype, tile.count, 0, kThreads * kGroup, &sums, &shared[0]);
  end_block_sum(&sums, &shared[0], n.norm + tile.param,
                n.first_bad == nullptr ? nullptr : n.first_bad + tile.param);
}

__global__ void norm_clear_kernel(ExactSum* norms, uint64_t* first_bad, uint64_t count) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count * kLimbs) norms[i / kLimbs].limb[i % kLimbs] = 0;
  if (i < count && first_bad != nullptr) first_bad[i] = kNone;
}

namespace {

template <int32_t from>
int32_t launch_reduce(const CudaReduce& r, void* stream) {
  const uint64_t blocks = blocks_for(r.count, r.most_blocks);
  switch (r.accumulate_dtype) {
    case kFp16:
      return launch(&reduce_kernel<from, kFp16>, blocks, stream, r);
    case kBf16:
      return launch(&reduce_kernel<from, kBf16>, blocks, stream, r);
    default:
      return launch(&reduce_kernel<from, kFp32>, blocks, stream, r);
  }
}

} // namespace

int32_t reduce(const CudaReduce* reduce, void* stream) {
  switch (reduce->contribution_dtype) {
    case kFp16:
      return launch_reduce<kFp16>(*reduce, stream);
    case kBf16:
      return launch_reduce<kBf16>(*reduce, stream);
    default:
      return launch_reduce<kFp32>(*reduce, stream);
  }
}

int32_t norm(const CudaNorm* norm, void* stream) {
  if (norm->tiles != nullptr) return launch(&norm_tiles_kernel, norm->tile_count, stream, *norm);
  const uint64_t blocks = blocks_for(norm->count, norm->most_blocks);
  switch (norm->dtype) {
    case kFp16:
      return launch(&norm_kernel<kFp16>, blocks, stream, *norm);
    case kBf16:
      return launch(&norm_kernel<kBf16>, blocks, stream, *norm);
    default:
      return launch(&norm_kernel<kFp32>, blocks, stream, *norm);
  }
}

int32_t norm_clear(ExactSum* norms, uint64_t* first_bad, uint64_t count, void* stream) {
  const uint64_t blocks = (count * kLimbs + kThreads - 1) / kThreads;
  return launch(&norm_clear_kernel, blocks, stream, norms, first_bad, count);
}

} // namespace zero::cuda

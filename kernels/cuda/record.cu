// What a step tells the other ranks, made on the device: the first value that is not finite, and
// the step record. SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/cuda_launchers.h"
#include "kernels/cuda/device_norm.h"
#include "kernels/cuda/launch.h"

namespace zero::cuda {

__device__ __forceinline__ bool is_finite(const void* values, int32_t dtype, uint64_t i) {
  return (__float_as_uint(load_one(values, dtype, i)) & 0x7f800000u) != 0x7f800000u;
}

// The member that holds an element of the bucket, or none for padding.
__device__ __forceinline__ const CudaMember* member_at(const CudaNote& n, uint64_t element) {
  int32_t low = 0, high = n.member_count; // the first that starts behind the element
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (n.members[middle].offset <= element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return nullptr;
  const CudaMember* member = n.members + low - 1;
  return element - member->offset < member->count ? member : nullptr;
}

// A finite contribution cannot make a NaN of finite ones; an infinity may be their sum.
__device__ __forceinline__ int64_t rank_of(const CudaNote& n, uint64_t i) {
  if (n.ranks_in_all == 1) return 0;
  bool own_is_gone = false;
  for (int32_t k = 0; k < n.ranks; k++) {
    const int64_t rank =
        static_cast<int64_t>(reinterpret_cast<unsigned long long>(n.contributions[n.ranks + k]));
    if (rank == n.overwritten) {
      own_is_gone = true;
    } else if (!is_finite(n.contributions[k], n.contribution_dtype, i)) {
      return rank;
    }
  }
  return own_is_gone ? n.overwritten : -1;
}

__global__ void note_kernel(CudaNote n) {
  const uint64_t chunk = *n.first_bad;
  if (chunk == kNone) return;
  *n.first_bad = kNone;
  for (uint64_t i = chunk * kernels::kChunk; i < n.count && i < (chunk + 1) * kernels::kChunk;
       i++) {
    if (is_finite(n.values, n.dtype, i)) continue;
    const CudaMember* member = member_at(n, n.start + i);
    if (member == nullptr) continue;
    const int64_t order = member->order + 1;
    const int64_t element = static_cast<int64_t>(n.start + i - member->offset);
    const bool earlier =
        n.found[0] == 0 || order < n.found[0] || (order == n.found[0] && element < n.found[2]);
    if (!earlier) return;
    n.found[0] = order;
    n.found[1] = member->param;
    n.found[2] = element;
    n.found[3] = rank_of(n, i);
    return;
  }
}

// One of the record's numbers behind its sums, which the first threads normalise.
__global__ void __launch_bounds__(kThreads, 4) record_kernel(CudaRecord r) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const uint64_t words = static_cast<uint64_t>(r.ranks) * kCudaRecordWords;
  int64_t* const slots = r.record + kLimbs + r.came_words;
  if (i < r.came_words) r.record[kLimbs + i] = r.came[i];
  if (i < words) {
    const uint64_t rank = i / kCudaRecordWords, word = i % kCudaRecordWords;
    const bool mine = rank == static_cast<uint64_t>(r.rank);
    slots[i] = !mine ? 0 : word < kCudaFoundWords ? r.found[word] : r.hash;
  }
  if (i <= r.param_count) {
    ExactSum sum = i == 0 ? *r.sum : r.param_sums[i - 1];
    normalise(sum.limb);
    int64_t* const to = i == 0 ? r.record : slots + words + (i - 1) * kLimbs;
    for (int k = 0; k < kLimbs; k++) to[k] = sum.limb[k];
  }
}

int32_t note(const CudaNote* note, void* stream) {
  return launch_grid(&note_kernel, dim3(1, 1, 1), 1, stream, *note);
}

int32_t record(const CudaRecord* record, void* stream) {
  uint64_t most = static_cast<uint64_t>(record->ranks) * kCudaRecordWords;
  if (record->came_words > most) most = record->came_words;
  if (record->param_count + 1 > most) most = record->param_count + 1;
  return launch(&record_kernel, (most + kThreads - 1) / kThreads, stream, *record);
}

} // namespace zero::cuda

// Casts, sums and scaled copies between the three float dtypes; masters split and joined.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/cuda_launchers.h"
#include "kernels/cuda/device_numbers.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/remainder.h"

namespace zero::cuda {

enum Operation : int32_t { kCast, kAdd, kScale };

template <int32_t operation, int32_t from, int32_t to>
__global__ void __launch_bounds__(kThreads, 4) convert_kernel(CudaConvert c) {
  float factor = c.factor;
  if (operation == kScale && c.step != nullptr) {
    if (c.step->skip != 0) return;
    factor = static_cast<float>(c.step->factor);
  }
  const bool aligned = is_aligned(c.src) && is_aligned(c.dst);
  const uint64_t turn = static_cast<uint64_t>(gridDim.x) * kThreads * kGroup;
  for (uint64_t i = (static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
       i < c.count; i += turn) {
    const bool whole = aligned && i + kGroup <= c.count;
    float x[kGroup], old[kGroup];
    if (whole) {
      Group raw, raw_old;
      load_group(c.src, from, i, &raw);
      if (operation == kAdd) load_group(c.dst, to, i, &raw_old);
      unpack(raw, from, x);
      if (operation == kAdd) unpack(raw_old, to, old);
    } else {
      load_part(c.src, from, i, c.count, x);
      if (operation == kAdd) load_part(c.dst, to, i, c.count, old);
    }
#pragma unroll
    for (int k = 0; k < kGroup; k++) {
      if (operation == kAdd) x[k] = __fadd_rn(old[k], x[k]);
      if (operation == kScale) x[k] = __fmul_rn(x[k], factor);
    }
    if (whole) {
      store_group(x, c.dst, to, i);
    } else {
      store_part(x, c.dst, to, i, c.count);
    }
  }
}

// To 16 bits and back of masters; a thread has a byte of the ties to itself.
__global__ void __launch_bounds__(kThreads, 4) split_kernel(CudaMaster m) {
  const uint64_t end = m.ties == nullptr ? m.count : (m.count + 31) / 32 * 32;
  const bool aligned = is_aligned(m.master) && is_aligned(m.model) && is_aligned(m.remainder);
  const uint64_t turn = static_cast<uint64_t>(gridDim.x) * kThreads * kGroup;
  for (uint64_t i = (static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < end;
       i += turn) {
    float p[kGroup];
    if (aligned && i + kGroup <= m.count) {
      Group raw;
      load_group(m.master, kFp32, i, &raw);
      unpack(raw, kFp32, p);
      store_group(p, m.model, kBf16, i);
      keep_group(p, m.ties == nullptr, m.remainder, i);
    } else {
      load_part(m.master, kFp32, i, m.count, p);
      store_part(p, m.model, kBf16, i, m.count);
      keep_part(p, m.ties == nullptr, m.remainder, i, m.count);
    }
    if (m.ties == nullptr) continue;
    reinterpret_cast<uint8_t*>(m.ties)[i / 8] = static_cast<uint8_t>(ties_of(p, i, m.count));
  }
}

__global__ void __launch_bounds__(kThreads, 4) join_kernel(CudaMaster m) {
  const bool aligned = is_aligned(m.master) && is_aligned(m.model) && is_aligned(m.remainder);
  const uint64_t turn = static_cast<uint64_t>(gridDim.x) * kThreads * kGroup;
  for (uint64_t i = (static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
       i < m.count; i += turn) {
    const uint32_t ties = m.ties == nullptr ? 0u : reinterpret_cast<const uint8_t*>(m.ties)[i / 8];
    float p[kGroup];
    if (aligned && i + kGroup <= m.count) {
      Group model, remainder;
      load_group(m.model, kBf16, i, &model);
      load_group(m.remainder, kBf16, i, &remainder);
      join_group(model, remainder, ties, p);
      store_group(p, m.master, kFp32, i);
    } else {
      join_part(m.model, m.remainder, ties, i, m.count, p);
      store_part(p, m.master, kFp32, i, m.count);
    }
  }
}

namespace {

int32_t copy(const CudaConvert& c, uint64_t element_bytes, void* stream) {
  if (c.src == c.dst || c.count == 0) return 0;
  return static_cast<int32_t>(cudaMemcpyAsync(c.dst, c.src, c.count * element_bytes,
                                              cudaMemcpyDeviceToDevice,
                                              static_cast<cudaStream_t>(stream)));
}

template <int32_t operation, int32_t from, int32_t to>
int32_t launch_convert(const CudaConvert& c, void* stream) {
  if constexpr (operation == kCast && from == to) {
    return copy(c, from == kFp32 ? 4 : 2, stream);
  } else {
    return launch(&convert_kernel<operation, from, to>, blocks_for(c.count, 0), stream, c);
  }
}

template <int32_t operation, int32_t from>
int32_t launch_to(const CudaConvert& c, void* stream) {
  if constexpr (operation == kScale) {
    return launch_convert<operation, from, kFp32>(c, stream);
  } else {
    switch (c.dst_dtype) {
      case kFp16:
        return launch_convert<operation, from, kFp16>(c, stream);
      case kBf16:
        return launch_convert<operation, from, kBf16>(c, stream);
      default:
        return launch_convert<operation, from, kFp32>(c, stream);
    }
  }
}

template <int32_t operation>
int32_t launch_from(const CudaConvert& c, void* stream) {
  switch (c.src_dtype) {
    case kFp16:
      return launch_to<operation, kFp16>(c, stream);
    case kBf16:
      return launch_to<operation, kBf16>(c, stream);
    default:
      return launch_to<operation, kFp32>(c, stream);
  }
}

} // namespace

int32_t cast(const CudaConvert* convert, void* stream) {
  return launch_from<kCast>(*convert, stream);
}

int32_t add(const CudaConvert* convert, void* stream) {
  return launch_from<kAdd>(*convert, stream);
}

int32_t scale(const CudaConvert* convert, void* stream) {
  return launch_from<kScale>(*convert, stream);
}

int32_t split_master(const CudaMaster* master, void* stream) {
  return launch(&split_kernel, blocks_for(master->count, 0), stream, *master);
}

int32_t join_master(const CudaMaster* master, void* stream) {
  return launch(&join_kernel, blocks_for(master->count, 0), stream, *master);
}

} // namespace zero::cuda

// The fused passes: unscale x clip -> optimizer -> write-back, every stream read once and written
// once.  One block works on one tile, so a bucket of many small parameters is one launch.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/cuda_launchers.h"
#include "kernels/cuda/device_numbers.h"
#include "kernels/cuda/device_rules.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/remainder.h"

namespace zero::cuda {

constexpr int32_t kNoModel = -1;

// Which streams there are: the common kinds are instances of their own, in which every choice of a
// dtype is made by the compiler.
template <int32_t grad, int32_t model>
struct PlainStreams { // master and states in fp32
  // Of a multiprocessor: at most 64 registers a thread, or 80 where something is packed.
  static constexpr int kBlocks = grad == kFp32 && model == kNoModel ? 4 : 3;
  static __device__ __forceinline__ int32_t grad_dtype(const CudaUpdate&) { return grad; }
  static __device__ __forceinline__ int32_t model_dtype(const CudaUpdate&) { return model; }
  static __device__ __forceinline__ int32_t master_dtype(const CudaUpdate&) { return kFp32; }
  static __device__ __forceinline__ int32_t state_dtype(const CudaUpdate&) { return kFp32; }
  static __device__ __forceinline__ bool has_model(const CudaUpdate&) { return model != kNoModel; }
  static __device__ __forceinline__ bool has_remainder(const CudaUpdate&) { return false; }
};

struct AnyStreams {
  static constexpr int kBlocks = 2;
  static __device__ __forceinline__ int32_t grad_dtype(const CudaUpdate& u) { return u.grad_dtype; }
  static __device__ __forceinline__ int32_t model_dtype(const CudaUpdate& u) {
    return u.model_dtype;
  }
  static __device__ __forceinline__ int32_t master_dtype(const CudaUpdate& u) {
    return u.master_dtype;
  }
  static __device__ __forceinline__ int32_t state_dtype(const CudaUpdate& u) {
    return u.state_dtype;
  }
  static __device__ __forceinline__ bool has_model(const CudaUpdate& u) { return u.has_model != 0; }
  static __device__ __forceinline__ bool has_remainder(const CudaUpdate& u) {
    return u.remainder != nullptr;
  }
};

template <typename Rule, typename Kind>
__global__ void __launch_bounds__(kThreads, Kind::kBlocks) update_kernel(CudaUpdate u) {
  if (u.step != nullptr && u.step->skip != 0) return;
  const CudaTile tile = u.tiles[blockIdx.x];
  const CudaConstants& row = u.constants[tile.param];
  if (row.active == 0) return;
  const auto c = Rule::constants(row);

  const int32_t grad_dtype = Kind::grad_dtype(u), model_dtype = Kind::model_dtype(u);
  const int32_t master_dtype = Kind::master_dtype(u), state_dtype = Kind::state_dtype(u);
  const bool has_remainder = Kind::has_remainder(u), has_model = Kind::has_model(u);
  const bool own_value = tile.value != nullptr;
  const void* const grad = at(u.grad, grad_dtype, tile.at);
  void* const model = !has_model  ? nullptr
                      : own_value ? tile.value
                                  : at(u.model, model_dtype, tile.at);
  void* const master = has_remainder             ? nullptr
                       : !has_model && own_value ? tile.value
                                                 : at(u.master, master_dtype, tile.at);
  uint16_t* const remainder = has_remainder ? u.remainder + tile.at : nullptr;
  uint8_t* const ties = has_remainder && u.ties != nullptr
                            ? reinterpret_cast<uint8_t*>(u.ties) + tile.at / 8
                            : nullptr;
  const bool has_first = Rule::kStates > 0 && u.state[0] != nullptr;
  constexpr bool has_second = Rule::kStates > 1;
  void* const first = has_first ? at(u.state[0], state_dtype, tile.at) : nullptr;
  void* const second = has_second ? at(u.state[1], state_dtype, tile.at) : nullptr;
  const bool aligned = is_aligned(grad) && is_aligned(model) && is_aligned(master) &&
                       is_aligned(remainder) && is_aligned(first) && is_aligned(second);

  // A word of ties is written whole.
  const uint32_t end = ties == nullptr ? tile.count : (tile.count + 31) / 32 * 32;
  for (uint32_t i = threadIdx.x * kGroup; i < end; i += kThreads * kGroup) {
    const bool whole = aligned && i + kGroup <= tile.count;
    float p[kGroup], g[kGroup], a[kGroup], b[kGroup];
    if (whole) {
      Group raw_p, raw_r, raw_g, raw_a, raw_b;
      if (has_remainder) {
        load_group(model, kBf16, i, &raw_p);
        load_group(remainder, kBf16, i, &raw_r);
      } else {
        load_group(master, master_dtype, i, &raw_p);
      }
      load_group(grad, grad_dtype, i, &raw_g);
      if (has_first) load_group(first, state_dtype, i, &raw_a);
      if (has_second) load_group(second, state_dtype, i, &raw_b);
      if (has_remainder) {
        join_group(raw_p, raw_r, ties == nullptr ? 0u : ties[i / 8], p);
      } else {
        unpack(raw_p, master_dtype, p);
      }
      unpack(raw_g, grad_dtype, g);
      if (has_first) unpack(raw_a, state_dtype, a);
      if (has_second) unpack(raw_b, state_dtype, b);
    } else {
      if (has_remainder) {
        join_part(static_cast<const uint16_t*>(model), remainder,
                  ties == nullptr ? 0u : ties[i / 8], i, tile.count, p);
      } else {
        load_part(master, master_dtype, i, tile.count, p);
      }
      load_part(grad, grad_dtype, i, tile.count, g);
      if (has_first) load_part(first, state_dtype, i, tile.count, a);
      if (has_second) load_part(second, state_dtype, i, tile.count, b);
    }
#pragma unroll
    for (int k = 0; k < kGroup; k++) p[k] = Rule::step(c, p[k], g[k], &a[k], &b[k]);
    if (has_remainder && ties != nullptr) {
      ties[i / 8] = static_cast<uint8_t>(ties_of(p, i, tile.count));
    }
    if (whole) {
      if (has_first) store_group(a, first, state_dtype, i);
      if (has_second) store_group(b, second, state_dtype, i);
      if (!has_remainder) store_group(p, master, master_dtype, i);
    } else {
      if (has_first) store_part(a, first, state_dtype, i, tile.count);
      if (has_second) store_part(b, second, state_dtype, i, tile.count);
      if (!has_remainder) store_part(p, master, master_dtype, i, tile.count);
    }
    if (!has_model) continue;
      // The rounding of the master as it is stored.
#pragma unroll
    for (int k = 0; k < kGroup; k++) {
      if (!has_remainder) p[k] = rounded_to(p[k], master_dtype);
    }
    if (whole) {
      store_group(p, model, model_dtype, i);
      if (has_remainder) keep_group(p, ties == nullptr, remainder, i);
    } else {
      store_part(p, model, model_dtype, i, tile.count);
      if (has_remainder) keep_part(p, ties == nullptr, remainder, i, tile.count);
    }
  }
}

template <typename Rule, int32_t grad_dtype>
__global__ void __launch_bounds__(kThreads, 4) direction_kernel(CudaUpdate u) {
  if (u.step != nullptr && u.step->skip != 0) return;
  const CudaTile tile = u.tiles[blockIdx.x];
  const CudaConstants& row = u.constants[tile.param];
  if (row.active == 0) return;
  const auto c = Rule::constants(row);

  const void* const grad = at(u.grad, grad_dtype, tile.at);
  const float* const shared_master = static_cast<const float*>(u.master) + tile.at;
  const float* const master = !Rule::kReadsMaster ? nullptr
                              : u.has_model == 0 && tile.value != nullptr
                                  ? static_cast<const float*>(tile.value)
                                  : shared_master;
  float* const first = static_cast<float*>(u.state[0]) + tile.at;
  constexpr bool has_second = Rule::kStates > 1;
  float* const second = has_second ? static_cast<float*>(u.state[1]) + tile.at : nullptr;
  float* const direction = u.direction + tile.at;
  const bool aligned = is_aligned(grad) && is_aligned(master) && is_aligned(first) &&
                       is_aligned(second) && is_aligned(direction);
  for (uint32_t i = threadIdx.x * kGroup; i < tile.count; i += kThreads * kGroup) {
    const bool whole = aligned && i + kGroup <= tile.count;
    float p[kGroup] = {}, g[kGroup], a[kGroup], b[kGroup];
    if (whole) {
      Group raw_p, raw_g, raw_a, raw_b;
      if (Rule::kReadsMaster) load_group(master, kFp32, i, &raw_p);
      load_group(grad, grad_dtype, i, &raw_g);
      load_group(first, kFp32, i, &raw_a);
      if (has_second) load_group(second, kFp32, i, &raw_b);
      if (Rule::kReadsMaster) unpack(raw_p, kFp32, p);
      unpack(raw_g, grad_dtype, g);
      unpack(raw_a, kFp32, a);
      if (has_second) unpack(raw_b, kFp32, b);
    } else {
      if (Rule::kReadsMaster) load_part(master, kFp32, i, tile.count, p);
      load_part(grad, grad_dtype, i, tile.count, g);
      load_part(first, kFp32, i, tile.count, a);
      if (has_second) load_part(second, kFp32, i, tile.count, b);
    }
#pragma unroll
    for (int k = 0; k < kGroup; k++) p[k] = Rule::step(c, p[k], g[k], &a[k], &b[k]);
    if (whole) {
      store_group(a, first, kFp32, i);
      if (has_second) store_group(b, second, kFp32, i);
      store_group(p, direction, kFp32, i);
    } else {
      store_part(a, first, kFp32, i, tile.count);
      if (has_second) store_part(b, second, kFp32, i, tile.count);
      store_part(p, direction, kFp32, i, tile.count);
    }
  }
}

namespace {

template <typename Rule, typename Kind>
int32_t launch_update(const CudaUpdate& u, void* stream) {
  return launch(&update_kernel<Rule, Kind>, u.tile_count, stream, u);
}

template <typename Rule>
int32_t launch_rule(const CudaUpdate& u, void* stream) {
  const bool plain = u.remainder == nullptr && u.master_dtype == kFp32 && u.state_dtype == kFp32;
  const int32_t grad = u.grad_dtype, model = u.has_model != 0 ? u.model_dtype : kNoModel;
  if (plain && grad == kFp32 && model == kNoModel) {
    return launch_update<Rule, PlainStreams<kFp32, kNoModel>>(u, stream);
  }
  if (plain && grad == kFp32 && model == kBf16) {
    return launch_update<Rule, PlainStreams<kFp32, kBf16>>(u, stream);
  }
  if (plain && grad == kBf16 && model == kBf16) {
    return launch_update<Rule, PlainStreams<kBf16, kBf16>>(u, stream);
  }
  if (plain && grad == kFp32 && model == kFp16) {
    return launch_update<Rule, PlainStreams<kFp32, kFp16>>(u, stream);
  }
  if (plain && grad == kFp16 && model == kFp16) {
    return launch_update<Rule, PlainStreams<kFp16, kFp16>>(u, stream);
  }
  return launch_update<Rule, AnyStreams>(u, stream);
}

// A direction is fp32, so it takes the place of a gradient of fp32 only.
int32_t launch_apply(const CudaUpdate& u, void* stream) {
  const bool plain = u.remainder == nullptr && u.master_dtype == kFp32;
  if (plain && u.has_model == 0) {
    return launch_update<ApplyRule, PlainStreams<kFp32, kNoModel>>(u, stream);
  }
  if (plain && u.model_dtype == kBf16) {
    return launch_update<ApplyRule, PlainStreams<kFp32, kBf16>>(u, stream);
  }
  if (plain && u.model_dtype == kFp16) {
    return launch_update<ApplyRule, PlainStreams<kFp32, kFp16>>(u, stream);
  }
  return launch_update<ApplyRule, AnyStreams>(u, stream);
}

template <typename Rule>
int32_t launch_direction(const CudaUpdate& u, void* stream) {
  switch (u.grad_dtype) {
    case kFp16:
      return launch(&direction_kernel<Rule, kFp16>, u.tile_count, stream, u);
    case kBf16:
      return launch(&direction_kernel<Rule, kBf16>, u.tile_count, stream, u);
    default:
      return launch(&direction_kernel<Rule, kFp32>, u.tile_count, stream, u);
  }
}

} // namespace

int32_t update(const CudaUpdate* update, void* stream) {
  switch (update->rule) {
    case kCudaAdam:
      return launch_rule<AdamRule>(*update, stream);
    case kCudaSgd:
      return launch_rule<SgdRule>(*update, stream);
    case kCudaAdagrad:
      return launch_rule<AdagradRule>(*update, stream);
    case kCudaLion:
      return launch_rule<LionRule>(*update, stream);
    case kCudaApply:
      return launch_apply(*update, stream);
    case kCudaLamb:
      return launch_direction<LambRule>(*update, stream);
    case kCudaMuon:
      return launch_direction<MuonRule>(*update, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

} // namespace zero::cuda

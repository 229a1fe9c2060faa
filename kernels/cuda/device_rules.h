// The optimizers' formulas on one element, exactly as kernels/kernels.h writes them: every
// operation rounded by itself, fma where it says fma.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_kernels.h"

namespace zero::cuda {

using namespace zero::kernels;

// step() takes the master, the gradient and the states (kStates of them are in use), and returns
// the new master, or the direction.
struct AdamRule {
  static constexpr int kStates = 2;
  static constexpr bool kReadsMaster = true;
  static __device__ __forceinline__ AdamConstants constants(const CudaConstants& c) {
    return c.adam;
  }
  static __device__ __forceinline__ float step(const AdamConstants& c, float p, float g, float* m,
                                               float* v) {
    g = __fmul_rn(g, c.grad_scale);
    if (!c.decoupled) g = __fmaf_rn(c.weight_decay, p, g);
    *m = __fmaf_rn(c.beta1, *m, __fmul_rn(c.one_minus_beta1, g));
    *v = __fmaf_rn(c.beta2, *v, __fmul_rn(c.one_minus_beta2, __fmul_rn(g, g)));
    const float d = __fmaf_rn(__fsqrt_rn(*v), c.inverse_root_correction2, c.epsilon);
    if (c.decoupled) p = __fmul_rn(p, c.decay_factor);
    return __fmaf_rn(-c.step_size, __fdiv_rn(*m, d), p);
  }
};

struct SgdRule {
  static constexpr int kStates = 1; // none without momentum
  static constexpr bool kReadsMaster = true;
  static __device__ __forceinline__ SgdConstants constants(const CudaConstants& c) { return c.sgd; }
  static __device__ __forceinline__ float step(const SgdConstants& c, float p, float g, float* b,
                                               float*) {
    g = __fmul_rn(g, c.grad_scale);
    if (c.weight_decay != 0) g = __fmaf_rn(c.weight_decay, p, g);
    if (c.momentum != 0) {
      *b = c.first ? g : __fmaf_rn(c.momentum, *b, __fmul_rn(c.one_minus_dampening, g));
      g = c.nesterov ? __fmaf_rn(c.momentum, *b, g) : *b;
    }
    return __fmaf_rn(-c.lr, g, p);
  }
};

struct AdagradRule {
  static constexpr int kStates = 1;
  static constexpr bool kReadsMaster = true;
  static __device__ __forceinline__ AdagradConstants constants(const CudaConstants& c) {
    return c.adagrad;
  }
  static __device__ __forceinline__ float step(const AdagradConstants& c, float p, float g,
                                               float* sum, float*) {
    g = __fmaf_rn(c.weight_decay, p, __fmul_rn(g, c.grad_scale));
    *sum = __fmaf_rn(g, g, *sum);
    return __fmaf_rn(-c.lr, __fdiv_rn(g, __fadd_rn(__fsqrt_rn(*sum), c.epsilon)), p);
  }
};

struct LionRule {
  static constexpr int kStates = 1;
  static constexpr bool kReadsMaster = true;
  static __device__ __forceinline__ LionConstants constants(const CudaConstants& c) {
    return c.lion;
  }
  static __device__ __forceinline__ float step(const LionConstants& c, float p, float g, float* m,
                                               float*) {
    g = __fmul_rn(g, c.grad_scale);
    const float mixed = __fmaf_rn(c.beta1, *m, __fmul_rn(c.one_minus_beta1, g));
    // The sign of +-0 is +0; that of a NaN is a NaN.
    const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed == 0 ? 0.0f : mixed;
    *m = __fmaf_rn(c.beta2, *m, __fmul_rn(c.one_minus_beta2, g));
    return __fsub_rn(__fmul_rn(p, c.decay_factor), __fmul_rn(c.lr, sign));
  }
};

// Its gradient is the direction.
struct ApplyRule {
  static constexpr int kStates = 0;
  static constexpr bool kReadsMaster = true;
  static __device__ __forceinline__ ApplyConstants constants(const CudaConstants& c) {
    return c.apply;
  }
  static __device__ __forceinline__ float step(const ApplyConstants& c, float p, float direction,
                                               float*, float*) {
    return __fmaf_rn(-c.step, direction, __fmul_rn(p, c.decay_factor));
  }
};

struct LambRule {
  static constexpr int kStates = 2;
  static constexpr bool kReadsMaster = true;
  static __device__ __forceinline__ LambConstants constants(const CudaConstants& c) {
    return c.lamb;
  }
  static __device__ __forceinline__ float step(const LambConstants& c, float p, float g, float* m,
                                               float* v) {
    g = __fmul_rn(g, c.grad_scale);
    *m = __fmaf_rn(c.beta1, *m, __fmul_rn(c.one_minus_beta1, g));
    *v = __fmaf_rn(c.beta2, *v, __fmul_rn(c.one_minus_beta2, __fmul_rn(g, g)));
    const float d = c.epsilon_inside_sqrt ? __fsqrt_rn(__fadd_rn(*v, c.epsilon))
                                          : __fadd_rn(__fsqrt_rn(*v), c.epsilon);
    return __fmaf_rn(c.weight_decay, p, __fdiv_rn(*m, d));
  }
};

struct MuonRule {
  static constexpr int kStates = 1;
  static constexpr bool kReadsMaster = false;
  static __device__ __forceinline__ MuonConstants constants(const CudaConstants& c) {
    return c.muon;
  }
  static __device__ __forceinline__ float step(const MuonConstants& c, float, float g, float* m,
                                               float*) {
    g = __fmul_rn(c.one_minus_momentum, __fmul_rn(g, c.grad_scale));
    *m = __fmaf_rn(c.momentum, *m, g);
    return __fmaf_rn(c.momentum, *m, g);
  }
};

} // namespace zero::cuda

// What decides a step on the device: verdict, loss scale, counters, and the constants of every
// parameter's update.  The arithmetic is that of src/optim and of the engine's host code, each
// operation in double rounded by itself; nothing transcendental.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/cuda_launchers.h"
#include "kernels/cuda/device_root.h"
#include "kernels/cuda/launch.h"

namespace zero::cuda {

// optim::power
__device__ __forceinline__ double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = __dmul_rn(result, base);
    base = __dmul_rn(base, base);
  }
  return result;
}

// optim::update_loss_scale
__device__ __forceinline__ void update_loss_scale(const CudaVerdict& v, bool overflow) {
  if (v.dynamic == 0) return;
  CudaStep& s = *v.step;
  if (overflow) {
    if (v.hysteresis == 1 || s.credits == 1) {
      const double half = __dmul_rn(s.loss_scale, 0.5);
      s.loss_scale = half < v.minimum ? v.minimum : half;
    } else {
      s.credits--;
    }
    s.last_overflow = s.iteration;
  } else {
    if (v.consecutive_hysteresis != 0) s.credits = v.hysteresis;
    const int64_t clean = s.iteration - s.last_overflow - 1;
    if (clean > 0 && clean % v.window == 0) {
      s.credits = v.hysteresis;
      s.loss_scale = __dmul_rn(s.loss_scale, 2.0);
    }
  }
  s.iteration++;
}

__global__ void verdict_kernel(CudaVerdict v) {
  CudaStep& s = *v.step;
  bool found = false;
  for (uint64_t i = 0; i < v.non_finite_count; i++) {
    found = found || v.non_finite[i * v.non_finite_stride] != 0;
  }
  // optim::gradient_scale
  const double unscale = __ddiv_rn(s.average, s.loss_scale);
  const double norm = __dmul_rn(exact_root(v.sum), unscale);
  const double excess = v.clipping > 0 ? __ddiv_rn(__dadd_rn(norm, 1e-6), v.clipping) : 1;
  const double clip_scale = excess > 1 ? __ddiv_rn(1.0, excess) : 1;
  s.factor = __dmul_rn(unscale, clip_scale);

  const bool skip = found && v.checks_overflow != 0;
  s.found = found ? 1 : 0;
  s.norm = found ? __longlong_as_double(0x7ff0000000000000ll) : norm;
  s.clip_scale = skip ? 1 : clip_scale;
  s.row = s.updates;
  s.skip = skip || s.fatal != 0 ? 1 : 0;
  const bool halves = v.hysteresis == 1 || s.credits == 1;
  if (skip && v.dynamic != 0 && halves && !(s.loss_scale > v.minimum)) s.fatal = 1;
  if (s.fatal != 0) return;
  update_loss_scale(v, skip);
  if (v.loss_scale != nullptr) *v.loss_scale = __double2float_rn(s.loss_scale);
  if (skip) {
    s.skipped++;
  } else {
    s.updates++;
  }
}

__device__ __forceinline__ CudaRates rates_of(const CudaPrepare& a, int32_t param) {
  return a.rates[a.step->row % a.rows * a.groups + a.group_of[param]];
}

__device__ __forceinline__ float one_minus(double value) {
  return __double2float_rn(__dsub_rn(1.0, value));
}

__device__ __forceinline__ float decay_factor(double lr, double weight_decay) {
  return one_minus(__dmul_rn(lr, weight_decay));
}

// optim::adam_step
__device__ __forceinline__ AdamConstants adam_constants(const CudaPrepare& a, const CudaRates& r,
                                                        double lr, float grad_scale, int64_t t) {
  double step_size = lr, inverse_root = 1;
  if (a.bias_correction != 0) {
    step_size = __ddiv_rn(lr, __dsub_rn(1.0, power(r.beta1, t)));
    inverse_root = __ddiv_rn(1.0, __dsqrt_rn(__dsub_rn(1.0, power(r.beta2, t))));
  }
  AdamConstants c;
  c.grad_scale = grad_scale;
  c.beta1 = __double2float_rn(r.beta1);
  c.one_minus_beta1 = one_minus(r.beta1);
  c.beta2 = __double2float_rn(r.beta2);
  c.one_minus_beta2 = one_minus(r.beta2);
  c.epsilon = __double2float_rn(r.epsilon);
  c.step_size = __double2float_rn(step_size);
  c.inverse_root_correction2 = __double2float_rn(inverse_root);
  c.decay_factor = decay_factor(lr, r.weight_decay);
  c.weight_decay = __double2float_rn(r.weight_decay);
  c.decoupled = a.decoupled != 0;
  return c;
}

__device__ __forceinline__ SgdConstants sgd_constants(const CudaPrepare& a, const CudaRates& r,
                                                      float grad_scale, int64_t t) {
  SgdConstants c;
  c.grad_scale = grad_scale;
  c.lr = __double2float_rn(r.lr);
  c.momentum = __double2float_rn(r.momentum);
  c.one_minus_dampening = one_minus(a.dampening);
  c.weight_decay = __double2float_rn(r.weight_decay);
  c.nesterov = a.nesterov != 0;
  c.first = t == 1;
  return c;
}

__device__ __forceinline__ LionConstants lion_constants(const CudaRates& r, float grad_scale) {
  LionConstants c;
  c.grad_scale = grad_scale;
  c.beta1 = __double2float_rn(r.beta1);
  c.one_minus_beta1 = one_minus(r.beta1);
  c.beta2 = __double2float_rn(r.beta2);
  c.one_minus_beta2 = one_minus(r.beta2);
  c.lr = __double2float_rn(r.lr);
  c.decay_factor = decay_factor(r.lr, r.weight_decay);
  return c;
}

__device__ __forceinline__ LambConstants lamb_constants(const CudaPrepare& a, const CudaRates& r,
                                                        float grad_scale) {
  LambConstants c;
  c.grad_scale = grad_scale;
  c.beta1 = __double2float_rn(r.beta1);
  c.one_minus_beta1 = one_minus(r.beta1);
  c.beta2 = __double2float_rn(r.beta2);
  c.one_minus_beta2 = one_minus(r.beta2);
  c.epsilon = __double2float_rn(r.epsilon);
  c.weight_decay = __double2float_rn(r.weight_decay);
  c.epsilon_inside_sqrt = a.epsilon_inside_sqrt != 0;
  return c;
}

// The rate of one of Muon's two halves.
__device__ __forceinline__ double muon_rate(const CudaPrepare& a, double lr, double own) {
  return a.base_lr > 0 ? __dmul_rn(own, __ddiv_rn(lr, a.base_lr)) : 0;
}

__global__ void __launch_bounds__(kThreads, 4) prepare_kernel(CudaPrepare a) {
  const int32_t p = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (p >= a.params) return;
  CudaConstants& row = a.constants[p];
  const bool came = a.came == nullptr || ((a.came[p / 4] >> (p % 4 * 16)) & 0xffff) != 0;
  const bool active = a.step->skip == 0 && a.group_of[p] >= 0 && came;
  row.active = active ? 1 : 0;
  if (!active) return;
  const int64_t t = ++a.param_steps[p];
  const CudaRates r = rates_of(a, p);
  const float grad_scale = __double2float_rn(a.step->factor);
  switch (a.rule) {
    case kCudaSgd:
      row.sgd = sgd_constants(a, r, grad_scale, t);
      return;
    case kCudaAdagrad:
      row.adagrad.grad_scale = grad_scale;
      row.adagrad.lr = __double2float_rn(r.lr);
      row.adagrad.epsilon = __double2float_rn(r.epsilon);
      row.adagrad.weight_decay = __double2float_rn(r.weight_decay);
      return;
    case kCudaLion:
      row.lion = lion_constants(r, grad_scale);
      return;
    case kCudaLamb:
      row.lamb = lamb_constants(a, r, grad_scale);
      return;
    case kCudaMuon:
      if (a.muon_factor[p] > 0) {
        const double rate = muon_rate(a, r.lr, a.muon_lr);
        row.muon.grad_scale = grad_scale;
        row.muon.momentum = __double2float_rn(r.momentum);
        row.muon.one_minus_momentum = one_minus(r.momentum);
        row.apply.step = __double2float_rn(__dmul_rn(rate, a.muon_factor[p]));
        row.apply.decay_factor = decay_factor(rate, r.weight_decay);
        return;
      }
      row.adam = adam_constants(a, r, muon_rate(a, r.lr, a.muon_adam_lr), grad_scale, t);
      return;
    default:
      row.adam = adam_constants(a, r, r.lr, grad_scale, t);
  }
}

__global__ void __launch_bounds__(kThreads, 4) trust_ratio_kernel(CudaTrustRatio t) {
  const CudaPrepare& a = t.prepare;
  const int32_t p = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (p >= a.params || a.constants[p].active == 0) return;
  const double direction = exact_root(&t.direction[p]);
  const double value = exact_root(&t.value[p]);
  double ratio = 1;
  if (direction > 0 && value > 0) {
    ratio = __ddiv_rn(value, direction);
    ratio = ratio < t.smallest ? t.smallest : ratio > t.largest ? t.largest : ratio;
  }
  const CudaRates r = rates_of(a, p);
  double rate = r.lr;
  if (a.bias_correction != 0) {
    const int64_t steps = a.param_steps[p];
    const double root = __dsqrt_rn(__dsub_rn(1.0, power(r.beta2, steps)));
    rate = __dmul_rn(rate, __ddiv_rn(root, __dsub_rn(1.0, power(r.beta1, steps))));
  }
  a.constants[p].apply.step = __double2float_rn(__dmul_rn(rate, ratio));
  a.constants[p].apply.decay_factor = 1;
}

int32_t verdict(const CudaVerdict* verdict, void* stream) {
  return launch_grid(&verdict_kernel, dim3(1, 1, 1), 1, stream, *verdict);
}

int32_t prepare(const CudaPrepare* prepare, void* stream) {
  const uint64_t blocks = (static_cast<uint64_t>(prepare->params) + kThreads - 1) / kThreads;
  return launch(&prepare_kernel, blocks, stream, *prepare);
}

int32_t trust_ratio(const CudaTrustRatio* trust_ratio, void* stream) {
  const uint64_t params = static_cast<uint64_t>(trust_ratio->prepare.params);
  return launch(&trust_ratio_kernel, (params + kThreads - 1) / kThreads, stream, *trust_ratio);
}

} // namespace zero::cuda

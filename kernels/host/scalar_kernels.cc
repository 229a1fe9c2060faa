// The plain version of every kernel, one element after the other as kernels.h writes the formulas:
// the oracle that every vector target and CUDA are compared with, and what a machine without a
// usable vector target runs.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/host/float_environment.h"
#include "kernels/host/half_numbers.h"
#include "kernels/kernels.h"

namespace zero::kernels {

namespace {

// Adds the chunk's sum of squares; false where it is not finite.
bool add_chunk(const float (&values)[kChunk], ExactSum* norm) {
  double sums[kChunk / 2];
  for (uint64_t i = 0; i < 16; i++) {
    const double low = values[i];
    const double high = values[i + 16];
    sums[i] = std::fma(high, high, low * low);
  }
  for (uint64_t stride = 8; stride >= 1; stride /= 2) {
    for (uint64_t i = 0; i < stride; i++) sums[i] = sums[i] + sums[i + stride];
  }
  // A square of a finite fp32 is far from overflowing a double.
  if (!std::isfinite(sums[0])) return false;
  exact_sum_add(norm, sums[0]);
  return true;
}

float rounded_to(float value, zero_dtype dtype) {
  if (dtype == ZERO_DTYPE_FP16) return float_from_fp16(fp16_from_float(value));
  if (dtype == ZERO_DTYPE_BF16) return float_from_bf16(bf16_from_float(value));
  return value;
}

[[gnu::noinline]] uint64_t reduce(const ReduceArguments& a) {
  uint64_t first_bad = kNone;
  for (uint64_t begin = 0; begin < a.count; begin += kChunk) {
    const uint64_t end = std::min(begin + kChunk, a.count);
    float stored[kChunk] = {};
    for (uint64_t i = begin; i < end; i++) {
      float sum = 0;
      for (int32_t rank = 0; rank < a.ranks; rank++) {
        sum = sum + load_float(a.contributions[rank], a.contribution_dtype, i);
      }
      sum = sum * a.scale;
      if (a.add) {
        // The mean is rounded to the accumulator's dtype before it is added, as if it had been
        // stored there first.
        const float rounded = rounded_to(sum, a.accumulate_dtype);
        sum = load_float(a.accumulate, a.accumulate_dtype, i) + rounded;
      }
      store_float(sum, a.accumulate, a.accumulate_dtype, i);
      stored[i - begin] = load_float(a.accumulate, a.accumulate_dtype, i);
    }
    if (a.norm != nullptr && !add_chunk(stored, a.norm) && first_bad == kNone) {
      first_bad = begin / kChunk;
    }
  }
  return first_bad;
}

[[gnu::noinline]] uint64_t norm(const void* values, zero_dtype dtype, uint64_t count,
                                ExactSum* sum) {
  uint64_t first_bad = kNone;
  for (uint64_t begin = 0; begin < count; begin += kChunk) {
    const uint64_t end = std::min(begin + kChunk, count);
    float chunk[kChunk] = {};
    for (uint64_t i = begin; i < end; i++) chunk[i - begin] = load_float(values, dtype, i);
    if (!add_chunk(chunk, sum) && first_bad == kNone) first_bad = begin / kChunk;
  }
  return first_bad;
}

[[gnu::noinline]] void adam(const UpdateStreams& s, const AdamConstants& c) {
  for (uint64_t i = 0; i < s.count; i++) {
    float p = s.master[i];
    float g = load_float(s.grad, s.grad_dtype, i) * c.grad_scale;
    if (!c.decoupled) g = std::fma(c.weight_decay, p, g);
    const float m = std::fma(c.beta1, s.state[0][i], c.one_minus_beta1 * g);
    const float v = std::fma(c.beta2, s.state[1][i], c.one_minus_beta2 * (g * g));
    const float d = std::fma(std::sqrt(v), c.inverse_root_correction2, c.epsilon);
    if (c.decoupled) p = p * c.decay_factor;
    p = std::fma(-c.step_size, m / d, p);
    s.state[0][i] = m;
    s.state[1][i] = v;
    s.master[i] = p;
    if (s.model != nullptr) store_float(p, s.model, s.model_dtype, i);
  }
}

[[gnu::noinline]] void sgd(const UpdateStreams& s, const SgdConstants& c) {
  for (uint64_t i = 0; i < s.count; i++) {
    float p = s.master[i];
    float g = load_float(s.grad, s.grad_dtype, i) * c.grad_scale;
    if (c.weight_decay != 0) g = std::fma(c.weight_decay, p, g);
    if (c.momentum != 0) {
      const float b = c.first ? g : std::fma(c.momentum, s.state[0][i], c.one_minus_dampening * g);
      s.state[0][i] = b;
      g = c.nesterov ? std::fma(c.momentum, b, g) : b;
    }
    p = std::fma(-c.lr, g, p);
    s.master[i] = p;
    if (s.model != nullptr) store_float(p, s.model, s.model_dtype, i);
  }
}

[[gnu::noinline]] void adagrad(const UpdateStreams& s, const AdagradConstants& c) {
  for (uint64_t i = 0; i < s.count; i++) {
    float p = s.master[i];
    const float g = std::fma(c.weight_decay, p, load_float(s.grad, s.grad_dtype, i) * c.grad_scale);
    const float sum = std::fma(g, g, s.state[0][i]);
    p = std::fma(-c.lr, g / (std::sqrt(sum) + c.epsilon), p);
    s.state[0][i] = sum;
    s.master[i] = p;
    if (s.model != nullptr) store_float(p, s.model, s.model_dtype, i);
  }
}

float sign(float value) {
  if (value > 0) return 1;
  if (value < 0) return -1;
  return value == 0 ? 0 : value;
}

[[gnu::noinline]] void lion(const UpdateStreams& s, const LionConstants& c) {
  for (uint64_t i = 0; i < s.count; i++) {
    const float m = s.state[0][i];
    const float g = load_float(s.grad, s.grad_dtype, i) * c.grad_scale;
    const float mixed = std::fma(c.beta1, m, c.one_minus_beta1 * g);
    float p = s.master[i] * c.decay_factor;
    p = p - c.lr * sign(mixed);
    s.state[0][i] = std::fma(c.beta2, m, c.one_minus_beta2 * g);
    s.master[i] = p;
    if (s.model != nullptr) store_float(p, s.model, s.model_dtype, i);
  }
}

[[gnu::noinline]] void lamb(const UpdateStreams& s, const LambConstants& c, float* direction) {
  for (uint64_t i = 0; i < s.count; i++) {
    const float g = load_float(s.grad, s.grad_dtype, i) * c.grad_scale;
    const float m = std::fma(c.beta1, s.state[0][i], c.one_minus_beta1 * g);
    const float v = std::fma(c.beta2, s.state[1][i], c.one_minus_beta2 * (g * g));
    const float d = c.epsilon_inside_sqrt ? std::sqrt(v + c.epsilon) : std::sqrt(v) + c.epsilon;
    s.state[0][i] = m;
    s.state[1][i] = v;
    direction[i] = std::fma(c.weight_decay, s.master[i], m / d);
  }
}

[[gnu::noinline]] void muon(const UpdateStreams& s, const MuonConstants& c, float* direction) {
  for (uint64_t i = 0; i < s.count; i++) {
    const float g = c.one_minus_momentum * (load_float(s.grad, s.grad_dtype, i) * c.grad_scale);
    const float m = std::fma(c.momentum, s.state[0][i], g);
    s.state[0][i] = m;
    direction[i] = std::fma(c.momentum, m, g);
  }
}

[[gnu::noinline]] void apply(const UpdateStreams& s, const ApplyConstants& c,
                             const float* direction) {
  for (uint64_t i = 0; i < s.count; i++) {
    const float p = std::fma(-c.step, direction[i], s.master[i] * c.decay_factor);
    s.master[i] = p;
    if (s.model != nullptr) store_float(p, s.model, s.model_dtype, i);
  }
}

[[gnu::noinline]] void cast(const void* src, zero_dtype src_dtype, void* dst, zero_dtype dst_dtype,
                            uint64_t count) {
  if (src_dtype == dst_dtype) {
    const uint64_t bytes = src_dtype == ZERO_DTYPE_FP32 ? 4 : 2;
    if (count != 0) std::memmove(dst, src, count * bytes);
    return;
  }
  for (uint64_t i = 0; i < count; i++) {
    store_float(load_float(src, src_dtype, i), dst, dst_dtype, i);
  }
}

[[gnu::noinline]] void add(const void* src, zero_dtype src_dtype, void* dst, zero_dtype dst_dtype,
                           uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    const float sum = load_float(dst, dst_dtype, i) + load_float(src, src_dtype, i);
    store_float(sum, dst, dst_dtype, i);
  }
}

[[gnu::noinline]] void scale(const void* src, zero_dtype src_dtype, float factor, float* dst,
                             uint64_t count) {
  for (uint64_t i = 0; i < count; i++) dst[i] = load_float(src, src_dtype, i) * factor;
}

[[gnu::noinline]] void product(const ProductArguments& a) {
  const uint64_t inner_step = a.right_transposed ? 1 : a.cols;
  const uint64_t col_step = a.right_transposed ? a.inner : 1;
  for (uint64_t i = 0; i < a.rows; i++) {
    for (uint64_t j = 0; j < a.cols; j++) {
      const float* const left = a.left + i * a.inner;
      const float* const right = a.right + j * col_step;
      float sum = 0;
      for (uint64_t l = 0; l < a.inner; l++) sum = std::fma(left[l], right[l * inner_step], sum);
      const uint64_t at = i * a.cols + j;
      a.out[at] = a.base == nullptr ? sum : std::fma(a.beta, a.base[at], a.alpha * sum);
    }
  }
}

} // namespace

const KernelTable& scalar_kernels() {
  static constexpr KernelTable kTable = {
      "scalar",
      Guarded<reduce>::run,
      Guarded<norm>::run,
      Guarded<adam>::run,
      Guarded<sgd>::run,
      Guarded<cast>::run,
      Guarded<add>::run,
      Guarded<scale>::run,
      Guarded<adagrad>::run,
      Guarded<lion>::run,
      Guarded<lamb>::run,
      Guarded<muon>::run,
      Guarded<apply>::run,
      Guarded<product>::run,
  };
  return kTable;
}

} // namespace zero::kernels

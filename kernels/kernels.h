// The kernels: plain functions in one table, the same set for host and CUDA.  Each is elementwise
// or adds in a stated order, so that splitting a range, the number of threads and the vector width
// never change a bit.  The scalar twin (kernels/host/scalar_kernels.cc) is the check of each.  They
// compute in the default floating-point environment (nearest, denormals kept) whatever the calling
// thread's is.  That a result is NaN is part of the contract, its sign and payload are not, save in
// casts.  Large results that are not read in the same call may be written past the caches.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>

namespace zero::kernels {

// Everything is cut into chunks of 32 elements, counted from a parameter's start; the layout keeps
// every parameter and every shard at a multiple of 32, and padding zero.
constexpr uint64_t kChunk = 32;
constexpr uint64_t kNone = UINT64_MAX;

// The exact sum of chunk sums (architecture section 3).  A chunk sum is a double made of exact
// squares of fp32, added at strides 16 (as fma), 8, 4, 2, 1.  Every such double is a multiple of
// 2^-298 and below 2^262; limb k holds bits of weight 2^(32 k - 320).  Limbs are signed 64-bit
// and are normalised (each but the last in [0, 2^32)) by exact_sum_normalise, so that the limbs of
// up to 2^31 ranks add up without overflow.
constexpr int kLimbs = 20;
struct ExactSum {
  int64_t limb[kLimbs];
};
void exact_sum_clear(ExactSum* sum);
void exact_sum_normalise(ExactSum* sum);
void exact_sum_add(ExactSum* sum, double chunk_sum); // finite, >= 0
void exact_sum_merge(ExactSum* sum, const ExactSum& other); // both may be un-normalised
// The nearest double of the square root of the exact sum.
double exact_sum_root(const ExactSum& sum);

// Ordered reduction of N contributions, in one pass: for each element
//   s = +0.0f; s = s + contribution[0]; ... s = s + contribution[N-1]   (fp32, rank order)
//   s = s * scale, rounded once to accumulate_dtype
//   accumulate = add ? accumulate + s : s                               (fp32, rounded to its
//   dtype)
// and, where norm is given, the chunk sums of the stored result.
struct ReduceArguments {
  const void* const* contributions = nullptr; // N pointers, each to count elements
  int32_t ranks = 0;
  zero_dtype contribution_dtype = ZERO_DTYPE_FP32;
  float scale = 1;
  void* accumulate = nullptr; // may be one of the contributions
  zero_dtype accumulate_dtype = ZERO_DTYPE_FP32;
  bool add = false;
  uint64_t count = 0; // any; a part of a chunk at the end counts as padded with zeros
  ExactSum* norm = nullptr; // finite chunk sums are added to it
};
// The first chunk (from 0) whose stored result holds a non-finite value, or kNone.  Without norm
// nothing is checked and the result is kNone.
using ReduceFunction = uint64_t (*)(const ReduceArguments& arguments);

// The norm alone: chunk sums of count elements added to *norm; the first non-finite chunk or kNone.
using NormFunction = uint64_t (*)(const void* values, zero_dtype dtype, uint64_t count,
                                  ExactSum* norm);

// The streams of one run of a fused update.  master is read and written; where model is given, the
// updated value is also written there, rounded to model_dtype (for an fp32 parameter the master is
// the parameter and model is null).  grad is read once.
struct UpdateStreams {
  float* master = nullptr;
  void* model = nullptr;
  zero_dtype model_dtype = ZERO_DTYPE_FP32;
  const void* grad = nullptr;
  zero_dtype grad_dtype = ZERO_DTYPE_FP32;
  float* state[2] = {nullptr, nullptr}; // Adam: exp_avg, exp_avg_sq; SGD: momentum buffer, -
  uint64_t count = 0; // any
};

// g = grad * grad_scale
//   L2 (decoupled false): g = fma(weight_decay, p, g)
// m = fma(beta1, m, one_minus_beta1 * g)
// v = fma(beta2, v, one_minus_beta2 * (g * g))
// d = fma(sqrt(v), inverse_root_correction2, epsilon)
//   decoupled: p = p * decay_factor
// p = fma(-step_size, m / d, p)
// Kingma & Ba 2015 (algorithm 1, bias corrections folded into step_size and
// inverse_root_correction2), Loshchilov & Hutter 2019 (algorithm 2) for the decoupled decay.
struct AdamConstants {
  float grad_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float epsilon;
  float step_size; // lr / (1 - beta1^t)
  float inverse_root_correction2; // 1 / sqrt(1 - beta2^t)
  float decay_factor; // 1 - lr * weight_decay
  float weight_decay; // L2 only
  bool decoupled;
};
using AdamFunction = void (*)(const UpdateStreams& streams, const AdamConstants& constants);

// g = grad * grad_scale;  g = fma(weight_decay, p, g) where weight_decay != 0
// momentum != 0:  b = first ? g : fma(momentum, b, one_minus_dampening * g)
//                 g = nesterov ? fma(momentum, b, g) : b
// p = fma(-lr, g, p)                       (as torch.optim.SGD; Sutskever et al. 2013, eq. 3-4)
struct SgdConstants {
  float grad_scale, lr, momentum, one_minus_dampening, weight_decay;
  bool nesterov;
  bool first; // the parameter's first update: the buffer is set, not mixed
};
using SgdFunction = void (*)(const UpdateStreams& streams, const SgdConstants& constants);

// g = grad * grad_scale;  g = fma(weight_decay, p, g)
// s = fma(g, g, s)                                                            (state[0])
// p = fma(-lr, g / (sqrt(s) + epsilon), p)
// Duchi et al. 2011; torch's arithmetic: the decayed gradient in both places.
struct AdagradConstants {
  float grad_scale, lr, epsilon, weight_decay;
};
using AdagradFunction = void (*)(const UpdateStreams& streams, const AdagradConstants& constants);

// g = grad * grad_scale;  c = fma(beta1, m, one_minus_beta1 * g)
// p = p * decay_factor;   p = p - lr * sign(c)                  (sign(0) is 0, of a NaN a NaN)
// m = fma(beta2, m, one_minus_beta2 * g)                                      (state[0])
// Chen et al. 2023, algorithm 2; decay_factor is 1 - lr * weight_decay.
struct LionConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, lr, decay_factor;
};
using LionFunction = void (*)(const UpdateStreams& streams, const LionConstants& constants);

// The direction of LAMB (You et al. 2020, algorithm 2, without bias correction): g, m and v as Adam
// without decay (state[0], state[1]);
// d = epsilon_inside_sqrt ? sqrt(v + epsilon) : sqrt(v) + epsilon
// direction = fma(weight_decay, p, m / d)
// master is read, neither it nor model is written.  direction may be the gradient's own fp32
// memory.  The trust ratio is the caller's, who then calls ApplyFunction.
struct LambConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
  bool epsilon_inside_sqrt;
};
using LambFunction = void (*)(const UpdateStreams& streams, const LambConstants& constants,
                              float* direction);

// The direction of Muon (Jordan et al. 2024) before its orthogonalisation:
// g = grad * grad_scale;  m = fma(momentum, m, one_minus_momentum * g)        (state[0])
// direction = fma(momentum, m, one_minus_momentum * g)          (m the new one: as Nesterov)
// master and model are not touched.  direction may be the gradient's own fp32 memory.
struct MuonConstants {
  float grad_scale, momentum, one_minus_momentum;
};
using MuonFunction = void (*)(const UpdateStreams& streams, const MuonConstants& constants,
                              float* direction);

// p = p * decay_factor;  p = fma(-step, direction, p); model as elsewhere.  grad and state unused.
struct ApplyConstants {
  float step, decay_factor;
};
using ApplyFunction = void (*)(const UpdateStreams& streams, const ApplyConstants& constants,
                               const float* direction);

// dst = src between fp32, fp16 and bf16, round to nearest even; NaN stays NaN.
using CastFunction = void (*)(const void* src, zero_dtype src_dtype, void* dst,
                              zero_dtype dst_dtype, uint64_t count);
// dst = dst + src in fp32, rounded to dst_dtype (local accumulation, tied gradients).
using AddFunction = void (*)(const void* src, zero_dtype src_dtype, void* dst, zero_dtype dst_dtype,
                             uint64_t count);
// dst = src * factor in fp32 (unscale and clip for the host program's own optimizer).
using ScaleFunction = void (*)(const void* src, zero_dtype src_dtype, float factor, float* dst,
                               uint64_t count);

// out (rows by cols) = left (rows by inner) * right (inner by cols), row-major.  Each element is a
// chain sum = fma(left, right, sum) over ascending inner index from +0, whatever the target; then
//   base given: out = fma(beta, base, alpha * sum)
// out overlaps nothing else.
struct ProductArguments {
  const float* left = nullptr;
  const float* right = nullptr;
  bool right_transposed = false; // right is stored as cols by inner
  uint64_t rows = 0, inner = 0, cols = 0; // inner > 0
  const float* base = nullptr; // rows by cols
  float alpha = 1, beta = 0;
  bool symmetric = false; // the caller knows that out is: half of it may be copied
  float* out = nullptr;
};
using ProductFunction = void (*)(const ProductArguments& arguments);

struct KernelTable {
  const char* name; // "scalar", or the vector target: "avx2", "avx3", ...
  ReduceFunction reduce;
  NormFunction norm;
  AdamFunction adam;
  SgdFunction sgd;
  CastFunction cast;
  AddFunction add;
  ScaleFunction scale;
  AdagradFunction adagrad;
  LionFunction lion;
  LambFunction lamb;
  MuonFunction muon;
  ApplyFunction apply;
  ProductFunction product;
};

// The best vector target of this machine, chosen once; LIBZERO_KERNELS=NAME in the environment
// forces one (an unknown name: throws INVALID_ARGUMENT listing the known).
const KernelTable& host_kernels();
// The plain version: the oracle.
const KernelTable& scalar_kernels();

// Muon's orthogonalisation of a row-major matrix, in place (Jordan et al. 2024): X is taken
// transposed where rows > cols; X = X / (norm of X + 1e-7); five times
//   A = X X^T,  B = b A + c A A,  X = a X + B X      (a, b, c) = (3.4445, -4.7750, 2.0315)
// in fp32 by three products of the table, so the same bits on every target; the norm is the exact
// one, rounded.  A matrix with a non-finite value becomes all NaN.  The
// factor sqrt(max(1, rows / cols)) on the result is the caller's.
void newton_schulz(float* x, uint64_t rows, uint64_t cols, float* workspace);
// Floats of workspace that it needs.
uint64_t newton_schulz_workspace(uint64_t rows, uint64_t cols);
// The same by a table of choice.
void newton_schulz_by(const KernelTable& table, float* x, uint64_t rows, uint64_t cols,
                      float* workspace);

// Every target this machine can run, the scalar one first; for tests.
int32_t host_kernel_table_count();
const KernelTable& host_kernel_table(int32_t index);

} // namespace zero::kernels

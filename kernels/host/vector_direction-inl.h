// The first halves of LAMB and Muon: moments updated, the direction written, no parameter touched.
// SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_DIRECTION) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_DIRECTION
#undef LIBZERO_VECTOR_DIRECTION
#else
#define LIBZERO_VECTOR_DIRECTION
#endif

#include "kernels/host/vector_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

template <bool epsilon_inside_sqrt>
struct LambRule {
  static constexpr int kStates = 2;
  static constexpr bool kReadsMaster = true;
  using Constants = LambConstants;

  explicit HWY_INLINE LambRule(const LambConstants& c)
      : grad_scale(hn::Set(kFloats, c.grad_scale)),
        beta1(hn::Set(kFloats, c.beta1)),
        one_minus_beta1(hn::Set(kFloats, c.one_minus_beta1)),
        beta2(hn::Set(kFloats, c.beta2)),
        one_minus_beta2(hn::Set(kFloats, c.one_minus_beta2)),
        epsilon(hn::Set(kFloats, c.epsilon)),
        weight_decay(hn::Set(kFloats, c.weight_decay)) {}

  HWY_INLINE Vector step(Vector p, Vector g, float* state0, float* state1) const {
    g = hn::Mul(g, grad_scale);
    const Vector m = hn::MulAdd(beta1, Fp32::load(state0), hn::Mul(one_minus_beta1, g));
    const Vector v = hn::MulAdd(beta2, Fp32::load(state1), hn::Mul(one_minus_beta2, hn::Mul(g, g)));
    const Vector d =
        epsilon_inside_sqrt ? hn::Sqrt(hn::Add(v, epsilon)) : hn::Add(hn::Sqrt(v), epsilon);
    Fp32::store(m, state0);
    Fp32::store(v, state1);
    return hn::MulAdd(weight_decay, p, hn::Div(m, d));
  }

  Vector grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
};

struct MuonRule {
  static constexpr int kStates = 1;
  static constexpr bool kReadsMaster = false;
  using Constants = MuonConstants;

  explicit HWY_INLINE MuonRule(const MuonConstants& c)
      : grad_scale(hn::Set(kFloats, c.grad_scale)),
        momentum(hn::Set(kFloats, c.momentum)),
        one_minus_momentum(hn::Set(kFloats, c.one_minus_momentum)) {}

  HWY_INLINE Vector step(Vector, Vector g, float* state0, float*) const {
    g = hn::Mul(one_minus_momentum, hn::Mul(g, grad_scale));
    const Vector m = hn::MulAdd(momentum, Fp32::load(state0), g);
    Fp32::store(m, state0);
    return hn::MulAdd(momentum, m, g);
  }

  Vector grad_scale, momentum, one_minus_momentum;
};

template <typename Rule, typename Grad>
HWY_NOINLINE void direct(const UpdateStreams& s, const typename Rule::Constants& constants,
                         float* direction) {
  const Rule rule(constants);
  const float* const master = s.master;
  const auto* const grad = static_cast<const typename Grad::T*>(s.grad);
  float* const state0 = s.state[0];
  float* const state1 = s.state[1];
  const uint64_t whole = s.count - s.count % kLanes;
  for (uint64_t i = 0; i < whole; i += kLanes) {
    const Vector p = Rule::kReadsMaster ? Fp32::load(master + i) : hn::Zero(kFloats);
    Fp32::store(
        rule.step(p, Grad::load(grad + i), state0 + i, Rule::kStates > 1 ? state1 + i : nullptr),
        direction + i);
  }
  const uint64_t rest = s.count - whole;
  if (rest == 0) return;
  Tail<typename Grad::T> g(grad + whole, rest);
  Tail<float> p, a(state0 + whole, rest), b, out;
  if (Rule::kReadsMaster) std::memcpy(p.values, master + whole, rest * sizeof(float));
  if (Rule::kStates > 1) std::memcpy(b.values, state1 + whole, rest * sizeof(float));
  UpdateStreams tail = s;
  tail.master = p.values;
  tail.grad = g.values;
  tail.state[0] = a.values;
  tail.state[1] = b.values;
  tail.count = kLanes;
  direct<Rule, Grad>(tail, constants, out.values);
  out.copy_to(direction + whole, rest);
  a.copy_to(state0 + whole, rest);
  if (Rule::kStates > 1) b.copy_to(state1 + whole, rest);
}

template <typename Rule>
void direct_grad(const UpdateStreams& s, const typename Rule::Constants& constants,
                 float* direction) {
  switch (s.grad_dtype) {
    case ZERO_DTYPE_FP16:
      return direct<Rule, Fp16>(s, constants, direction);
    case ZERO_DTYPE_BF16:
      return direct<Rule, Bf16>(s, constants, direction);
    default:
      return direct<Rule, Fp32>(s, constants, direction);
  }
}

HWY_NOINLINE void lamb(const UpdateStreams& s, const LambConstants& constants, float* direction) {
  if (constants.epsilon_inside_sqrt) return direct_grad<LambRule<true>>(s, constants, direction);
  return direct_grad<LambRule<false>>(s, constants, direction);
}

HWY_NOINLINE void muon(const UpdateStreams& s, const MuonConstants& constants, float* direction) {
  return direct_grad<MuonRule>(s, constants, direction);
}

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

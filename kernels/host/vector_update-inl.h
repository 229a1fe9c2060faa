// The fused optimizer passes: one read and one write of every stream.
// SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_UPDATE) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_UPDATE
#undef LIBZERO_VECTOR_UPDATE
#else
#define LIBZERO_VECTOR_UPDATE
#endif

#include <hwy/cache_control.h>

#include <type_traits>

#include "kernels/host/vector_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

// "No model copy": the master is the parameter.
struct NoModel {
  using T = uint8_t;
};

// A rule holds the constants of one optimizer as vectors; step() is its formula on one vector.
template <bool decoupled>
struct AdamRule {
  static constexpr int kStates = 2;
  using Constants = AdamConstants;

  explicit HWY_INLINE AdamRule(const AdamConstants& c)
      : grad_scale(hn::Set(kFloats, c.grad_scale)),
        beta1(hn::Set(kFloats, c.beta1)),
        one_minus_beta1(hn::Set(kFloats, c.one_minus_beta1)),
        beta2(hn::Set(kFloats, c.beta2)),
        one_minus_beta2(hn::Set(kFloats, c.one_minus_beta2)),
        epsilon(hn::Set(kFloats, c.epsilon)),
        step_size(hn::Set(kFloats, c.step_size)),
        inverse_root(hn::Set(kFloats, c.inverse_root_correction2)),
        decay(hn::Set(kFloats, decoupled ? c.decay_factor : c.weight_decay)) {}

  HWY_INLINE Vector step(Vector p, Vector g, float* state0, float* state1) const {
    g = hn::Mul(g, grad_scale);
    if constexpr (!decoupled) g = hn::MulAdd(decay, p, g);
    const Vector m = hn::MulAdd(beta1, Fp32::load(state0), hn::Mul(one_minus_beta1, g));
    const Vector v = hn::MulAdd(beta2, Fp32::load(state1), hn::Mul(one_minus_beta2, hn::Mul(g, g)));
    const Vector d = hn::MulAdd(hn::Sqrt(v), inverse_root, epsilon);
    if constexpr (decoupled) p = hn::Mul(p, decay);
    Fp32::store(m, state0);
    Fp32::store(v, state1);
    return hn::NegMulAdd(step_size, hn::Div(m, d), p);
  }

  Vector grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  Vector epsilon, step_size, inverse_root, decay;
};

template <bool has_momentum>
struct SgdRule {
  static constexpr int kStates = has_momentum ? 1 : 0;
  using Constants = SgdConstants;

  explicit HWY_INLINE SgdRule(const SgdConstants& c)
      : grad_scale(hn::Set(kFloats, c.grad_scale)),
        lr(hn::Set(kFloats, c.lr)),
        momentum(hn::Set(kFloats, c.momentum)),
        one_minus_dampening(hn::Set(kFloats, c.one_minus_dampening)),
        weight_decay(hn::Set(kFloats, c.weight_decay)),
        decays(c.weight_decay != 0),
        nesterov(c.nesterov),
        first(c.first) {}

  HWY_INLINE Vector step(Vector p, Vector g, float* state0, float*) const {
    g = hn::Mul(g, grad_scale);
    if (decays) g = hn::MulAdd(weight_decay, p, g);
    if constexpr (has_momentum) {
      const Vector b =
          first ? g : hn::MulAdd(momentum, Fp32::load(state0), hn::Mul(one_minus_dampening, g));
      Fp32::store(b, state0);
      g = nesterov ? hn::MulAdd(momentum, b, g) : b;
    }
    return hn::NegMulAdd(lr, g, p);
  }

  Vector grad_scale, lr, momentum, one_minus_dampening, weight_decay;
  bool decays, nesterov, first;
};

struct AdagradRule {
  static constexpr int kStates = 1;
  using Constants = AdagradConstants;

  explicit HWY_INLINE AdagradRule(const AdagradConstants& c)
      : grad_scale(hn::Set(kFloats, c.grad_scale)),
        lr(hn::Set(kFloats, c.lr)),
        epsilon(hn::Set(kFloats, c.epsilon)),
        weight_decay(hn::Set(kFloats, c.weight_decay)) {}

  HWY_INLINE Vector step(Vector p, Vector g, float* state0, float*) const {
    g = hn::MulAdd(weight_decay, p, hn::Mul(g, grad_scale));
    const Vector sum = hn::MulAdd(g, g, Fp32::load(state0));
    Fp32::store(sum, state0);
    return hn::NegMulAdd(lr, hn::Div(g, hn::Add(hn::Sqrt(sum), epsilon)), p);
  }

  Vector grad_scale, lr, epsilon, weight_decay;
};

struct LionRule {
  static constexpr int kStates = 1;
  using Constants = LionConstants;

  explicit HWY_INLINE LionRule(const LionConstants& c)
      : grad_scale(hn::Set(kFloats, c.grad_scale)),
        beta1(hn::Set(kFloats, c.beta1)),
        one_minus_beta1(hn::Set(kFloats, c.one_minus_beta1)),
        beta2(hn::Set(kFloats, c.beta2)),
        one_minus_beta2(hn::Set(kFloats, c.one_minus_beta2)),
        lr(hn::Set(kFloats, c.lr)),
        decay(hn::Set(kFloats, c.decay_factor)) {}

  HWY_INLINE Vector step(Vector p, Vector g, float* state0, float*) const {
    const Vector m = Fp32::load(state0);
    g = hn::Mul(g, grad_scale);
    const Vector mixed = hn::MulAdd(beta1, m, hn::Mul(one_minus_beta1, g));
    Fp32::store(hn::MulAdd(beta2, m, hn::Mul(one_minus_beta2, g)), state0);
    // The sign of +-0 is +0; that of a NaN is a NaN.
    const Vector one = hn::CopySign(hn::Set(kFloats, 1.0f), mixed);
    const Vector sign = hn::IfThenZeroElse(hn::Eq(mixed, hn::Zero(kFloats)), one);
    const Vector number = hn::IfThenElse(hn::IsNaN(mixed), mixed, sign);
    return hn::Sub(hn::Mul(p, decay), hn::Mul(lr, number));
  }

  Vector grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, lr, decay;
};

// Its gradient is the direction.
struct ApplyRule {
  static constexpr int kStates = 0;
  using Constants = ApplyConstants;

  explicit HWY_INLINE ApplyRule(const ApplyConstants& c)
      : size(hn::Set(kFloats, c.step)), decay(hn::Set(kFloats, c.decay_factor)) {}

  HWY_INLINE Vector step(Vector p, Vector direction, float*, float*) const {
    return hn::NegMulAdd(size, direction, hn::Mul(p, decay));
  }

  Vector size, decay;
};

template <typename Rule, typename Grad, typename Model>
HWY_NOINLINE void update(const UpdateStreams& s, const typename Rule::Constants& constants) {
  constexpr bool has_model = !std::is_same_v<Model, NoModel>;
  const Rule rule(constants);
  float* const master = s.master;
  auto* const model = static_cast<typename Model::T*>(s.model);
  const auto* const grad = static_cast<const typename Grad::T*>(s.grad);
  float* const state0 = s.state[0];
  float* const state1 = s.state[1];
  const bool streams = has_model && worth_streaming(model, s.count * sizeof(typename Model::T));
  const uint64_t whole = s.count - s.count % kLanes;
  const auto step = [&](uint64_t i) HWY_ATTR {
    const Vector p = rule.step(Fp32::load(master + i), Grad::load(grad + i),
                               Rule::kStates > 0 ? state0 + i : nullptr,
                               Rule::kStates > 1 ? state1 + i : nullptr);
    Fp32::store(p, master + i);
    return p;
  };
  uint64_t i = 0;
  for (; i + 2 * kLanes <= whole; i += 2 * kLanes) {
    const Vector low = step(i);
    const Vector high = step(i + kLanes);
    if constexpr (has_model) {
      if (streams) {
        Model::stream_pair(low, high, model + i);
      } else {
        Model::store_pair(low, high, model + i);
      }
    }
  }
  if (i < whole) {
    const Vector p = step(i);
    if constexpr (has_model) Model::store(Model::pack(p), model + i);
  }
  if (streams) hwy::FlushStream();
  const uint64_t rest = s.count - whole;
  if (rest == 0) return;
  Tail<float> p(master + whole, rest);
  Tail<typename Grad::T> g(grad + whole, rest);
  Tail<typename Model::T> q;
  Tail<float> a, b;
  if (Rule::kStates > 0) std::memcpy(a.values, state0 + whole, rest * sizeof(float));
  if (Rule::kStates > 1) std::memcpy(b.values, state1 + whole, rest * sizeof(float));
  UpdateStreams tail = s;
  tail.master = p.values;
  tail.model = q.values;
  tail.grad = g.values;
  tail.state[0] = a.values;
  tail.state[1] = b.values;
  tail.count = kLanes;
  update<Rule, Grad, Model>(tail, constants);
  p.copy_to(master + whole, rest);
  if (has_model) q.copy_to(model + whole, rest);
  if (Rule::kStates > 0) a.copy_to(state0 + whole, rest);
  if (Rule::kStates > 1) b.copy_to(state1 + whole, rest);
}

template <typename Rule, typename Grad>
void update_model(const UpdateStreams& s, const typename Rule::Constants& constants) {
  if (s.model == nullptr) return update<Rule, Grad, NoModel>(s, constants);
  switch (s.model_dtype) {
    case ZERO_DTYPE_FP16:
      return update<Rule, Grad, Fp16>(s, constants);
    case ZERO_DTYPE_BF16:
      return update<Rule, Grad, Bf16>(s, constants);
    default:
      return update<Rule, Grad, Fp32>(s, constants);
  }
}

template <typename Rule>
void update_grad(const UpdateStreams& s, const typename Rule::Constants& constants) {
  switch (s.grad_dtype) {
    case ZERO_DTYPE_FP16:
      return update_model<Rule, Fp16>(s, constants);
    case ZERO_DTYPE_BF16:
      return update_model<Rule, Bf16>(s, constants);
    default:
      return update_model<Rule, Fp32>(s, constants);
  }
}

HWY_NOINLINE void adam(const UpdateStreams& s, const AdamConstants& constants) {
  if (constants.decoupled) return update_grad<AdamRule<true>>(s, constants);
  return update_grad<AdamRule<false>>(s, constants);
}

HWY_NOINLINE void sgd(const UpdateStreams& s, const SgdConstants& constants) {
  if (constants.momentum != 0) return update_grad<SgdRule<true>>(s, constants);
  return update_grad<SgdRule<false>>(s, constants);
}

HWY_NOINLINE void adagrad(const UpdateStreams& s, const AdagradConstants& constants) {
  return update_grad<AdagradRule>(s, constants);
}

HWY_NOINLINE void lion(const UpdateStreams& s, const LionConstants& constants) {
  return update_grad<LionRule>(s, constants);
}

HWY_NOINLINE void apply(const UpdateStreams& s, const ApplyConstants& constants,
                        const float* direction) {
  UpdateStreams streams = s;
  streams.grad = direction;
  return update_model<ApplyRule, Fp32>(streams, constants);
}

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

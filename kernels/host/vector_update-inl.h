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
  static HWY_INLINE void store(Vector, uint8_t*) {}
  static HWY_INLINE void stream(Vector, uint8_t*) {}
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

template <typename Rule, typename Grad, typename Model, bool streams>
HWY_INLINE void update_one(const Rule& rule, float* master, typename Model::T* model,
                           const typename Grad::T* grad, float* state0, float* state1) {
  const Vector p = rule.step(Fp32::load(master), Grad::load(grad), state0, state1);
  Fp32::store(p, master);
  if constexpr (streams) {
    Model::stream(p, model);
  } else {
    Model::store(p, model);
  }
}

// streams: the model copy goes past the caches, two vectors together, so that 16-bit ones fill a
// line.
template <typename Rule, typename Grad, typename Model, bool streams>
HWY_NOINLINE void update(const UpdateStreams& s, const typename Rule::Constants& constants) {
  constexpr bool has_model = !std::is_same_v<Model, NoModel>;
  constexpr uint64_t kStep = streams ? 2 * kLanes : kLanes;
  const Rule rule(constants);
  float* const master = s.master;
  auto* const model = static_cast<typename Model::T*>(s.model);
  const auto* const grad = static_cast<const typename Grad::T*>(s.grad);
  float* const state0 = s.state[0];
  float* const state1 = s.state[1];
  const uint64_t whole = s.count - s.count % kStep;
  for (uint64_t i = 0; i < whole; i += kStep) {
    for (uint64_t k = i; k < i + kStep; k += kLanes) {
      update_one<Rule, Grad, Model, streams>(rule, master + k, has_model ? model + k : nullptr,
                                             grad + k, Rule::kStates > 0 ? state0 + k : nullptr,
                                             Rule::kStates > 1 ? state1 + k : nullptr);
    }
  }
  if (streams) hwy::FlushStream();
  for (uint64_t i = whole; i < s.count; i += kLanes) {
    const uint64_t rest = s.count - i < kLanes ? s.count - i : kLanes;
    Tail<float> p(master + i, rest);
    const Tail<typename Grad::T> g(grad + i, rest);
    Tail<float> a, b;
    Tail<typename Model::T> q;
    if (Rule::kStates > 0) std::memcpy(a.values, state0 + i, rest * sizeof(float));
    if (Rule::kStates > 1) std::memcpy(b.values, state1 + i, rest * sizeof(float));
    update_one<Rule, Grad, Model, false>(rule, p.values, q.values, g.values, a.values, b.values);
    p.copy_to(master + i, rest);
    if (has_model) q.copy_to(model + i, rest);
    if (Rule::kStates > 0) a.copy_to(state0 + i, rest);
    if (Rule::kStates > 1) b.copy_to(state1 + i, rest);
  }
}

template <typename Rule, typename Grad, typename Model>
HWY_INLINE void update_stream(const UpdateStreams& s, const typename Rule::Constants& constants) {
  if (worth_streaming(s.model, s.count * sizeof(typename Model::T))) {
    return update<Rule, Grad, Model, true>(s, constants);
  }
  return update<Rule, Grad, Model, false>(s, constants);
}

template <typename Rule, typename Grad>
void update_model(const UpdateStreams& s, const typename Rule::Constants& constants) {
  if (s.model == nullptr) return update<Rule, Grad, NoModel, false>(s, constants);
  switch (s.model_dtype) {
    case ZERO_DTYPE_FP16:
      return update_stream<Rule, Grad, Fp16>(s, constants);
    case ZERO_DTYPE_BF16:
      return update_stream<Rule, Grad, Bf16>(s, constants);
    default:
      return update_stream<Rule, Grad, Fp32>(s, constants);
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

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

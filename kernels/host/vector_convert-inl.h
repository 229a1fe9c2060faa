// Casts, sums and scaled copies between the three float dtypes.
// SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_CONVERT) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_CONVERT
#undef LIBZERO_VECTOR_CONVERT
#else
#define LIBZERO_VECTOR_CONVERT
#endif

#include "kernels/host/vector_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

struct Cast {
  static constexpr bool kReadsTarget = false;
  HWY_INLINE Vector operator()(Vector from, Vector) const { return from; }
};
struct Sum {
  static constexpr bool kReadsTarget = true;
  HWY_INLINE Vector operator()(Vector from, Vector to) const { return hn::Add(to, from); }
};
struct Scaled {
  static constexpr bool kReadsTarget = false;
  Vector factor;
  HWY_INLINE Vector operator()(Vector from, Vector) const { return hn::Mul(from, factor); }
};

template <typename From, typename To, typename Operation>
HWY_NOINLINE void convert(const Operation& operation, const void* source, void* target,
                          uint64_t count) {
  const auto* const src = static_cast<const typename From::T*>(source);
  auto* const dst = static_cast<typename To::T*>(target);
  const uint64_t whole = count - count % kLanes;
  const auto result = [&](uint64_t i) HWY_ATTR {
    const Vector old = Operation::kReadsTarget ? To::load(dst + i) : hn::Zero(kFloats);
    return operation(From::load(src + i), old);
  };
  uint64_t i = 0;
  for (; i + 2 * kLanes <= whole; i += 2 * kLanes) {
    const Vector low = result(i), high = result(i + kLanes);
    To::store_pair(low, high, dst + i);
  }
  if (i < whole) To::store(To::pack(result(i)), dst + i);
  const uint64_t rest = count - whole;
  if (rest == 0) return;
  const Tail<typename From::T> from(src + whole, rest);
  Tail<typename To::T> to(dst + whole, rest);
  convert<From, To>(operation, from.values, to.values, kLanes);
  to.copy_to(dst + whole, rest);
}

template <typename From, typename Operation>
void convert_to(const Operation& operation, const void* src, void* dst, zero_dtype dst_dtype,
                uint64_t count) {
  switch (dst_dtype) {
    case ZERO_DTYPE_FP16:
      return convert<From, Fp16>(operation, src, dst, count);
    case ZERO_DTYPE_BF16:
      return convert<From, Bf16>(operation, src, dst, count);
    default:
      return convert<From, Fp32>(operation, src, dst, count);
  }
}

template <typename Operation>
void convert_from(const Operation& operation, const void* src, zero_dtype src_dtype, void* dst,
                  zero_dtype dst_dtype, uint64_t count) {
  switch (src_dtype) {
    case ZERO_DTYPE_FP16:
      return convert_to<Fp16>(operation, src, dst, dst_dtype, count);
    case ZERO_DTYPE_BF16:
      return convert_to<Bf16>(operation, src, dst, dst_dtype, count);
    default:
      return convert_to<Fp32>(operation, src, dst, dst_dtype, count);
  }
}

HWY_NOINLINE void cast(const void* src, zero_dtype src_dtype, void* dst, zero_dtype dst_dtype,
                       uint64_t count) {
  if (src_dtype == dst_dtype) { // the C library copies at the memory's speed
    const uint64_t bytes = src_dtype == ZERO_DTYPE_FP32 ? sizeof(float) : sizeof(uint16_t);
    if (count != 0) std::memmove(dst, src, count * bytes);
    return;
  }
  convert_from(Cast(), src, src_dtype, dst, dst_dtype, count);
}

HWY_NOINLINE void add(const void* src, zero_dtype src_dtype, void* dst, zero_dtype dst_dtype,
                      uint64_t count) {
  convert_from(Sum(), src, src_dtype, dst, dst_dtype, count);
}

HWY_NOINLINE void scale(const void* src, zero_dtype src_dtype, float factor, float* dst,
                        uint64_t count) {
  convert_from(Scaled{hn::Set(kFloats, factor)}, src, src_dtype, dst, ZERO_DTYPE_FP32, count);
}

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

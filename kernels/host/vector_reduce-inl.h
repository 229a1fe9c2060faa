// The ordered reduction: every contribution read once, the result written once, its norm taken on
// the way.
// SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_REDUCE) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_REDUCE
#undef LIBZERO_VECTOR_REDUCE
#else
#define LIBZERO_VECTOR_REDUCE
#endif

#include <hwy/cache_control.h>

#include <type_traits>

#include "kernels/host/vector_norm-inl.h"
#include "kernels/host/vector_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

// How the result meets the accumulator.
enum class Write { kStore, kStream, kAdd };

template <typename From, typename To, Write write>
class Reduction {
 public:
  static constexpr bool kNarrow = std::is_same_v<From, Bf16> && std::is_same_v<To, Bf16>;

  explicit HWY_INLINE Reduction(const ReduceArguments& a)
      : contributions_(a.contributions),
        ranks_(a.ranks),
        scale_(hn::Set(kFloats, a.scale)),
        accumulate_(static_cast<typename To::T*>(a.accumulate)) {}

  HWY_INLINE void chunk(uint64_t first, Vector (&out)[kChunkVectors]) const {
    if constexpr (kNarrow) {
      for (uint64_t k = 0; k < kChunkVectors; k += 2) {
        Bf16::unpack_pair(whole_pair(first + k * kLanes), &out[k], &out[k + 1]);
      }
    } else {
      for (uint64_t k = 0; k < kChunkVectors; k++) out[k] = whole_vector(first + k * kLanes);
    }
  }

  HWY_INLINE const uint16_t* block(uint64_t first, uint16_t* copy) const {
    for (uint64_t i = 0; i < kBlock * kChunk; i += 2 * kLanes) {
      hn::Store(whole_pair(first + i), Bf16::Pairs(), copy + i);
    }
    return copy;
  }

  HWY_NOINLINE void part(uint64_t first, uint64_t count, Vector (&out)[kChunkVectors]) const {
    for (uint64_t k = 0; k < kChunkVectors; k++) {
      const uint64_t begin = k * kLanes;
      const uint64_t n = begin < count ? std::min(count - begin, kLanes) : 0;
      out[k] = n == kLanes ? whole_vector(first + begin) : part_of_vector(first + begin, n);
    }
  }

  uint64_t first_not_finite(uint64_t begin, uint64_t end) const {
    return first_not_finite_chunk(accumulate_, To::kDtype, begin, end);
  }

 private:
  HWY_INLINE const typename From::T* contribution(int32_t rank) const {
    return static_cast<const typename From::T*>(contributions_[rank]);
  }

  HWY_INLINE Vector whole_vector(uint64_t i) const {
    Vector sum = hn::Zero(kFloats);
    for (int32_t rank = 0; rank < ranks_; rank++) {
      sum = hn::Add(sum, From::load(contribution(rank) + i));
    }
    return finish(sum, accumulate_ + i);
  }

  // Two vectors of bf16 to bf16, elements of even and odd index apart: no widening, no narrowing.
  HWY_INLINE Bf16::PackedPair whole_pair(uint64_t i) const {
    Vector even = hn::Zero(kFloats), odd = even;
    for (int32_t rank = 0; rank < ranks_; rank++) {
      Vector e, o;
      Bf16::load_even_odd(contribution(rank) + i, &e, &o);
      even = hn::Add(even, e);
      odd = hn::Add(odd, o);
    }
    auto packed = Bf16::pack_even_odd(hn::Mul(even, scale_), hn::Mul(odd, scale_));
    uint16_t* const to = accumulate_ + i;
    if constexpr (write == Write::kAdd) {
      Vector e, o;
      Bf16::unpack_even_odd(packed, &even, &odd);
      Bf16::load_even_odd(to, &e, &o);
      packed = Bf16::pack_even_odd(hn::Add(e, even), hn::Add(o, odd));
    }
    if constexpr (write == Write::kStream) {
      hn::Stream(packed, Bf16::Pairs(), to);
    } else {
      hn::StoreU(packed, Bf16::Pairs(), to);
    }
    return packed;
  }

  HWY_NOINLINE Vector part_of_vector(uint64_t i, uint64_t n) const {
    if (n == 0) return hn::Zero(kFloats);
    Vector sum = hn::Zero(kFloats);
    for (int32_t rank = 0; rank < ranks_; rank++) {
      const Tail<typename From::T> tail(contribution(rank) + i, n);
      sum = hn::Add(sum, From::load(tail.values));
    }
    Tail<typename To::T> result(accumulate_ + i, n);
    finish(sum, result.values);
    result.copy_to(accumulate_ + i, n);
    // Lanes behind the end are not part of the norm, whatever scale made of their zeros.
    const Tail<typename To::T> stored(result.values, n);
    return To::load(stored.values);
  }

  // Scales, rounds, writes; the value as it is stored.
  HWY_INLINE Vector finish(Vector sum, typename To::T* to) const {
    auto packed = To::pack(hn::Mul(sum, scale_));
    if constexpr (write == Write::kAdd) {
      packed = To::pack(hn::Add(To::load(to), To::unpack(packed)));
    }
    if constexpr (write == Write::kStream) {
      To::stream(packed, to);
    } else {
      To::store(packed, to);
    }
    return To::unpack(packed);
  }

  const void* const* contributions_;
  int32_t ranks_;
  Vector scale_;
  typename To::T* accumulate_;
};

template <typename From, typename To, Write write>
HWY_NOINLINE uint64_t reduce_as(const ReduceArguments& a) {
  const Reduction<From, To, write> reduction(a);
  if (a.norm != nullptr) return sum_chunks(reduction, a.count, a.norm);
  Vector values[kChunkVectors];
  const uint64_t rest = a.count % kChunk;
  for (uint64_t i = 0; i < a.count - rest; i += kChunk) reduction.chunk(i, values);
  Vector last[kChunkVectors];
  if (rest != 0) reduction.part(a.count - rest, rest, last);
  return kNone;
}

// The lines of a contribution are in the cache already: no use in writing past it.
inline bool is_contribution(const ReduceArguments& a, uint64_t from_bytes, uint64_t to_bytes) {
  const uintptr_t to = reinterpret_cast<uintptr_t>(a.accumulate);
  for (int32_t rank = 0; rank < a.ranks; rank++) {
    const uintptr_t from = reinterpret_cast<uintptr_t>(a.contributions[rank]);
    if (from < to + a.count * to_bytes && to < from + a.count * from_bytes) return true;
  }
  return false;
}

template <typename From, typename To>
uint64_t reduce_write(const ReduceArguments& a) {
  if (a.add) return reduce_as<From, To, Write::kAdd>(a);
  constexpr uint64_t from_bytes = sizeof(typename From::T);
  constexpr uint64_t to_bytes = sizeof(typename To::T);
  if (!worth_streaming(a.accumulate, a.count * to_bytes) ||
      is_contribution(a, from_bytes, to_bytes)) {
    return reduce_as<From, To, Write::kStore>(a);
  }
  const uint64_t first_bad = reduce_as<From, To, Write::kStream>(a);
  hwy::FlushStream();
  return first_bad;
}

template <typename From>
uint64_t reduce_to(const ReduceArguments& a) {
  switch (a.accumulate_dtype) {
    case ZERO_DTYPE_FP16:
      return reduce_write<From, Fp16>(a);
    case ZERO_DTYPE_BF16:
      return reduce_write<From, Bf16>(a);
    default:
      return reduce_write<From, Fp32>(a);
  }
}

HWY_NOINLINE uint64_t reduce(const ReduceArguments& a) {
  switch (a.contribution_dtype) {
    case ZERO_DTYPE_FP16:
      return reduce_to<Fp16>(a);
    case ZERO_DTYPE_BF16:
      return reduce_to<Bf16>(a);
    default:
      return reduce_to<Fp32>(a);
  }
}

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

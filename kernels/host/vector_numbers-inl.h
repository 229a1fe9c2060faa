// Vectors of fp32 read from and written to memory of each dtype, once per Highway target.
// SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_NUMBERS) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_NUMBERS
#undef LIBZERO_VECTOR_NUMBERS
#else
#define LIBZERO_VECTOR_NUMBERS
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/host/half_numbers.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
constexpr Floats kFloats;
constexpr uint64_t kLanes = hn::MaxLanes(Floats());
static_assert(kLanes <= 16 && kChunk % (2 * kLanes) == 0);

// One struct a dtype: how a vector of it is read, written, and rounded to.  16-bit vectors are half
// as long as the fp32 ones.
struct Fp32 {
  using T = float;
  static constexpr zero_dtype kDtype = ZERO_DTYPE_FP32;
  static HWY_INLINE Vector load(const float* from) { return hn::LoadU(kFloats, from); }
  static HWY_INLINE void store(Vector value, float* to) { hn::StoreU(value, kFloats, to); }
  // to is aligned to kLanes elements.
  static HWY_INLINE void stream(Vector value, float* to) { hn::Stream(value, kFloats, to); }
  static HWY_INLINE Vector rounded(Vector value) { return value; }
};

struct Fp16 {
  using T = uint16_t;
  static constexpr zero_dtype kDtype = ZERO_DTYPE_FP16;
  using Shorts = hn::Rebind<uint16_t, Floats>;
  using Halves = hn::Rebind<hwy::float16_t, Floats>;
  static HWY_INLINE Vector widened(hn::Vec<Shorts> bits) {
    return hn::PromoteTo(kFloats, hn::BitCast(Halves(), bits));
  }
  static HWY_INLINE hn::Vec<Shorts> narrowed(Vector value) {
    return hn::BitCast(Shorts(), hn::DemoteTo(Halves(), value));
  }
  static HWY_INLINE Vector load(const uint16_t* from) { return widened(hn::LoadU(Shorts(), from)); }
  static HWY_INLINE void store(Vector value, uint16_t* to) {
    hn::StoreU(narrowed(value), Shorts(), to);
  }
  static HWY_INLINE void stream(Vector value, uint16_t* to) {
    hn::Stream(narrowed(value), Shorts(), to);
  }
  static HWY_INLINE Vector rounded(Vector value) { return widened(narrowed(value)); }
};

struct Bf16 {
  using T = uint16_t;
  static constexpr zero_dtype kDtype = ZERO_DTYPE_BF16;
  using Shorts = hn::Rebind<uint16_t, Floats>;
  using Words = hn::Rebind<uint32_t, Floats>;
  static HWY_INLINE Vector widened(hn::Vec<Shorts> bits) {
    return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(Words(), bits)));
  }
  // As bf16_from_float.  The machines' own conversions flush denormals, and Highway's cuts off.
  static HWY_INLINE hn::Vec<Words> rounded_bits(Vector value) {
    const Words words;
    const auto bits = hn::BitCast(words, value);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(words, 1u));
    const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu))));
    const auto quiet = hn::Or(high, hn::Set(words, 0x40u));
    return hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), quiet, nearest);
  }
  static HWY_INLINE hn::Vec<Shorts> narrowed(Vector value) {
    const hn::Rebind<int32_t, Floats> integers;
    return hn::DemoteTo(Shorts(), hn::BitCast(integers, rounded_bits(value)));
  }
  static HWY_INLINE Vector load(const uint16_t* from) { return widened(hn::LoadU(Shorts(), from)); }
  static HWY_INLINE void store(Vector value, uint16_t* to) {
    hn::StoreU(narrowed(value), Shorts(), to);
  }
  static HWY_INLINE void stream(Vector value, uint16_t* to) {
    hn::Stream(narrowed(value), Shorts(), to);
  }
  static HWY_INLINE Vector rounded(Vector value) {
    return hn::BitCast(kFloats, hn::ShiftLeft<16>(rounded_bits(value)));
  }
};

// Whether a result that is written and not read should go past the caches: from this size on they
// will not hold it until somebody reads it, and a store that first fetches its line costs a read
// more.
inline bool worth_streaming(const void* to, uint64_t bytes) {
  constexpr uint64_t kLarge = UINT64_C(1) << 20;
  constexpr uintptr_t kAlignment = 64;
  return bytes >= kLarge && reinterpret_cast<uintptr_t>(to) % kAlignment == 0;
}

// The end of a range, shorter than a vector, is worked on in a copy of a full vector's length, by
// the same instructions as the rest.
template <typename T>
struct Tail {
  alignas(64) T values[kLanes] = {};
  Tail() = default;
  Tail(const T* from, uint64_t count) { std::memcpy(values, from, count * sizeof(T)); }
  void copy_to(T* to, uint64_t count) const { std::memcpy(to, values, count * sizeof(T)); }
};

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

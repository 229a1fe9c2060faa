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

// One struct a dtype.  A vector of it is read by load; written in two steps, pack (which rounds)
// and store or stream, between which unpack gives the value as it will be stored.  16-bit vectors
// are half as long as the fp32 ones.  store_pair and stream_pair pack and write two vectors of
// neighbours; to, for streaming, is aligned to what they fill.
struct Fp32 {
  using T = float;
  using Packed = Vector;
  static constexpr zero_dtype kDtype = ZERO_DTYPE_FP32;
  static HWY_INLINE Vector load(const float* from) { return hn::LoadU(kFloats, from); }
  static HWY_INLINE Packed pack(Vector value) { return value; }
  static HWY_INLINE Vector unpack(Packed packed) { return packed; }
  static HWY_INLINE void store(Packed packed, float* to) { hn::StoreU(packed, kFloats, to); }
  // to is aligned to a vector.
  static HWY_INLINE void stream(Packed packed, float* to) { hn::Stream(packed, kFloats, to); }
  static HWY_INLINE void store_pair(Vector low, Vector high, float* to) {
    store(low, to);
    store(high, to + kLanes);
  }
  static HWY_INLINE void stream_pair(Vector low, Vector high, float* to) {
    stream(low, to);
    stream(high, to + kLanes);
  }
};

struct Fp16 {
  using T = uint16_t;
  using Shorts = hn::Rebind<uint16_t, Floats>;
  using Halves = hn::Rebind<hwy::float16_t, Floats>;
  using Packed = hn::Vec<Shorts>;
  static constexpr zero_dtype kDtype = ZERO_DTYPE_FP16;
  static HWY_INLINE Packed pack(Vector value) {
    return hn::BitCast(Shorts(), hn::DemoteTo(Halves(), value));
  }
  static HWY_INLINE Vector unpack(Packed packed) {
    return hn::PromoteTo(kFloats, hn::BitCast(Halves(), packed));
  }
  static HWY_INLINE Vector load(const uint16_t* from) { return unpack(hn::LoadU(Shorts(), from)); }
  static HWY_INLINE void store(Packed packed, uint16_t* to) { hn::StoreU(packed, Shorts(), to); }
  static HWY_INLINE void stream(Packed packed, uint16_t* to) { hn::Stream(packed, Shorts(), to); }
  static HWY_INLINE void store_pair(Vector low, Vector high, uint16_t* to) {
    store(pack(low), to);
    store(pack(high), to + kLanes);
  }
  static HWY_INLINE void stream_pair(Vector low, Vector high, uint16_t* to) {
    stream(pack(low), to);
    stream(pack(high), to + kLanes);
  }
};

struct Bf16 {
  using T = uint16_t;
  using Shorts = hn::Rebind<uint16_t, Floats>;
  using Words = hn::Rebind<uint32_t, Floats>;
  using Packed = hn::Vec<Words>; // the 16 bits in the low half of each
  static constexpr zero_dtype kDtype = ZERO_DTYPE_BF16;
  static HWY_INLINE Packed pack(Vector value) { return hn::ShiftRight<16>(rounded(value)); }
  // The result in the high half of each word, the low half being anything.  As bf16_from_float: the
  // machines' own conversions flush denormals, and Highway's cuts off.
  static HWY_INLINE hn::Vec<Words> rounded(Vector value) {
    const Words words;
    const auto bits = hn::BitCast(words, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
    const auto nearest = hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd);
    const auto quiet = hn::Or(bits, hn::Set(words, 0x400000u));
    return hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), quiet, nearest);
  }
  static HWY_INLINE Vector unpack(Packed packed) {
    return hn::BitCast(kFloats, hn::ShiftLeft<16>(packed));
  }
  static HWY_INLINE Vector load(const uint16_t* from) {
    return unpack(hn::PromoteTo(Words(), hn::LoadU(Shorts(), from)));
  }
  static HWY_INLINE void store(Packed packed, uint16_t* to) {
    hn::StoreU(shorts(packed), Shorts(), to);
  }
  static HWY_INLINE void stream(Packed packed, uint16_t* to) {
    hn::Stream(shorts(packed), Shorts(), to);
  }

  using Pairs = hn::Repartition<uint16_t, Floats>; // two vectors of neighbours
  using PackedPair = hn::Vec<Pairs>;
  static HWY_INLINE void store_pair(Vector low, Vector high, uint16_t* to) {
    hn::StoreU(pack_pair(low, high), Pairs(), to);
  }
  static HWY_INLINE void stream_pair(Vector low, Vector high, uint16_t* to) {
    hn::Stream(pack_pair(low, high), Pairs(), to);
  }

  // The same two vectors, but the elements of even and of odd index: an instruction each.
  static HWY_INLINE void load_even_odd(const uint16_t* from, Vector* even, Vector* odd) {
    unpack_even_odd(hn::LoadU(Pairs(), from), even, odd);
  }
  static HWY_INLINE void unpack_even_odd(PackedPair packed, Vector* even, Vector* odd) {
    const auto bits = hn::BitCast(Words(), packed);
    *even = hn::BitCast(kFloats, hn::ShiftLeft<16>(bits));
    *odd = hn::BitCast(kFloats, hn::And(bits, hn::Set(Words(), 0xffff0000u)));
  }
  static HWY_INLINE PackedPair pack_even_odd(Vector even, Vector odd) {
    const auto low = hn::ShiftRight<16>(rounded(even));
    return hn::OddEven(hn::BitCast(Pairs(), rounded(odd)), hn::BitCast(Pairs(), low));
  }
  static HWY_INLINE void unpack_pair(PackedPair packed, Vector* low, Vector* high) {
    const hn::Half<Pairs> half;
    *low = unpack(hn::PromoteTo(Words(), hn::LowerHalf(half, packed)));
    *high = unpack(hn::PromoteTo(Words(), hn::UpperHalf(half, packed)));
  }

 private:
  static HWY_INLINE PackedPair pack_pair(Vector low, Vector high) {
    return hn::ConcatOdd(Pairs(), hn::BitCast(Pairs(), rounded(high)),
                         hn::BitCast(Pairs(), rounded(low)));
  }
  static HWY_INLINE hn::Vec<Shorts> shorts(Packed packed) {
    const hn::Rebind<int32_t, Floats> integers;
    return hn::DemoteTo(Shorts(), hn::BitCast(integers, packed));
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

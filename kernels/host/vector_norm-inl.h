// Chunk sums of squares, eight chunks at once, into an exact sum (architecture section 3).
// SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_NORM) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_NORM
#undef LIBZERO_VECTOR_NORM
#else
#define LIBZERO_VECTOR_NORM
#endif

#include <algorithm>
#include <cmath>

#include "kernels/host/exact_bins.h"
#include "kernels/host/vector_numbers-inl.h"
#include "kernels/host/vector_squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Doubles>;
constexpr Doubles kDoubles;
constexpr uint64_t kDoubleLanes = hn::MaxLanes(Doubles());
static_assert(kDoubleLanes * 2 == kLanes);

constexpr uint64_t kChunkVectors = kChunk / kLanes;
constexpr uint64_t kBlock = 8; // chunks at once
constexpr uint64_t kSumVectors = kBlock / kDoubleLanes;

// The strides from 16 down to the length of a vector.
HWY_INLINE DoubleVector fold_chunk(const Vector (&values)[kChunkVectors]) {
  const hn::Half<Floats> half;
  constexpr uint64_t kSquares = kChunkVectors; // 16 sums of two squares, in vectors
  DoubleVector wide[2 * kChunkVectors];
  for (uint64_t k = 0; k < kChunkVectors; k++) {
    wide[2 * k] = hn::PromoteTo(kDoubles, hn::LowerHalf(half, values[k]));
    wide[2 * k + 1] = hn::PromoteTo(kDoubles, hn::UpperHalf(half, values[k]));
  }
  DoubleVector sums[kSquares];
  for (uint64_t k = 0; k < kSquares; k++) {
    const DoubleVector high = wide[k + kSquares];
    sums[k] = hn::MulAdd(high, high, hn::Mul(wide[k], wide[k]));
  }
  for (uint64_t n = kSquares / 2; n >= 1; n /= 2) {
    for (uint64_t k = 0; k < n; k++) sums[k] = hn::Add(sums[k], sums[k + n]);
  }
  return sums[0];
}

// The strides within a vector, for eight chunks: each step adds the halves of two vectors into one,
// so that no lane idles.  The sums come out in another order than the chunks.
HWY_INLINE void fold_block(DoubleVector (&v)[kBlock], DoubleVector (&sums)[kSumVectors]) {
  const Doubles d;
  uint64_t n = kBlock;
  if constexpr (kDoubleLanes >= 4) { // halves of a vector
    n /= 2;
    for (uint64_t j = 0; j < n; j++) {
      const DoubleVector a = v[2 * j], b = v[2 * j + 1];
      v[j] = hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    }
  }
  if constexpr (kDoubleLanes == 8) { // halves of a half
    n /= 2;
    for (uint64_t j = 0; j < n; j++) {
      const DoubleVector a = v[2 * j], b = v[2 * j + 1];
      v[j] = hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a),
                     hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
    }
  }
  for (uint64_t j = 0; j < kSumVectors; j++) {
    const DoubleVector a = v[2 * j], b = v[2 * j + 1];
    sums[j] = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  }
}

// Takes the chunks of one call in their order and brings their sums into an exact sum.  Those whose
// exponents lie in a window around the group's first ones, as nearly all do, are added as integers
// in the lanes of two vectors; the others by bins where the run is long enough to pay for emptying
// them, else straight into the limbs.
class ChunkSums {
 public:
  ChunkSums(ExactSum* sum, uint64_t count)
      : sum_(sum), by_bins_(count >= ExactBins::kWorthwhile * kChunk) {}

  // Eight folded chunks; their registers are used up.
  HWY_INLINE void add_block(DoubleVector (&folded)[kBlock]) {
    DoubleVector sums[kSumVectors];
    fold_block(folded, sums);
    if (!add_to_window(sums)) add_elsewhere(sums);
  }

  // Empties what was gathered.  Whether a chunk since the last call was not finite.
  HWY_NOINLINE bool end_group() {
    if (base_ != kNoWindow) empty_window();
    bool not_finite = not_finite_;
    not_finite_ = false;
    if (bins_used_) {
      not_finite = bins_.not_finite();
      bins_.empty(sum_);
    }
    return not_finite;
  }

 private:
  using Words = hn::RebindToUnsigned<Doubles>;
  using Integers = hn::RebindToSigned<Doubles>;
  using WordVector = hn::Vec<Words>;

  // Mantissas of 53 bits are added in two parts, shifted by up to kWindow - 1 bits; a lane takes as
  // many as a group has chunks for it.
  static constexpr int64_t kWindow = 28;
  static constexpr int kLowBits = 27;
  static_assert((ExactBins::kCapacity / kDoubleLanes) << (kLowBits + kWindow - 1 - 54) <= 1024);
  static constexpr int64_t kNoWindow = INT64_MIN / 2; // no exponent is near it

  static HWY_INLINE WordVector exponents(DoubleVector sums) {
    const WordVector mask = hn::Set(Words(), UINT64_C(0x7ff)); // a NaN may have a sign
    return hn::And(hn::ShiftRight<52>(hn::BitCast(Words(), sums)), mask);
  }
  // With its implied bit, whatever it is where the exponent is 0.
  static HWY_INLINE WordVector mantissas(DoubleVector sums) {
    const WordVector fraction = hn::Set(Words(), (UINT64_C(1) << 52) - 1);
    const WordVector implied = hn::Set(Words(), UINT64_C(1) << 52);
    return hn::Or(hn::And(hn::BitCast(Words(), sums), fraction), implied);
  }

  // False, and nothing added, where one lies outside.
  HWY_INLINE bool add_to_window(const DoubleVector (&sums)[kSumVectors]) {
    const Integers integers;
    const auto zero = hn::Zero(integers);
    const auto limit = hn::Set(integers, kWindow);
    const auto base = hn::Set(integers, base_);
    hn::Vec<Integers> shifts[kSumVectors];
    hn::Mask<Integers> empty[kSumVectors];
    auto inside = hn::Eq(zero, zero);
    for (uint64_t k = 0; k < kSumVectors; k++) {
      const auto exponent = hn::BitCast(integers, exponents(sums[k]));
      shifts[k] = hn::Sub(exponent, base);
      empty[k] = hn::Eq(exponent, zero); // a sum of 0
      const auto fits = hn::AndNot(hn::Lt(shifts[k], zero), hn::Lt(shifts[k], limit));
      inside = hn::And(inside, hn::Or(fits, empty[k]));
    }
    if (!hn::AllTrue(integers, inside)) return false;
    const WordVector low_mask = hn::Set(Words(), (UINT64_C(1) << kLowBits) - 1);
    for (uint64_t k = 0; k < kSumVectors; k++) {
      const auto is_empty = hn::RebindMask(Words(), empty[k]);
      const WordVector mantissa = hn::IfThenZeroElse(is_empty, mantissas(sums[k]));
      const WordVector shift = hn::IfThenZeroElse(is_empty, hn::BitCast(Words(), shifts[k]));
      low_ = hn::Add(low_, hn::Shl(hn::And(mantissa, low_mask), shift));
      high_ = hn::Add(high_, hn::Shl(hn::ShiftRight<kLowBits>(mantissa), shift));
    }
    return true;
  }

  // A group's first block chooses the window; any other that does not fit goes by itself.
  HWY_NOINLINE void add_elsewhere(const DoubleVector (&sums)[kSumVectors]) {
    alignas(64) uint64_t exponent[kBlock];
    alignas(64) uint64_t mantissa[kBlock];
    alignas(64) double value[kBlock];
    uint64_t highest = 0;
    for (uint64_t k = 0; k < kSumVectors; k++) {
      hn::Store(exponents(sums[k]), Words(), exponent + k * kDoubleLanes);
      hn::Store(mantissas(sums[k]), Words(), mantissa + k * kDoubleLanes);
      hn::Store(sums[k], kDoubles, value + k * kDoubleLanes);
    }
    for (const uint64_t e : exponent) highest = std::max(highest, e);
    if (base_ == kNoWindow && highest != 0 && highest < kNotFinite) {
      base_ = static_cast<int64_t>(highest) - kWindow / 2;
      if (add_to_window(sums)) return;
    }
    if (by_bins_) {
      if (!bins_used_) bins_.clear();
      bins_used_ = true;
      for (uint64_t k = 0; k < kBlock; k++) bins_.add(exponent[k], mantissa[k]);
      return;
    }
    for (uint64_t k = 0; k < kBlock; k++) {
      if (exponent[k] == kNotFinite) {
        not_finite_ = true;
      } else {
        exact_sum_add(sum_, value[k]);
      }
    }
  }

  void empty_window() {
    alignas(64) uint64_t low[kDoubleLanes], high[kDoubleLanes];
    hn::Store(low_, Words(), low);
    hn::Store(high_, Words(), high);
    for (uint64_t k = 0; k < kDoubleLanes; k++) {
      const int base = static_cast<int>(base_);
      if (low[k] != 0) exact_sum_add_units(sum_, low[k], base);
      if (high[k] != 0) exact_sum_add_units(sum_, high[k], base + kLowBits);
    }
    low_ = high_ = hn::Zero(Words());
    base_ = kNoWindow;
  }

  static constexpr uint64_t kNotFinite = 0x7ff;

  ExactSum* sum_;
  bool by_bins_;
  bool bins_used_ = false;
  bool not_finite_ = false;
  int64_t base_ = kNoWindow;
  WordVector low_ = hn::Zero(Words());
  WordVector high_ = hn::Zero(Words());
  ExactBins bins_;
};

template <typename T>
uint64_t first_not_finite_chunk(const T* values, zero_dtype dtype, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; i++) {
    if (!std::isfinite(load_float(values, dtype, i))) return i / kChunk;
  }
  return kNone;
}

template <typename Type>
class StoredValues {
 public:
  static constexpr bool kNarrow = Type::kDtype == ZERO_DTYPE_BF16;
  explicit StoredValues(const void* values)
      : values_(static_cast<const typename Type::T*>(values)) {}
  HWY_INLINE void chunk(uint64_t first, Vector (&out)[kChunkVectors]) const {
    for (uint64_t k = 0; k < kChunkVectors; k++) out[k] = Type::load(values_ + first + k * kLanes);
  }
  HWY_INLINE const typename Type::T* block(uint64_t first, typename Type::T*) const {
    return values_ + first;
  }
  HWY_NOINLINE void part(uint64_t first, uint64_t count, Vector (&out)[kChunkVectors]) const {
    typename Type::T copy[kChunk] = {};
    std::memcpy(copy, values_ + first, count * sizeof(typename Type::T));
    for (uint64_t k = 0; k < kChunkVectors; k++) out[k] = Type::load(copy + k * kLanes);
  }
  uint64_t first_not_finite(uint64_t begin, uint64_t end) const {
    return first_not_finite_chunk(values_, Type::kDtype, begin, end);
  }

 private:
  const typename Type::T* values_;
};

template <typename Source>
HWY_INLINE void add_whole_block(const Source& source, uint64_t begin, ChunkSums* sums) {
  DoubleVector folded[kBlock];
  for (uint64_t j = 0; j < kBlock; j++) {
    Vector values[kChunkVectors];
    source.chunk(begin + j * kChunk, values);
    folded[j] = fold_chunk(values);
  }
  sums->add_block(folded);
}

// The chunks, fewer than eight, behind the last block; the last of them may be a part of one.
template <typename Source>
HWY_NOINLINE void add_last_block(const Source& source, uint64_t begin, uint64_t end,
                                 ChunkSums* sums) {
  alignas(64) double stored[kBlock * kDoubleLanes] = {};
  uint64_t i = begin;
  for (uint64_t j = 0; i < end; j++) {
    const uint64_t rest = std::min(end - i, kChunk);
    Vector values[kChunkVectors];
    source.part(i, rest, values);
    hn::Store(fold_chunk(values), kDoubles, stored + j * kDoubleLanes);
    i += rest;
  }
  DoubleVector folded[kBlock];
  for (uint64_t j = 0; j < kBlock; j++) {
    folded[j] = hn::Load(kDoubles, stored + j * kDoubleLanes);
  }
  sums->add_block(folded);
}

// Source makes the values whose squares are summed, a chunk at a time:
//   chunk(first element, out)         a whole chunk
//   part(first element, count, out)   any number up to a chunk, padded with zeros; slower
//   first_not_finite(begin, end)      a chunk's number; both are elements already made
// and, where kNarrow says that they are bf16,
//   block(first element, copy)        eight chunks as they are stored: in copy or elsewhere
template <typename Source>
HWY_INLINE uint64_t sum_chunks(const Source& source, uint64_t count, ExactSum* norm) {
  constexpr uint64_t kGroup = ExactBins::kCapacity * kChunk; // elements
  constexpr uint64_t kBlockElements = kBlock * kChunk;
  ChunkSums sums(norm, count);
  [[maybe_unused]] NarrowSquares narrow(norm);
  uint64_t first_bad = kNone;
  for (uint64_t group = 0; group < count; group += kGroup) {
    const uint64_t end = std::min(count - group, kGroup) + group;
    uint64_t i = group;
    for (; end - i >= kBlockElements; i += kBlockElements) {
      if constexpr (Source::kNarrow) {
        static_assert(kBlockElements == NarrowSquares::kBlock);
        alignas(64) uint16_t copy[kBlockElements];
        const uint16_t* const values = source.block(i, copy);
        if (!narrow.add(values)) add_whole_block(StoredValues<Bf16>(values), 0, &sums);
      } else {
        add_whole_block(source, i, &sums);
      }
    }
    if constexpr (Source::kNarrow) narrow.end_group();
    if (i < end) add_last_block(source, i, end, &sums);
    if (sums.end_group() && first_bad == kNone) first_bad = source.first_not_finite(group, end);
  }
  return first_bad;
}

HWY_NOINLINE uint64_t norm(const void* values, zero_dtype dtype, uint64_t count, ExactSum* sum) {
  switch (dtype) {
    case ZERO_DTYPE_FP16:
      return sum_chunks(StoredValues<Fp16>(values), count, sum);
    case ZERO_DTYPE_BF16:
      return sum_chunks(StoredValues<Bf16>(values), count, sum);
    default:
      return sum_chunks(StoredValues<Fp32>(values), count, sum);
  }
}

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

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
HWY_INLINE void fold_block(const DoubleVector (&folded)[kBlock],
                           DoubleVector (&sums)[kSumVectors]) {
  const Doubles d;
  if constexpr (kDoubleLanes == 8) {
    DoubleVector four[4], two[2];
    for (int j = 0; j < 4; j++) {
      const DoubleVector a = folded[2 * j], b = folded[2 * j + 1];
      four[j] = hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    }
    for (int j = 0; j < 2; j++) {
      const DoubleVector a = four[2 * j], b = four[2 * j + 1];
      two[j] = hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a),
                       hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
    }
    sums[0] =
        hn::Add(hn::InterleaveLower(d, two[0], two[1]), hn::InterleaveUpper(d, two[0], two[1]));
  } else if constexpr (kDoubleLanes == 4) {
    DoubleVector two[4];
    for (int j = 0; j < 4; j++) {
      const DoubleVector a = folded[2 * j], b = folded[2 * j + 1];
      two[j] = hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    }
    for (uint64_t j = 0; j < kSumVectors; j++) {
      sums[j] = hn::Add(hn::InterleaveLower(d, two[2 * j], two[2 * j + 1]),
                        hn::InterleaveUpper(d, two[2 * j], two[2 * j + 1]));
    }
  } else {
    static_assert(kDoubleLanes == 2 || kDoubleLanes == 4 || kDoubleLanes == 8);
    for (uint64_t j = 0; j < kSumVectors; j++) {
      sums[j] = hn::Add(hn::InterleaveLower(d, folded[2 * j], folded[2 * j + 1]),
                        hn::InterleaveUpper(d, folded[2 * j], folded[2 * j + 1]));
    }
  }
}

// Where the sums of a short run go: straight into the limbs.
class LimbSink {
 public:
  explicit LimbSink(ExactSum* sum) : sum_(sum) {}
  HWY_INLINE void add(const DoubleVector (&sums)[kSumVectors]) {
    alignas(64) double values[kBlock];
    for (uint64_t k = 0; k < kSumVectors; k++) {
      hn::Store(sums[k], kDoubles, values + k * kDoubleLanes);
    }
    for (const double value : values) {
      if (std::isfinite(value)) {
        exact_sum_add(sum_, value);
      } else {
        not_finite_ = true;
      }
    }
  }
  bool end_group() { return not_finite_; }

 private:
  ExactSum* sum_;
  bool not_finite_ = false;
};

// Where those of a long run go.
class BinSink {
 public:
  explicit BinSink(ExactSum* sum) : sum_(sum) {}
  HWY_INLINE void add(const DoubleVector (&sums)[kSumVectors]) {
    const hn::RebindToUnsigned<Doubles> words;
    const auto exponent_mask = hn::Set(words, UINT64_C(0x7ff)); // a NaN may have a sign
    const auto fraction_mask = hn::Set(words, (UINT64_C(1) << 52) - 1);
    const auto implied = hn::Set(words, UINT64_C(1) << 52);
    alignas(64) uint64_t exponents[kBlock];
    alignas(64) uint64_t mantissas[kBlock];
    for (uint64_t k = 0; k < kSumVectors; k++) {
      const auto bits = hn::BitCast(words, sums[k]);
      hn::Store(hn::And(hn::ShiftRight<52>(bits), exponent_mask), words,
                exponents + k * kDoubleLanes);
      hn::Store(hn::Or(hn::And(bits, fraction_mask), implied), words, mantissas + k * kDoubleLanes);
    }
    for (uint64_t k = 0; k < kBlock; k++) bins_.add(exponents[k], mantissas[k]);
  }
  bool end_group() {
    const bool not_finite = bins_.not_finite();
    bins_.empty(sum_);
    return not_finite;
  }

 private:
  ExactSum* sum_;
  ExactBins bins_;
};

template <typename T>
uint64_t first_not_finite_chunk(const T* values, zero_dtype dtype, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; i++) {
    if (!std::isfinite(load_float(values, dtype, i))) return i / kChunk;
  }
  return kNone;
}

// Source makes the values whose squares are summed, a chunk at a time:
//   chunk(first element, out)         a whole chunk
//   part(first element, count, out)   the last one, padded with zeros
//   first_not_finite(begin, end)      a chunk's number; both are elements already made
template <typename Source, typename Sink>
HWY_INLINE uint64_t sum_chunks(const Source& source, uint64_t count, Sink& sink) {
  constexpr uint64_t kGroup = ExactBins::kCapacity * kChunk; // elements
  constexpr uint64_t kBlockElements = kBlock * kChunk;
  uint64_t first_bad = kNone;
  for (uint64_t group = 0; group < count; group += kGroup) {
    const uint64_t end = std::min(count - group, kGroup) + group;
    DoubleVector folded[kBlock], sums[kSumVectors];
    Vector values[kChunkVectors];
    uint64_t i = group;
    for (; end - i >= kBlockElements; i += kBlockElements) {
      for (uint64_t j = 0; j < kBlock; j++) {
        source.chunk(i + j * kChunk, values);
        folded[j] = fold_chunk(values);
      }
      fold_block(folded, sums);
      sink.add(sums);
    }
    if (i < end) {
      for (uint64_t j = 0; j < kBlock; j++) {
        folded[j] = hn::Zero(kDoubles);
        if (i == end) continue;
        const uint64_t rest = std::min(end - i, kChunk);
        if (rest == kChunk) {
          source.chunk(i, values);
        } else {
          source.part(i, rest, values);
        }
        folded[j] = fold_chunk(values);
        i += rest;
      }
      fold_block(folded, sums);
      sink.add(sums);
    }
    if (sink.end_group() && first_bad == kNone) first_bad = source.first_not_finite(group, end);
  }
  return first_bad;
}

template <typename Source>
HWY_INLINE uint64_t sum_source(const Source& source, uint64_t count, ExactSum* norm) {
  if (count < ExactBins::kWorthwhile * kChunk) {
    LimbSink sink(norm);
    return sum_chunks(source, count, sink);
  }
  BinSink sink(norm);
  return sum_chunks(source, count, sink);
}

template <typename Type>
class StoredValues {
 public:
  explicit StoredValues(const void* values)
      : values_(static_cast<const typename Type::T*>(values)) {}
  HWY_INLINE void chunk(uint64_t first, Vector (&out)[kChunkVectors]) const {
    for (uint64_t k = 0; k < kChunkVectors; k++) out[k] = Type::load(values_ + first + k * kLanes);
  }
  HWY_INLINE void part(uint64_t first, uint64_t count, Vector (&out)[kChunkVectors]) const {
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

HWY_NOINLINE uint64_t norm(const void* values, zero_dtype dtype, uint64_t count, ExactSum* sum) {
  switch (dtype) {
    case ZERO_DTYPE_FP16:
      return sum_source(StoredValues<Fp16>(values), count, sum);
    case ZERO_DTYPE_BF16:
      return sum_source(StoredValues<Bf16>(values), count, sum);
    default:
      return sum_source(StoredValues<Fp32>(values), count, sum);
  }
}

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

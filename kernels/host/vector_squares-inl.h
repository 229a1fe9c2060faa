// Exact sums of the squares of bf16 without chunks: as integers, where all of a block lie so near
// to each other that no chunk sum would have been rounded.
// SPDX-License-Identifier: BSD-3-Clause
#if defined(LIBZERO_VECTOR_SQUARES) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBZERO_VECTOR_SQUARES
#undef LIBZERO_VECTOR_SQUARES
#else
#define LIBZERO_VECTOR_SQUARES
#endif

#include "kernels/host/exact_bins.h"
#include "kernels/host/vector_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::kernels {
namespace HWY_NAMESPACE {

// The window begins at the bf16 exponent lowest_; its unit u is the last place of a number there.
// Numbers in it are integers of u, their squares integers of u^2.  A number becomes a double by
// moving its bits: its exponent, counted from kGap below the window, is the low end of the
// double's. Squares are added onto 2^52 u^2, where the last place of a double is u^2, so that the
// bits above those of 2^52 u^2 are the sum itself.  A zero becomes a double whose square is below
// u^2 / 2 and leaves the sum as it is.  Each lane's sum of a block is kept below 2^48: then that of
// any chunk, which has an element or more in each of at most 32 of them, is below 2^53, so exact as
// well.
class NarrowSquares {
 public:
  static constexpr uint64_t kBlock = 256; // elements

  explicit NarrowSquares(ExactSum* sum) : sum_(sum) {}

  // A block of bf16; false, and nothing added, where it does not fit.
  HWY_INLINE bool add(const uint16_t* values) {
    if (lowest_ != 0 && add_inside(values)) return true;
    return choose_window(values) && add_inside(values);
  }

  // Empties what was gathered; the next block chooses a window.
  HWY_NOINLINE void end_group() {
    if (lowest_ == 0) return;
    alignas(64) uint64_t units[kWide];
    hn::Store(units_, Words(), units);
    for (const uint64_t lane : units) {
      if (lane != 0) exact_sum_add_units(sum_, lane, 2 * lowest_ - 268 + 1075);
    }
    units_ = hn::Zero(Words());
    lowest_ = 0;
  }

 private:
  using Shorts = hn::ScalableTag<uint16_t>;
  using Words = hn::ScalableTag<uint64_t>;
  using Wide = hn::ScalableTag<double>;
  static constexpr uint64_t kWide = hn::MaxLanes(Wide());
  static constexpr uint64_t kShort = hn::MaxLanes(Shorts());
  static_assert(kBlock % kShort == 0);

  static constexpr int kFractionBits = 7;
  static constexpr int kGap = 9; // of a zero to the window, in exponents
  static constexpr int kBinades = 15;
  static constexpr int kHighest = 230; // above it, an infinity could go unseen
  static constexpr int kExponent = 0x300; // the high end of the doubles' exponents
  // That of 2^52 u^2; u is 2^(kGap + kExponent - 1023 - kFractionBits).
  static constexpr uint64_t kStart =
      static_cast<uint64_t>(52 + 2 * (kGap + kExponent - 1023 - kFractionBits) + 1023) << 52;

  // One of the four in each 64 bits, as a double.
  template <int kField>
  static HWY_INLINE hn::Vec<Wide> widened(hn::Vec<Words> bits) {
    constexpr int kAt = 52 - kFractionBits;
    const Words words;
    hn::Vec<Words> moved;
    if constexpr (16 * kField <= kAt) {
      moved = hn::ShiftLeft<kAt - 16 * kField>(bits);
    } else {
      moved = hn::ShiftRight<16 * kField - kAt>(bits);
    }
    const auto mask = hn::Set(words, UINT64_C(0x7fff) << kAt);
    const auto high = hn::Set(words, static_cast<uint64_t>(kExponent) << 52);
    return hn::BitCast(Wide(), hn::OrAnd(high, moved, mask));
  }

  HWY_INLINE bool add_inside(const uint16_t* values) {
    const Shorts shorts;
    const Words words;
    const auto magnitude = hn::Set(shorts, uint16_t{0x7fff});
    const auto one = hn::Set(shorts, uint16_t{1});
    const auto below = hn::Set(shorts, static_cast<uint16_t>((lowest_ - kGap) << kFractionBits));
    const auto start = hn::Set(words, kStart);
    auto smallest = hn::Set(shorts, uint16_t{0xffff}); // less one, so that a zero is the largest
    auto a = hn::BitCast(Wide(), start), b = a, c = a, d = a;
    for (uint64_t i = 0; i < kBlock; i += kShort) {
      const auto bits = hn::And(hn::LoadU(shorts, values + i), magnitude);
      smallest = hn::Min(smallest, hn::Sub(bits, one));
      const auto moved = hn::BitCast(words, hn::SaturatedSub(bits, below));
      const auto w = widened<0>(moved), x = widened<1>(moved), y = widened<2>(moved),
                 z = widened<3>(moved);
      a = hn::MulAdd(w, w, a);
      b = hn::MulAdd(x, x, b);
      c = hn::MulAdd(y, y, c);
      d = hn::MulAdd(z, z, d);
    }
    const auto first = hn::Sub(hn::BitCast(words, a), start);
    const auto second = hn::Sub(hn::BitCast(words, b), start);
    const auto third = hn::Sub(hn::BitCast(words, c), start);
    const auto fourth = hn::Sub(hn::BitCast(words, d), start);
    const auto any = hn::Or(hn::Or(first, second), hn::Or(third, fourth));
    const auto least = hn::Set(shorts, static_cast<uint16_t>((lowest_ << kFractionBits) - 1));
    const bool fits = hn::AllTrue(words, hn::Eq(hn::ShiftRight<48>(any), hn::Zero(words))) &&
                      hn::AllTrue(shorts, hn::Eq(hn::Max(smallest, least), smallest));
    if (!fits) return false;
    units_ = hn::Add(units_, hn::Add(hn::Add(first, second), hn::Add(third, fourth)));
    return true;
  }

  // Whether there is another window to try: one that ends with the block's largest, where that is
  // above the present one.
  HWY_NOINLINE bool choose_window(const uint16_t* values) {
    int largest = 0;
    for (uint64_t i = 0; i < kBlock; i++) largest = std::max(largest, values[i] & 0x7fff);
    const int lowest = (largest >> kFractionBits) - kBinades + 1;
    if (lowest <= lowest_ || lowest < kGap || lowest > kHighest) return false;
    end_group();
    lowest_ = lowest;
    return true;
  }

  ExactSum* sum_;
  int lowest_ = 0; // 0: no window yet
  hn::Vec<Words> units_ = hn::Zero(Words());
};

} // namespace HWY_NAMESPACE
} // namespace zero::kernels
HWY_AFTER_NAMESPACE();

#endif

// What the kernel tests share: awkward numbers, arrays between guard zones, comparison bit by bit.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/host/half_numbers.h"
#include "kernels/kernels.h"

namespace kernel_cases {

using namespace zero::kernels;

constexpr zero_dtype kDtypes[] = {ZERO_DTYPE_FP32, ZERO_DTYPE_FP16, ZERO_DTYPE_BF16};

inline uint64_t size_of(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP32 ? 4 : 2;
}

// splitmix64
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t limit) { return next() % limit; }
  // Of many magnitudes, both signs.
  float finite() {
    const int exponent = static_cast<int>(below(60)) - 40;
    const float fraction = 1.0f + static_cast<float>(below(1u << 23)) * 0x1p-23f;
    return std::ldexp(next() & 1 ? fraction : -fraction, exponent);
  }

 private:
  uint64_t state_;
};

// Zeros, denormals, the ends of the ranges, infinities, NaNs of both signs and both kinds.
constexpr uint32_t kSpecial32[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff,
                                   0x00400000, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
                                   0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffabcdef,
                                   0x3f800000, 0xbf800000, 0x33800000, 0x477fefff, 0x477ff000,
                                   0x387fc000, 0x387fe000, 0x33000000, 0x33000001, 0x7f7f8000};
constexpr uint16_t kSpecial16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x007f, 0x0080,
                                   0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0x7f7f,
                                   0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0x3c00, 0x3f80, 0xbf80};

enum class Numbers { kFinite, kAwkward };

// count elements that start `offset` elements behind an aligned address, with guards around them.
class Array {
 public:
  Array(zero_dtype dtype, uint64_t count, uint64_t offset = 0)
      : dtype_(dtype),
        count_(count),
        offset_(offset),
        bytes_(3 * kGuard + (count + offset) * size_of(dtype), kFill) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(bytes_.data());
    const uintptr_t aligned = (address + 2 * kGuard - 1) / kGuard * kGuard;
    begin_ = aligned - address + offset * size_of(dtype);
  }
  Array(const Array& other) : Array(other.dtype_, other.count_, other.offset_) {
    if (count_ != 0) std::memcpy(data(), other.data(), count_ * size_of(dtype_));
  }
  Array(Array&&) = default;
  Array& operator=(const Array&) = delete;

  zero_dtype dtype() const { return dtype_; }
  uint64_t count() const { return count_; }
  void* data() { return bytes_.data() + begin_; }
  const void* data() const { return bytes_.data() + begin_; }
  float* floats() { return static_cast<float*>(data()); }
  float at(uint64_t i) const { return load_float(data(), dtype_, i); }
  uint32_t bits(uint64_t i) const {
    if (dtype_ == ZERO_DTYPE_FP32) return bits_of(static_cast<const float*>(data())[i]);
    return static_cast<const uint16_t*>(data())[i];
  }
  void set_bits(uint64_t i, uint32_t bits) {
    if (dtype_ == ZERO_DTYPE_FP32) {
      static_cast<float*>(data())[i] = float_of(bits);
    } else {
      static_cast<uint16_t*>(data())[i] = static_cast<uint16_t>(bits);
    }
  }
  void set(uint64_t i, float value) { store_float(value, data(), dtype_, i); }

  void fill(Random& random, Numbers numbers) {
    for (uint64_t i = 0; i < count_; i++) {
      if (numbers == Numbers::kFinite || random.below(4) != 0) {
        set(i, dtype_ == ZERO_DTYPE_FP16 ? random.finite() * 0.01f : random.finite());
      } else if (random.below(2) != 0) {
        set_bits(i, static_cast<uint32_t>(random.next()));
      } else if (dtype_ == ZERO_DTYPE_FP32) {
        set_bits(i, kSpecial32[random.below(std::size(kSpecial32))]);
      } else {
        set_bits(i, kSpecial16[random.below(std::size(kSpecial16))]);
      }
    }
  }

  bool guards_hold() const {
    for (uint64_t i = 0; i < begin_; i++) {
      if (bytes_[i] != kFill) return false;
    }
    for (uint64_t i = begin_ + count_ * size_of(dtype_); i < bytes_.size(); i++) {
      if (bytes_[i] != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr uint64_t kGuard = 64;
  static constexpr uint8_t kFill = 0xa5;

  zero_dtype dtype_;
  uint64_t count_, offset_;
  std::vector<uint8_t> bytes_;
  uint64_t begin_;
};

// Values within so many binades of each other, with zeros, and now and then one that is not.  The
// first block has at most 15, so that what it shows does not hold for the others.
inline void fill_narrow(Random& random, int lowest, int binades, bool outliers, Array* values) {
  const int fraction_bits = values->dtype() == ZERO_DTYPE_BF16 ? 7 : 10;
  for (uint64_t i = 0; i < values->count(); i++) {
    const int width = i < 256 ? std::min(binades, 15) : binades;
    const uint64_t exponent =
        static_cast<uint64_t>(lowest) + random.below(static_cast<uint64_t>(width));
    const uint64_t fraction = random.below(uint64_t{1} << fraction_bits);
    uint64_t bits = exponent << fraction_bits | fraction;
    if (random.below(8) == 0) bits = 0;
    if (outliers && random.below(3000) == 0) bits = kSpecial16[random.below(std::size(kSpecial16))];
    values->set_bits(i, static_cast<uint32_t>(bits | random.below(2) << 15));
  }
}

enum class Nan { kAny, kSameBits };

// Fails naming the element unless both hold the same bits (a NaN of an arithmetic result equals any
// other: its sign and payload are nobody's contract).
inline void assert_same(const char* what, const Array& wanted, const Array& got,
                        Nan nan = Nan::kAny) {
  assert_int_equal(wanted.count(), got.count());
  for (uint64_t i = 0; i < wanted.count(); i++) {
    if (wanted.bits(i) == got.bits(i)) continue;
    if (nan == Nan::kAny && std::isnan(wanted.at(i)) && std::isnan(got.at(i))) continue;
    fail_msg("%s: element %llu of %llu is %08x (%a), expected %08x (%a)", what,
             static_cast<unsigned long long>(i), static_cast<unsigned long long>(wanted.count()),
             got.bits(i), static_cast<double>(got.at(i)), wanted.bits(i),
             static_cast<double>(wanted.at(i)));
  }
  if (!got.guards_hold()) fail_msg("%s: wrote outside its array", what);
}

// The tables of the vector targets of this machine; the scalar one is what they are held against.
inline std::vector<const KernelTable*> vector_tables() {
  std::vector<const KernelTable*> tables;
  for (int32_t i = 1; i < host_kernel_table_count(); i++) tables.push_back(&host_kernel_table(i));
  return tables;
}

} // namespace kernel_cases

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/element_cast.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/dtype.h"

namespace zero::checkpoint {
namespace {

float from_bf16(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float from_fp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 31u;
  const uint32_t fraction = half & 1023u;
  if (exponent == 0) { // a denormal: exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t quiet = exponent == 31 && fraction != 0 ? 0x400000u : 0u;
  const uint32_t wide = exponent == 31 ? 255u : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13 | quiet);
}

uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00u | (bits >> 13 & 0x1ffu));
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  // Adding a number whose last place is the result's rounds to it, ties to even.
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const float step = std::ldexp(1.0f, (exponent < -13 ? -13 : exponent) + 12);
  const float rounded = magnitude + step - step;
  if (rounded < 0x1p-14f) return static_cast<uint16_t>(sign + static_cast<int>(rounded * 0x1p24f));
  const auto kept = std::bit_cast<uint32_t>(rounded);
  return static_cast<uint16_t>(sign | ((kept >> 13) - (112u << 10)));
}

template <typename Type>
Type load(const void* from, uint64_t index) {
  Type value;
  std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(Type), sizeof(Type));
  return value;
}

template <typename Type>
void store(void* to, uint64_t index, Type value) {
  std::memcpy(static_cast<char*>(to) + index * sizeof(Type), &value, sizeof(Type));
}

template <typename Read>
bool store_all(Read read, void* to, zero_dtype dtype, uint64_t count) {
  switch (dtype) {
    case ZERO_DTYPE_FP32:
      for (uint64_t i = 0; i < count; ++i) store(to, i, static_cast<float>(read(i)));
      return true;
    case ZERO_DTYPE_FP64:
      for (uint64_t i = 0; i < count; ++i) store(to, i, static_cast<double>(read(i)));
      return true;
    case ZERO_DTYPE_BF16:
      for (uint64_t i = 0; i < count; ++i) store(to, i, to_bf16(static_cast<float>(read(i))));
      return true;
    case ZERO_DTYPE_FP16:
      for (uint64_t i = 0; i < count; ++i) store(to, i, to_fp16(static_cast<float>(read(i))));
      return true;
    default:
      return false;
  }
}

} // namespace

bool cast_elements(const void* from, zero_dtype from_dtype, void* to, zero_dtype to_dtype,
                   uint64_t count) {
  if (from_dtype == to_dtype) {
    if (count != 0) std::memcpy(to, from, count * dtype_bytes(to_dtype));
    return true;
  }
  switch (from_dtype) {
    case ZERO_DTYPE_FP32:
      return store_all([&](uint64_t i) { return load<float>(from, i); }, to, to_dtype, count);
    case ZERO_DTYPE_FP64:
      return store_all([&](uint64_t i) { return load<double>(from, i); }, to, to_dtype, count);
    case ZERO_DTYPE_BF16:
      return store_all([&](uint64_t i) { return from_bf16(load<uint16_t>(from, i)); }, to, to_dtype,
                       count);
    case ZERO_DTYPE_FP16:
      return store_all([&](uint64_t i) { return from_fp16(load<uint16_t>(from, i)); }, to, to_dtype,
                       count);
    default:
      return false;
  }
}

} // namespace zero::checkpoint

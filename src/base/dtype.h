// Element types: sizes and names.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string_view>

namespace zero {

// Bytes of one element; 0 for a number that is no dtype.
constexpr uint64_t dtype_bytes(zero_dtype dtype) {
  switch (dtype) {
    case ZERO_DTYPE_FP32:
    case ZERO_DTYPE_INT32:
      return 4;
    case ZERO_DTYPE_FP16:
    case ZERO_DTYPE_BF16:
      return 2;
    case ZERO_DTYPE_FP64:
    case ZERO_DTYPE_INT64:
      return 8;
    case ZERO_DTYPE_UINT8:
      return 1;
    default:
      return 0;
  }
}

constexpr const char* dtype_name(zero_dtype dtype) {
  switch (dtype) {
    case ZERO_DTYPE_FP32:
      return "fp32";
    case ZERO_DTYPE_FP16:
      return "fp16";
    case ZERO_DTYPE_BF16:
      return "bf16";
    case ZERO_DTYPE_FP64:
      return "fp64";
    case ZERO_DTYPE_INT64:
      return "int64";
    case ZERO_DTYPE_INT32:
      return "int32";
    case ZERO_DTYPE_UINT8:
      return "uint8";
    default:
      return "?";
  }
}

// 0 for a name that is no dtype.  "bool" is read as uint8.
constexpr zero_dtype dtype_from_name(std::string_view name) {
  if (name == "fp32") return ZERO_DTYPE_FP32;
  if (name == "fp16") return ZERO_DTYPE_FP16;
  if (name == "bf16") return ZERO_DTYPE_BF16;
  if (name == "fp64") return ZERO_DTYPE_FP64;
  if (name == "int64") return ZERO_DTYPE_INT64;
  if (name == "int32") return ZERO_DTYPE_INT32;
  if (name == "uint8" || name == "bool") return ZERO_DTYPE_UINT8;
  return 0;
}

constexpr bool is_16_bit_float(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP16 || dtype == ZERO_DTYPE_BF16;
}

} // namespace zero

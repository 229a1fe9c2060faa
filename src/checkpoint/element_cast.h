// Elements from one float type to another, one by one: to nearest even, as the kernels do.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>

namespace zero::checkpoint {

// Between fp32, fp16, bf16 and fp64, or equal types.  False where there is no such conversion.
bool cast_elements(const void* from, zero_dtype from_dtype, void* to, zero_dtype to_dtype,
                   uint64_t count);

} // namespace zero::checkpoint

// The fp32 masters of 16-bit parameters: made from values, and values from them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "engine/context.h"

namespace zero::engine {

// Elements [begin, end) of a bucket, as far as this rank owns their masters.  Nothing where the
// parameters are their own masters.
void masters_from_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end);
void values_from_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end);
// All trained buckets.
void masters_from_all_values(Context& context);

} // namespace zero::engine

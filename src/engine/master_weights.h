// The masters of 16-bit parameters, in whichever form they are kept: made from values, values from
// them, and both as fp32 for whoever asks.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "engine/context.h"

namespace zero::engine {

// Elements [begin, end) of a bucket, as far as this rank owns their masters.  Nothing where the
// parameters are their own masters.
void masters_from_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end);
// The other way, after the host program stepped fp32 masters.  Nothing where they are kept
// otherwise.
void values_from_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end);
// All trained buckets.
void masters_from_all_values(Context& context);

// The masters of [begin, end), which this rank owns, to and from fp32 at `master`; setting them
// sets the values as well.
void read_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end, float* master);
void write_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end,
                   const float* master);

} // namespace zero::engine

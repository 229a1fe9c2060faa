// Which parameters are gathered together at stage 3, which of these units are kept whole, and which
// need a large slot.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// The caller's units and one for each parameter alone; members and elements only.  unit_of gets
// every parameter's, an alias that of its root, -1 for buffers.
std::vector<GatherUnit> make_units(const ParameterTable& model, std::vector<int32_t>& unit_of);

// Stage 3: which buckets a unit has, its bytes, what is persistent or large.
void place_units(const PlanSettings& settings, const ParameterTable& model,
                 const std::vector<ParameterClass>& classes, const std::vector<Bucket>& buckets,
                 std::vector<GatherUnit>& units);

// A unit above so many elements uses a large loan slot.
uint64_t large_unit_limit(uint64_t model_elements);

} // namespace zero::plan

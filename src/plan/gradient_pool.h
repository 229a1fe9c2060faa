// How many buckets of a class may be open at once at stages 2 and 3, and how big their slots are.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// One pool a class; empty pools for frozen classes and below stage 2.
std::vector<GradientPool> make_pools(const PlanSettings& settings, const Placement& placement,
                                     const std::vector<ParameterClass>& classes,
                                     const std::vector<Bucket>& buckets, size_t units);

} // namespace zero::plan

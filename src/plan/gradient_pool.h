// How many buckets of a class may be open at once at stages 2 and 3, and how big their slots are.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// One pool a class; empty pools for frozen classes and below stage 2.  Beside "open_buckets" normal
// slots (at stage 3: units, each with all its buckets) and one large slot, there is a slot for each
// bucket that a tied parameter keeps open, as far as there are buckets.
std::vector<GradientPool> make_pools(const PlanSettings& settings, const Placement& placement,
                                     const ParameterTable& model,
                                     const std::vector<ParameterClass>& classes,
                                     const std::vector<Bucket>& buckets, size_t units);

} // namespace zero::plan

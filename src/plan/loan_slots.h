// How many units may be on loan at once at stage 3, in slots of two sizes that the plan fixes, so
// that nothing is ever fragmented.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// Slots for the units that are not persistent.  live_elements becomes the number that took effect.
LoanSlots make_loan_slots(const PlanSettings& settings, const std::vector<GatherUnit>& units,
                          uint64_t& live_elements);
// A value of live_elements, not below settings.live_elements, that gives at least so many slots of
// each kind; normal and large are at most the number of such units.
uint64_t live_elements_for(PlanSettings settings, const std::vector<GatherUnit>& units,
                           int32_t normal, int32_t large);

} // namespace zero::plan

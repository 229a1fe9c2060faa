// Hashes that ranks compare: of the model and of every setting that shapes the plan.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "plan/plan.h"

namespace zero::plan {

// XXH3-64 over a canonical text of bytes: the same on every machine, whatever structs look like.
uint64_t plan_fingerprint(const Plan& plan);

// One line for each group's and setting's part of the fingerprint, for mismatch sentences where no
// parameter differs.
std::string settings_line(const PlanSettings& settings);

// "" where two models are equal in everything that parameter_hash covers; else a sentence that
// names the first difference.
std::string first_difference(const ParameterTable& a, const ParameterTable& b);

} // namespace zero::plan

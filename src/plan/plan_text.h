// The plan for people: one line a bucket, then the memory of a rank by use.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "plan/plan.h"

namespace zero::plan {

const char* memory_use_name(zero_memory_use use);
std::string plan_text(const Plan& plan); // what Plan::text returns

} // namespace zero::plan

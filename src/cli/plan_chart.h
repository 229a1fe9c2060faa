// The rows of `zero plan` as stacked bars.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "cli/plan_report.h"

namespace zero::cli {

// An SVG of its own, for a light or a dark page.
std::string plan_svg(const PlanReport& report);

} // namespace zero::cli

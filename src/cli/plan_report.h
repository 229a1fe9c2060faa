// The rows of `zero plan` as a table and as one JSON object.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "cli/plan_estimates.h"
#include "cli/plan_rows.h"

namespace zero::cli {

struct PlanReport {
  PlannedModel model;
  PlanLimits limits;
  std::string activation_words; // how a sample's bytes were worked out; "" where not known
  std::vector<PlanRow> rows;
  std::vector<Estimate> estimates; // only where asked for
};

std::string plan_page(const PlanReport& report);
std::string plan_json(const PlanReport& report);

template <typename... Values>
std::string formatted(const char* pattern, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

} // namespace zero::cli

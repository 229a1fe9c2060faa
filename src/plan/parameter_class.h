// Sorts a model's roots into classes: parameters of one dtype, trained or frozen, in one kind of
// storage, each in backward order.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// Trained classes first, then frozen ones; among them by their first parameter in `order`.
std::vector<ParameterClass> make_classes(const PlanSettings& settings, const ParameterTable& model,
                                         const std::vector<zero_param_id>& order);

} // namespace zero::plan

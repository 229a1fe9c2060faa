// From checked settings to the inputs of the pure parts: plan and schedule.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "config/settings.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"
#include "plan/parameter_table.h"
#include "plan/plan_settings.h"

namespace zero::engine {

// What depends on who runs it, beside the settings.
struct PlanSurroundings {
  int32_t ranks = 1;
  zero_comm_kind comm = ZERO_COMM_SELF;
  zero_place place = ZERO_PLACE_HOST;
  bool own_allocator = false;
};
// Optimizers that look at all gradients before they step: the host program's own, LAMB, Muon.
bool needs_all_gradients(const config::Settings& settings);
plan::PlanSettings plan_settings(const config::Settings& settings,
                                 const PlanSurroundings& surroundings,
                                 const plan::ParameterTable& model);

optim::ScheduleParameters schedule_parameters(const config::Settings& settings);
optim::LossScaleRules loss_scale_rules(const config::Settings& settings);
// lr and momentum (beta1) of an update, the first being 1.
optim::Rates scheduled_rates(const config::Settings& settings, int64_t update);

} // namespace zero::engine

// The hyper-parameters of each group as they stand, and what an update makes of them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "config/settings.h"
#include "optim/hyper.h"
#include "optim/schedule.h"
#include "plan/parameter_table.h"

namespace zero::engine {

class GroupValueTable {
 public:
  GroupValueTable(const config::Settings& settings, const plan::ParameterTable& model);

  // New values between steps; throws INVALID_ARGUMENT: unknown group, bad value, frozen changed.
  void set(zero_group_id group, const plan::GroupValues& values);

  // rates: the schedule's for this update; lr_override: NaN, or instead of the schedule's.
  optim::HyperParameters at_update(zero_group_id group, const optim::Rates& rates,
                                   double lr_override) const;
  const std::vector<plan::Group>& groups() const { return groups_; }
  uint64_t hash() const; // of all values, for the step record

 private:
  void check_momentum(const std::string& name, const plan::GroupValues& values) const;
  config::OptimizerSettings optimizer_;
  std::vector<plan::Group> groups_;
};

} // namespace zero::engine

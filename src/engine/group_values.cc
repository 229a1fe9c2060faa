// SPDX-License-Identifier: BSD-3-Clause
#include "engine/group_values.h"

#include <xxhash.h>

#include <cmath>

#include "base/error.h"

namespace zero::engine {

GroupValueTable::GroupValueTable(const config::Settings& settings,
                                 const plan::ParameterTable& model)
    : optimizer_(settings.optimizer), groups_(model.groups()) {
  for (const plan::Group& group : groups_) check_momentum(group.name, group.values);
}

// The buffer of SGD's momentum is planned from the config alone.
void GroupValueTable::check_momentum(const std::string& name,
                                     const plan::GroupValues& values) const {
  const bool wanted = !std::isnan(values.momentum) && values.momentum != 0;
  if (wanted && optimizer_.type == config::OptimizerType::kSgd && optimizer_.momentum == 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "group \"%s\": momentum is %g, but optimizer.params.momentum is 0; expected one above 0 "
         "there, so that its memory is planned",
         name.c_str(), values.momentum);
  }
}

void GroupValueTable::set(zero_group_id group, const plan::GroupValues& values) {
  if (group < 0 || group >= static_cast<int32_t>(groups_.size())) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "group %d does not exist, expected 0 to %d", group,
         static_cast<int32_t>(groups_.size()) - 1);
  }
  plan::Group& target = groups_[static_cast<size_t>(group)];
  plan::check_group_values(target.name, values);
  check_momentum(target.name, values);
  if (values.frozen != target.values.frozen) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "group \"%s\": frozen is %d, expected %d: it cannot change",
         target.name.c_str(), values.frozen ? 1 : 0, target.values.frozen ? 1 : 0);
  }
  target.values = values;
}

optim::HyperParameters GroupValueTable::at_update(zero_group_id group, const optim::Rates& rates,
                                                  double lr_override) const {
  const plan::GroupValues& values = groups_[static_cast<size_t>(group)].values;
  const auto or_else = [](double value, double other) { return std::isnan(value) ? other : value; };
  const bool sgd = optimizer_.type == config::OptimizerType::kSgd;
  optim::HyperParameters hyper;
  hyper.lr = or_else(values.lr, or_else(lr_override, rates.lr)) * or_else(values.lr_scale, 1);
  hyper.beta1 = or_else(values.beta1, sgd ? optimizer_.beta1 : rates.momentum);
  hyper.beta2 = or_else(values.beta2, or_else(rates.beta2, optimizer_.beta2));
  hyper.epsilon = or_else(values.epsilon, optimizer_.epsilon);
  hyper.weight_decay = or_else(values.weight_decay, optimizer_.weight_decay);
  hyper.momentum = or_else(values.momentum, sgd ? rates.momentum : optimizer_.momentum);
  return hyper;
}

uint64_t GroupValueTable::hash() const {
  uint64_t hash = groups_.size();
  for (const plan::Group& group : groups_) {
    const plan::GroupValues& v = group.values;
    const double values[] = {v.lr,    v.lr_scale, v.weight_decay, v.beta1,
                             v.beta2, v.epsilon,  v.momentum};
    hash = XXH3_64bits_withSeed(values, sizeof(values), hash);
  }
  return hash;
}

} // namespace zero::engine

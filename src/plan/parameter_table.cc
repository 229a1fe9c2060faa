// SPDX-License-Identifier: BSD-3-Clause
#include "plan/parameter_table.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"

namespace zero::plan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string shape_text(const std::vector<int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

const char* role_name(zero_param_role role) {
  switch (role) {
    case ZERO_PARAM_TRAINED:
      return "trained";
    case ZERO_PARAM_FROZEN:
      return "frozen";
    default:
      return "buffer";
  }
}

uint64_t count_elements(const Parameter& parameter) {
  const char* name = parameter.name.c_str();
  bool empty = false;
  for (size_t i = 0; i < parameter.shape.size(); ++i) {
    if (parameter.shape[i] < 0) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": shape[%zu] is %lld, expected >= 0", name, i,
           static_cast<long long>(parameter.shape[i]));
    }
    empty = empty || parameter.shape[i] == 0;
  }
  if (empty) return 0; // whatever the other dimensions multiply to
  uint64_t elements = 1, bytes = 0;
  for (const int64_t extent : parameter.shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements)) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": shape %s has more elements than 64 bits count",
           name, shape_text(parameter.shape).c_str());
    }
  }
  if (__builtin_mul_overflow(elements, dtype_bytes(parameter.dtype), &bytes)) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": shape %s in %s has more bytes than 64 bits count", name,
         shape_text(parameter.shape).c_str(), dtype_name(parameter.dtype));
  }
  return elements;
}

void check_enumerators(const Parameter& parameter) {
  const char* name = parameter.name.c_str();
  if (dtype_bytes(parameter.dtype) == 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": dtype is %d, expected one of zero_dtype_values",
         name, parameter.dtype);
  }
  if (parameter.role < ZERO_PARAM_TRAINED || parameter.role > ZERO_PARAM_BUFFER) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": role is %d, expected 0 (trained), 1 (frozen) or 2 (buffer)", name,
         parameter.role);
  }
  if (parameter.storage != ZERO_STORAGE_LIBRARY && parameter.storage != ZERO_STORAGE_CALLER) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": storage is %d, expected 0 (library) or 1 (caller)", name,
         parameter.storage);
  }
  if (parameter.place < ZERO_PLACE_HOST || parameter.place > ZERO_PLACE_DEVICE) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": place is %d, expected 1 (host), 2 (pinned) or 3 (device)", name,
         parameter.place);
  }
  if (parameter.unit < -1) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": unit is %d, expected >= -1", name,
         parameter.unit);
  }
}

void check_trained_dtype(const Parameter& parameter) {
  if (parameter.role != ZERO_PARAM_TRAINED) return;
  if (parameter.dtype == ZERO_DTYPE_FP32 || is_16_bit_float(parameter.dtype)) return;
  fail(ZERO_ERR_INVALID_ARGUMENT,
       "param \"%s\": dtype is %s, but trained parameters are fp32, fp16 or bf16 (frozen ones and "
       "buffers may be of any dtype)",
       parameter.name.c_str(), dtype_name(parameter.dtype));
}

// An alias is its root under another name: what it leaves at the default it takes from there, what
// it says otherwise must be the same.
void become_alias(Parameter& alias, const Parameter& root) {
  const char* name = alias.name.c_str();
  const char* root_name = root.name.c_str();
  if (alias.shape != root.shape) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": shape %s is tied to \"%s\" of shape %s", name,
         shape_text(alias.shape).c_str(), root_name, shape_text(root.shape).c_str());
  }
  if (alias.dtype != root.dtype) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": dtype %s is tied to \"%s\" of dtype %s", name,
         dtype_name(alias.dtype), root_name, dtype_name(root.dtype));
  }
  if (alias.role != ZERO_PARAM_TRAINED && alias.role != root.role) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": a %s parameter is tied to \"%s\", which is %s",
         name, role_name(alias.role), root_name, role_name(root.role));
  }
  if (alias.group != 0 && alias.group != root.group) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": group %d differs from group %d of \"%s\", which it is tied to", name,
         alias.group, root.group, root_name);
  }
  if (alias.storage == ZERO_STORAGE_CALLER &&
      (root.storage != ZERO_STORAGE_CALLER || (alias.data != nullptr && alias.data != root.data))) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": tied to \"%s\", so its storage is that one's; expected the same memory",
         name, root_name);
  }
  alias.role = root.role;
  alias.group = root.group;
  alias.storage = root.storage;
  alias.unit = root.unit;
  alias.data = root.data;
  alias.place = root.place;
  alias.device = root.device;
}

void check_range(std::string_view group, const char* what, double value, bool below_one) {
  if (std::isnan(value)) return; // the config's
  if (value >= 0 && value < (below_one ? 1.0 : std::numeric_limits<double>::infinity())) return;
  fail(ZERO_ERR_INVALID_ARGUMENT, "group \"%.*s\": %s is %g, expected %s",
       static_cast<int>(group.size()), group.data(), what, value,
       below_one ? "0 <= value < 1" : "a finite value >= 0");
}

} // namespace

GroupValues::GroupValues()
    : lr(kNaN),
      lr_scale(1),
      weight_decay(kNaN),
      beta1(kNaN),
      beta2(kNaN),
      epsilon(kNaN),
      momentum(kNaN) {}

void check_group_values(std::string_view group_name, const GroupValues& values) {
  check_range(group_name, "lr", values.lr, false);
  check_range(group_name, "lr_scale", values.lr_scale, false);
  check_range(group_name, "weight_decay", values.weight_decay, false);
  check_range(group_name, "beta1", values.beta1, true);
  check_range(group_name, "beta2", values.beta2, true);
  check_range(group_name, "epsilon", values.epsilon, false);
  check_range(group_name, "momentum", values.momentum, true);
}

ParameterTable::ParameterTable() {
  groups_.push_back(Group{"default", GroupValues()});
}

zero_group_id ParameterTable::add_group(std::string_view name, const GroupValues& values) {
  if (name.empty()) fail(ZERO_ERR_INVALID_ARGUMENT, "group %zu: the name is empty", groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].name == name) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "group \"%s\": the name is taken by group %zu",
           groups_[i].name.c_str(), i);
    }
  }
  check_group_values(name, values);
  groups_.push_back(Group{std::string(name), values});
  if (std::isnan(values.lr_scale)) groups_.back().values.lr_scale = 1;
  return static_cast<zero_group_id>(groups_.size() - 1);
}

zero_param_id ParameterTable::add(Parameter parameter) {
  const char* name = parameter.name.c_str();
  if (parameters_.size() >= static_cast<size_t>(INT32_MAX)) {
    fail(ZERO_ERR_UNSUPPORTED, "param \"%s\": a model has at most %d parameters", name, INT32_MAX);
  }
  const auto id = static_cast<zero_param_id>(parameters_.size());
  if (parameter.name.empty()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param %d: the name is empty", id);
  }
  if (find(parameter.name) >= 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": the name is taken by param %d", name,
         find(parameter.name));
  }
  check_enumerators(parameter);
  parameter.elements = count_elements(parameter);
  if (parameter.group < 0 || static_cast<size_t>(parameter.group) >= groups_.size()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": group is %d, but the model has groups 0 to %zu",
         name, parameter.group, groups_.size() - 1);
  }
  parameter.root = id;
  if (parameter.tied_to != -1) {
    if (parameter.tied_to < 0 || parameter.tied_to >= id) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "param \"%s\": tied_to is %d, expected -1 or an earlier parameter (0 to %d)", name,
           parameter.tied_to, id - 1);
    }
    parameter.root = parameters_[static_cast<size_t>(parameter.tied_to)].root;
    become_alias(parameter, parameters_[static_cast<size_t>(parameter.root)]);
  }
  if (parameter.role == ZERO_PARAM_TRAINED &&
      groups_[static_cast<size_t>(parameter.group)].values.frozen) {
    parameter.role = ZERO_PARAM_FROZEN;
  }
  check_trained_dtype(parameter);
  if (parameter.storage == ZERO_STORAGE_CALLER && parameter.data == nullptr &&
      parameter.root == id && parameter.elements > 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": storage is the caller's, but data is NULL; expected its memory", name);
  }
  parameters_.push_back(std::move(parameter));
  try {
    by_name_.emplace(parameters_.back().name, id);
  } catch (...) { // no memory: nothing was added
    parameters_.pop_back();
    throw;
  }
  return id;
}

void ParameterTable::set_backward_order(const std::vector<zero_param_id>& order) {
  std::vector<bool> seen(parameters_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const zero_param_id id = order[i];
    if (id < 0 || static_cast<size_t>(id) >= parameters_.size()) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "backward order: entry %zu is param %d, but the model has %zu parameters", i, id,
           parameters_.size());
    }
    const Parameter& parameter = parameters_[static_cast<size_t>(id)];
    if (parameter.root != id) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "backward order: entry %zu is \"%s\", which is tied; expected \"%s\" alone", i,
           parameter.name.c_str(), parameters_[static_cast<size_t>(parameter.root)].name.c_str());
    }
    if (parameter.role == ZERO_PARAM_BUFFER) {
      fail(ZERO_ERR_INVALID_ARGUMENT,
           "backward order: entry %zu is \"%s\", a buffer, which has no gradient", i,
           parameter.name.c_str());
    }
    if (seen[static_cast<size_t>(id)]) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "backward order: entry %zu is \"%s\", which came before", i,
           parameter.name.c_str());
    }
    seen[static_cast<size_t>(id)] = true;
  }
  order_ = order;
}

std::vector<zero_param_id> ParameterTable::backward_order() const {
  std::vector<zero_param_id> order = order_;
  std::vector<bool> seen(parameters_.size());
  for (const zero_param_id id : order) seen[static_cast<size_t>(id)] = true;
  for (size_t i = parameters_.size(); i-- > 0;) {
    const Parameter& parameter = parameters_[i];
    const auto id = static_cast<zero_param_id>(i);
    if (seen[i] || parameter.root != id || parameter.role == ZERO_PARAM_BUFFER) continue;
    order.push_back(id);
  }
  return order;
}

void ParameterTable::cast(zero_dtype dtype) {
  if (dtype != ZERO_DTYPE_FP32 && !is_16_bit_float(dtype)) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "dtype is %d, expected fp32 (1), fp16 (2) or bf16 (3)", dtype);
  }
  const auto is_cast = [dtype](const Parameter& parameter) {
    const bool is_float = parameter.dtype == ZERO_DTYPE_FP32 ||
                          parameter.dtype == ZERO_DTYPE_FP64 || is_16_bit_float(parameter.dtype);
    return parameter.role != ZERO_PARAM_BUFFER && is_float && parameter.dtype != dtype;
  };
  for (const Parameter& parameter : parameters_) {
    if (!is_cast(parameter) || parameter.data == nullptr) continue;
    fail(ZERO_ERR_INVALID_ARGUMENT, "param \"%s\": its data are %s, so it cannot become %s",
         parameter.name.c_str(), dtype_name(parameter.dtype), dtype_name(dtype));
  }
  for (Parameter& parameter : parameters_) {
    if (is_cast(parameter)) parameter.dtype = dtype;
  }
}

zero_param_id ParameterTable::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? -1 : found->second;
}

} // namespace zero::plan

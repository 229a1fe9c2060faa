// Names, shapes, roles, ties, groups: the model as the host program registered it, checked entry by
// entry.  This is what a zero_model holds.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace zero::plan {

// zero_group_options without its size; NaN: the config's value.
struct GroupValues {
  bool frozen = false;
  double lr, lr_scale, weight_decay, beta1, beta2, epsilon, momentum;
  GroupValues(); // all NaN but lr_scale 1
};

struct Group {
  std::string name;
  GroupValues values;
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape; // empty for a scalar
  uint64_t elements = 1;
  zero_dtype dtype = ZERO_DTYPE_FP32;
  zero_param_role role = ZERO_PARAM_TRAINED; // FROZEN also when its group is
  zero_storage storage = ZERO_STORAGE_LIBRARY;
  zero_group_id group = 0;
  zero_param_id tied_to = -1;
  zero_param_id root = -1; // itself, or where the chain of ties ends
  int32_t unit = -1;
  zero_place place = ZERO_PLACE_HOST;
  int32_t device = -1;
  void* data = nullptr;
};

// Throws INVALID_ARGUMENT sentences that name the parameter and the value: a dtype that a role
// cannot have, fp64 trained, negative dimension, element count or byte size beyond 64 bits, name
// empty or taken, tie to a later or differently shaped or typed parameter, unknown group, unit <
// -1, CALLER storage without data, hyper-parameters that are negative, infinite or out of range.
class ParameterTable {
 public:
  ParameterTable(); // group 0, "default"

  zero_group_id add_group(std::string_view name, const GroupValues& values);
  zero_param_id add(Parameter parameter); // elements, root are worked out
  // Trained and frozen floats become of this dtype; nothing changes where one has data of another.
  void cast(zero_dtype dtype);
  // Each trained or frozen root at most once; those left out follow in reverse registration.
  void set_backward_order(const std::vector<zero_param_id>& order);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Group>& groups() const { return groups_; }
  // Every parameter that is its own root and no buffer, in backward order.
  std::vector<zero_param_id> backward_order() const;
  zero_param_id find(std::string_view name) const; // -1: none

 private:
  std::vector<Parameter> parameters_;
  std::vector<Group> groups_;
  std::vector<zero_param_id> order_;
  std::unordered_map<std::string, zero_param_id> by_name_;
};

// Throws INVALID_ARGUMENT naming group and value.
void check_group_values(std::string_view group_name, const GroupValues& values);

// From a TSV list (the form of the corpus: name shape dtype numel trainable tied_to kind), a
// safetensors file, an index (.json) or a folder of them.  Throws NOT_FOUND, IO, FILE_FORMAT with
// file, line or offset and what was expected.
ParameterTable load_parameter_table(const std::string& path);

} // namespace zero::plan

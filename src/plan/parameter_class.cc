// SPDX-License-Identifier: BSD-3-Clause
#include "plan/parameter_class.h"

#include <algorithm>

#include "base/checked.h"
#include "base/dtype.h"

namespace zero::plan {

// Storage is part of the key, so that a bucket lies either in libzero's flat memory or wholly in
// the caller's: the engine then treats all members of a bucket alike.
std::vector<ParameterClass> make_classes(const PlanSettings& settings, const ParameterTable& model,
                                         const std::vector<zero_param_id>& order) {
  std::vector<ParameterClass> classes;
  for (const zero_param_id id : order) {
    const Parameter& parameter = model.parameters()[static_cast<size_t>(id)];
    const bool trained = parameter.role == ZERO_PARAM_TRAINED;
    auto found = std::find_if(classes.begin(), classes.end(), [&](const ParameterClass& c) {
      return c.dtype == parameter.dtype && c.trained == trained && c.storage == parameter.storage;
    });
    if (found == classes.end()) {
      ParameterClass fresh;
      fresh.dtype = parameter.dtype;
      fresh.trained = trained;
      const bool narrow = is_16_bit_float(parameter.dtype);
      fresh.accumulation_dtype = narrow ? settings.accumulation_dtype : parameter.dtype;
      fresh.keeps_master = narrow && trained && settings.master_dtype == ZERO_DTYPE_FP32;
      fresh.master_is_remainder =
          fresh.keeps_master && settings.master_is_remainder && parameter.dtype == ZERO_DTYPE_BF16;
      fresh.state_dtype = narrow ? settings.state_dtype : static_cast<zero_dtype>(ZERO_DTYPE_FP32);
      fresh.storage = parameter.storage;
      fresh.group = settings.group;
      found = classes.insert(classes.end(), fresh);
    }
    found->members.push_back(id);
    found->real_elements =
        checked_add(found->real_elements, parameter.elements, "elements of a class");
  }
  std::stable_sort(
      classes.begin(), classes.end(),
      [](const ParameterClass& a, const ParameterClass& b) { return a.trained && !b.trained; });
  return classes;
}

} // namespace zero::plan

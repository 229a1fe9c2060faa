// SPDX-License-Identifier: BSD-3-Clause
#include "plan/gather_units.h"

#include <algorithm>
#include <unordered_map>

#include "base/checked.h"
#include "base/dtype.h"

namespace zero::plan {
namespace {

constexpr uint64_t kSlotAlignment = 64; // bytes

// Persistent in order of the units' numbers, as far as the total allows: a unit that no longer
// fits is not kept, a later and smaller one may be.
void choose_persistent(const PlanSettings& settings, const ParameterTable& model,
                       std::vector<GatherUnit>& units) {
  uint64_t kept_elements = 0, kept_bytes = 0;
  for (GatherUnit& unit : units) {
    const bool all_small =
        std::all_of(unit.members.begin(), unit.members.end(), [&](zero_param_id id) {
          return model.parameters()[static_cast<size_t>(id)].elements <=
                 settings.persistence_threshold_elements;
        });
    if (!all_small || unit.elements > settings.model_persistence_elements - kept_elements) continue;
    unit.persistent = true;
    unit.persistent_offset_bytes = kept_bytes;
    kept_elements += unit.elements;
    kept_bytes = checked_add(kept_bytes, round_up(unit.bytes, kSlotAlignment), "persistent bytes");
  }
}

} // namespace

uint64_t large_unit_limit(uint64_t model_elements) {
  return 4 * std::max(uint64_t{1} << 18, model_elements / 64);
}

std::vector<GatherUnit> make_units(const ParameterTable& model, std::vector<int32_t>& unit_of) {
  const std::vector<Parameter>& parameters = model.parameters();
  std::vector<GatherUnit> units;
  std::unordered_map<int32_t, int32_t> by_caller_unit;
  uint64_t all = 0; // checked once here: later sums of real elements cannot wrap
  unit_of.assign(parameters.size(), -1);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.role == ZERO_PARAM_BUFFER) continue;
    if (parameter.root != static_cast<zero_param_id>(i)) {
      unit_of[i] = unit_of[static_cast<size_t>(parameter.root)];
      continue;
    }
    auto index = static_cast<int32_t>(units.size());
    if (parameter.unit >= 0) {
      index = by_caller_unit.emplace(parameter.unit, index).first->second;
    }
    if (static_cast<size_t>(index) == units.size()) {
      units.emplace_back();
      units.back().caller_unit = parameter.unit;
    }
    GatherUnit& unit = units[static_cast<size_t>(index)];
    unit.members.push_back(static_cast<zero_param_id>(i));
    all = checked_add(all, parameter.elements, "elements of the model");
    unit.elements += parameter.elements;
    unit_of[i] = index;
  }
  return units;
}

void place_units(const PlanSettings& settings, const ParameterTable& model,
                 const std::vector<ParameterClass>& classes, const std::vector<Bucket>& buckets,
                 std::vector<GatherUnit>& units) {
  for (const Bucket& bucket : buckets) {
    GatherUnit& unit = units[static_cast<size_t>(bucket.unit)];
    const uint64_t size = dtype_bytes(classes[static_cast<size_t>(bucket.parameter_class)].dtype);
    const uint64_t start = round_up(unit.bytes, kSlotAlignment);
    unit.buckets.push_back(bucket.number);
    unit.slot_offset_bytes.push_back(start);
    unit.bytes = checked_add(start, checked_multiply(bucket.elements, size, "bytes of a bucket"),
                             "bytes of a unit");
  }
  choose_persistent(settings, model, units);
  uint64_t model_elements = 0;
  for (const GatherUnit& unit : units) model_elements += unit.elements;
  const uint64_t limit = large_unit_limit(model_elements);
  for (GatherUnit& unit : units) unit.large = !unit.persistent && unit.elements > limit;
}

} // namespace zero::plan

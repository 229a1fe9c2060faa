// SPDX-License-Identifier: BSD-3-Clause
#include "plan/gradient_pool.h"

#include <algorithm>

#include "base/checked.h"

namespace zero::plan {
namespace {

// What one kind of slot (normal or large) of a class must serve.
struct Demand {
  uint64_t buckets = 0;
  uint64_t largest_elements = 0;
  uint64_t in_one_unit = 1; // at stage 3 whole units are open: a slot for each bucket of one
  uint64_t tied = 0; // hold a tied parameter, so stay open from its first use to its last
};

Demand measure(const ParameterClass& klass, const std::vector<Bucket>& buckets, bool large,
               const std::vector<bool>& has_alias, std::vector<uint32_t>& unit_counts) {
  Demand demand;
  for (const int32_t number : klass.buckets) {
    const Bucket& bucket = buckets[static_cast<size_t>(number)];
    if (bucket.large != large) continue;
    ++demand.buckets;
    demand.largest_elements = std::max(demand.largest_elements, bucket.elements);
    demand.tied += std::any_of(
        bucket.members.begin(), bucket.members.end(),
        [&](const BucketMember& member) { return has_alias[static_cast<size_t>(member.param)]; });
    if (bucket.unit < 0) continue;
    const uint32_t count = ++unit_counts[static_cast<size_t>(bucket.unit)];
    demand.in_one_unit = std::max<uint64_t>(demand.in_one_unit, count);
  }
  for (const int32_t number : klass.buckets) {
    const Bucket& bucket = buckets[static_cast<size_t>(number)];
    if (bucket.unit >= 0) unit_counts[static_cast<size_t>(bucket.unit)] = 0;
  }
  return demand;
}

// open: how many normal buckets (units at stage 3) may be open beside the tied ones; 0: all.
int32_t slots_for(const Demand& demand, uint64_t open) {
  if (open == 0) return static_cast<int32_t>(demand.buckets);
  return static_cast<int32_t>(
      std::min(demand.buckets, std::min(open, demand.buckets) * demand.in_one_unit + demand.tied));
}

} // namespace

uint64_t GradientPool::elements() const {
  return checked_add(
      checked_multiply(normal_elements, static_cast<uint64_t>(normal_slots), "gradient pool"),
      checked_multiply(large_elements, static_cast<uint64_t>(large_slots), "gradient pool"),
      "gradient pool");
}

std::vector<GradientPool> make_pools(const PlanSettings& settings, const Placement& placement,
                                     const ParameterTable& model,
                                     const std::vector<ParameterClass>& classes,
                                     const std::vector<Bucket>& buckets, size_t units) {
  std::vector<GradientPool> pools(classes.size());
  if (!placement.gradients_sharded) return pools;
  std::vector<bool> has_alias(model.parameters().size());
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.tied_to >= 0) has_alias[static_cast<size_t>(parameter.root)] = true;
  }
  std::vector<uint32_t> unit_counts(units);
  const auto open = static_cast<uint64_t>(settings.open_buckets);
  for (size_t c = 0; c < classes.size(); ++c) {
    if (!classes[c].trained) continue;
    const Demand normal = measure(classes[c], buckets, /*large=*/false, has_alias, unit_counts);
    const Demand large = measure(classes[c], buckets, /*large=*/true, has_alias, unit_counts);
    pools[c].normal_elements = normal.largest_elements;
    pools[c].normal_slots = slots_for(normal, open);
    pools[c].large_elements = large.largest_elements;
    pools[c].large_slots = slots_for(large, open == 0 ? 0 : 1);
  }
  return pools;
}

} // namespace zero::plan

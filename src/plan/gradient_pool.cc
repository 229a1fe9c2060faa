// SPDX-License-Identifier: BSD-3-Clause
#include "plan/gradient_pool.h"

#include <algorithm>

#include "base/checked.h"

namespace zero::plan {
namespace {

// At stage 3 whole units are open, so a slot is needed for each bucket that one of them has.
uint64_t most_in_one_unit(const ParameterClass& klass, const std::vector<Bucket>& buckets,
                          std::vector<uint32_t>& counts) {
  uint32_t most = 1;
  for (const int32_t number : klass.buckets) {
    const Bucket& bucket = buckets[static_cast<size_t>(number)];
    if (bucket.unit < 0 || bucket.large) continue;
    most = std::max(most, ++counts[static_cast<size_t>(bucket.unit)]);
  }
  for (const int32_t number : klass.buckets) {
    const Bucket& bucket = buckets[static_cast<size_t>(number)];
    if (bucket.unit >= 0) counts[static_cast<size_t>(bucket.unit)] = 0;
  }
  return most;
}

} // namespace

uint64_t GradientPool::elements() const {
  return checked_add(
      checked_multiply(normal_elements, static_cast<uint64_t>(normal_slots), "gradient pool"),
      checked_multiply(large_elements, static_cast<uint64_t>(large_slots), "gradient pool"),
      "gradient pool");
}

std::vector<GradientPool> make_pools(const PlanSettings& settings, const Placement& placement,
                                     const std::vector<ParameterClass>& classes,
                                     const std::vector<Bucket>& buckets, size_t units) {
  std::vector<GradientPool> pools(classes.size());
  if (!placement.gradients_sharded) return pools;
  std::vector<uint32_t> counts(units);
  for (size_t c = 0; c < classes.size(); ++c) {
    if (!classes[c].trained) continue;
    GradientPool& pool = pools[c];
    uint64_t normal = 0, large = 0;
    for (const int32_t number : classes[c].buckets) {
      const Bucket& bucket = buckets[static_cast<size_t>(number)];
      (bucket.large ? large : normal) += 1;
      uint64_t& slot = bucket.large ? pool.large_elements : pool.normal_elements;
      slot = std::max(slot, bucket.elements);
    }
    const auto open = static_cast<uint64_t>(settings.open_buckets);
    const bool all = open == 0;
    const uint64_t wanted = all ? normal : open * most_in_one_unit(classes[c], buckets, counts);
    pool.normal_slots = static_cast<int32_t>(std::min(normal, wanted));
    pool.large_slots = static_cast<int32_t>(all ? large : std::min(large, uint64_t{1}));
  }
  return pools;
}

} // namespace zero::plan

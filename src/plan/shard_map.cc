// Element <-> bucket, rank and offset.  Everything is worked out when asked for: the plan keeps no
// table by rank, so that its size does not depend on their number.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "base/error.h"
#include "plan/plan.h"

namespace zero::plan {
namespace {

void check_rank(int32_t rank, int32_t ranks) {
  if (rank < 0 || rank >= ranks) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "rank is %d, expected 0 to %d", rank, ranks - 1);
  }
}

const Parameter& parameter_of(const ParameterTable& model, zero_param_id param) {
  if (param < 0 || static_cast<size_t>(param) >= model.parameters().size()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "param is %d, but the model has %zu parameters", param,
         model.parameters().size());
  }
  return model.parameters()[static_cast<size_t>(param)];
}

} // namespace

std::vector<Run> Plan::runs(int32_t bucket, int32_t rank) const {
  if (bucket < 0 || static_cast<size_t>(bucket) >= buckets.size()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "bucket is %d, but the plan has %zu", bucket, buckets.size());
  }
  const Bucket& b = buckets[static_cast<size_t>(bucket)];
  check_rank(rank, classes[static_cast<size_t>(b.parameter_class)].group.ranks);
  const uint64_t begin = b.shard_elements * static_cast<uint64_t>(rank);
  std::vector<Run> list;
  for_each_run(bucket, begin, begin + b.shard_elements,
               [&](const Run& run) { list.push_back(run); });
  return list;
}

zero_span Plan::shard_span(zero_param_id param, int32_t rank) const {
  const Parameter& parameter = parameter_of(model, param);
  const ParameterPlace& place = places[static_cast<size_t>(param)];
  if (place.bucket < 0) { // a buffer is whole on every rank
    check_rank(rank, settings.group.ranks);
    return zero_span{0, parameter.elements};
  }
  const Bucket& b = buckets[static_cast<size_t>(place.bucket)];
  check_rank(rank, classes[static_cast<size_t>(b.parameter_class)].group.ranks);
  const uint64_t begin = b.shard_elements * static_cast<uint64_t>(rank);
  const uint64_t member_end = place.offset + parameter.elements;
  const uint64_t first = std::clamp(begin, place.offset, member_end);
  const uint64_t last = std::clamp(begin + b.shard_elements, place.offset, member_end);
  return zero_span{first - place.offset, last - first};
}

zero_span Plan::owned_span(zero_param_id param, int32_t rank) const {
  const zero_span shard = shard_span(param, rank);
  if (placement.optimizer_sharded) return shard;
  return zero_span{0, model.parameters()[static_cast<size_t>(param)].elements};
}

} // namespace zero::plan

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/master_weights.h"

#include <algorithm>

#include "base/dtype.h"

namespace zero::engine {
namespace {

// Calls visit(master, value, count) for each run that this rank owns the masters of.
template <typename Visit>
void for_each_owned_run(Context& context, int32_t bucket, uint64_t begin, uint64_t end,
                        Visit visit) {
  const plan::Bucket& layout = context.bucket(bucket);
  const plan::Placement& placement = context.plan->placement;
  const ClassMemory& memory = context.storage->of_bucket(bucket);
  if (memory.master == nullptr) return;
  const uint64_t size = context.storage->element_bytes(bucket);
  uint64_t own_begin = 0, own_end = layout.elements, home = layout.class_offset;
  if (placement.optimizer_sharded) {
    own_begin = static_cast<uint64_t>(context.rank()) * layout.shard_elements;
    own_end = own_begin + layout.shard_elements;
    home = layout.shard_offset;
  }
  begin = std::max(begin, own_begin);
  end = std::min(end, own_end);
  if (begin >= end) return;
  context.plan->for_each_run(bucket, begin, end, [&](const plan::Run& run) {
    const uint64_t in_own = run.bucket_offset - own_begin;
    std::byte* value = nullptr;
    if (memory.params == nullptr) {
      value = static_cast<std::byte*>(context.parameter(run.param).data) + run.param_offset * size;
    } else if (placement.parameters_sharded) {
      value = memory.params + (layout.shard_offset + in_own) * size;
    } else {
      value = memory.params + (layout.class_offset + run.bucket_offset) * size;
    }
    visit(memory.master + home + in_own, value, run.count);
  });
}

zero_dtype dtype_of(const Context& context, int32_t bucket) {
  return context.plan->classes[static_cast<size_t>(context.bucket(bucket).parameter_class)].dtype;
}

} // namespace

void masters_from_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end) {
  for_each_owned_run(
      context, bucket, begin, end, [&](float* master, const std::byte* value, uint64_t count) {
        context.kernels->cast(value, dtype_of(context, bucket), master, ZERO_DTYPE_FP32, count);
      });
}

void values_from_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end) {
  for_each_owned_run(
      context, bucket, begin, end, [&](const float* master, std::byte* value, uint64_t count) {
        context.kernels->cast(master, ZERO_DTYPE_FP32, value, dtype_of(context, bucket), count);
      });
}

void masters_from_all_values(Context& context) {
  for (int32_t b = 0; b < context.plan->trained_buckets; ++b) {
    masters_from_values(context, b, 0, context.bucket(b).elements);
  }
}

} // namespace zero::engine

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/master_weights.h"

#include <algorithm>
#include <cstring>

#include "engine/host_values.h"
#include "kernels/host/blocked_update.h"

namespace zero::engine {
namespace {

// One run that this rank owns the masters of: its value, and its place in the class's home memory.
struct OwnedRun {
  uint64_t begin; // elements from the bucket's start
  uint64_t count;
  uint64_t home;
  std::byte* value;
};

template <typename Visit>
void for_each_owned_run(Context& context, int32_t bucket, uint64_t begin, uint64_t end,
                        Visit visit) {
  const plan::Bucket& layout = context.bucket(bucket);
  const plan::Placement& placement = context.plan->placement;
  const ClassMemory& memory = context.storage->of_bucket(bucket);
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
    if (memory.host_params != nullptr) {
      value = memory.host_params + (layout.shard_offset + in_own) * size;
    } else if (memory.params == nullptr) {
      value = static_cast<std::byte*>(context.parameter(run.param).data) + run.param_offset * size;
    } else if (placement.parameters_sharded) {
      value = memory.params + (layout.shard_offset + in_own) * size;
    } else {
      value = memory.params + (layout.class_offset + run.bucket_offset) * size;
    }
    visit(OwnedRun{run.bucket_offset, run.count, home + in_own, value});
  });
}

const plan::ParameterClass& class_of(const Context& context, int32_t bucket) {
  return context.plan->classes[static_cast<size_t>(context.bucket(bucket).parameter_class)];
}

} // namespace

void masters_from_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end) {
  fetch_values(context, bucket, begin, end);
  const plan::ParameterClass& klass = class_of(context, bucket);
  if (!klass.keeps_master || context.plan->settings.optimizer_present == false) return;
  const ClassMemory& memory = context.storage->of_bucket(bucket);
  for_each_owned_run(context, bucket, begin, end, [&](const OwnedRun& run) {
    if (klass.master_is_remainder) {
      // Nothing is left over.
      std::memset(memory.remainder + run.home, 0, run.count * sizeof(uint16_t));
      for (uint64_t word = run.home / 32; word < (run.home + run.count + 31) / 32; ++word) {
        memory.ties[word] = 0;
      }
      return;
    }
    context.kernels->cast(run.value, klass.dtype, memory.master + run.home, ZERO_DTYPE_FP32,
                          run.count);
  });
}

void values_from_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end) {
  const plan::ParameterClass& klass = class_of(context, bucket);
  const ClassMemory& memory = context.storage->of_bucket(bucket);
  if (memory.master == nullptr) return;
  for_each_owned_run(context, bucket, begin, end, [&](const OwnedRun& run) {
    context.kernels->cast(memory.master + run.home, ZERO_DTYPE_FP32, run.value, klass.dtype,
                          run.count);
  });
  return_values(context, bucket, begin, end);
}

void masters_from_all_values(Context& context) {
  for (int32_t b = 0; b < context.plan->trained_buckets; ++b) {
    masters_from_values(context, b, 0, context.bucket(b).elements);
  }
}

void read_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end, float* master) {
  const plan::ParameterClass& klass = class_of(context, bucket);
  const ClassMemory& memory = context.storage->of_bucket(bucket);
  for_each_owned_run(context, bucket, begin, end, [&](const OwnedRun& run) {
    float* out = master + (run.begin - begin);
    if (klass.master_is_remainder) {
      kernels::join_master(reinterpret_cast<uint16_t*>(run.value), memory.remainder + run.home,
                           memory.ties + run.home / 32, out, run.count);
    } else if (klass.keeps_master) {
      std::memcpy(out, memory.master + run.home, run.count * sizeof(float));
    } else {
      context.kernels->cast(run.value, klass.dtype, out, ZERO_DTYPE_FP32, run.count);
    }
  });
}

void write_masters(Context& context, int32_t bucket, uint64_t begin, uint64_t end,
                   const float* master) {
  const plan::ParameterClass& klass = class_of(context, bucket);
  const ClassMemory& memory = context.storage->of_bucket(bucket);
  for_each_owned_run(context, bucket, begin, end, [&](const OwnedRun& run) {
    const float* in = master + (run.begin - begin);
    if (klass.master_is_remainder) {
      kernels::split_master(in, reinterpret_cast<uint16_t*>(run.value), memory.remainder + run.home,
                            memory.ties + run.home / 32, run.count);
      return;
    }
    if (klass.keeps_master) std::memcpy(memory.master + run.home, in, run.count * sizeof(float));
    context.kernels->cast(in, ZERO_DTYPE_FP32, run.value, klass.dtype, run.count);
  });
  return_values(context, bucket, begin, end);
}

} // namespace zero::engine

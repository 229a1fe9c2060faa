// SPDX-License-Identifier: BSD-3-Clause
#include "engine/host_values.h"

#include <algorithm>

#include "base/dtype.h"

namespace zero::engine {
namespace {

// Calls visit(device's, host's, bytes) for each stretch that lies in one piece on both sides.
template <typename Visit>
void for_each_piece(Context& context, int32_t bucket, uint64_t begin, uint64_t end, Visit visit) {
  const plan::Placement& placement = context.plan->placement;
  const plan::Bucket& layout = context.bucket(bucket);
  const ClassMemory& memory = context.storage->of_bucket(bucket);
  if (memory.host_params == nullptr || memory.host_params == memory.params) return;
  const uint64_t size = context.storage->element_bytes(bucket);
  const uint64_t own = static_cast<uint64_t>(context.rank()) * layout.shard_elements;
  begin = std::max(begin, own);
  end = std::min(end, own + layout.shard_elements);
  if (begin >= end) return;
  const auto host_of = [&](uint64_t at) {
    return memory.host_params + (layout.shard_offset + at - own) * size;
  };
  if (memory.params != nullptr) {
    const uint64_t first = placement.parameters_sharded ? layout.shard_offset + begin - own
                                                        : layout.class_offset + begin;
    visit(memory.params + first * size, host_of(begin), (end - begin) * size);
    return;
  }
  context.plan->for_each_run(bucket, begin, end, [&](const plan::Run& run) {
    auto* data = static_cast<std::byte*>(context.parameter(run.param).data);
    visit(data + run.param_offset * size, host_of(run.bucket_offset), run.count * size);
  });
}

} // namespace

void fetch_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end) {
  bool any = false;
  for_each_piece(context, bucket, begin, end,
                 [&](const std::byte* on_device, std::byte* on_host, uint64_t bytes) {
                   context.device->copy(on_host, on_device, bytes);
                   any = true;
                 });
  if (any) context.device->synchronize();
}

void return_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end) {
  for_each_piece(context, bucket, begin, end,
                 [&](std::byte* on_device, const std::byte* on_host, uint64_t bytes) {
                   context.device->copy(on_device, on_host, bytes);
                 });
}

ValueReturn::ValueReturn(Context& context, bool overlap)
    : context_(context), tickets_(context.plan->buckets.size(), 0) {
  const plan::Placement& placement = context.plan->placement;
  if (!placement.optimizer_on_host || placement.parameters_on_host) return;
  stream_ = context.device->create_stream(!overlap);
}

void ValueReturn::run(void* context, uint64_t bucket, uint64_t) {
  auto& self = *static_cast<ValueReturn*>(context);
  const auto number = static_cast<int32_t>(bucket);
  try {
    return_values(self.context_, number, 0, self.context_.bucket(number).elements);
  } catch (const Error& error) { // a task does not throw
    self.context_.failure.record(error);
  }
}

void ValueReturn::send(int32_t bucket) {
  if (stream_ == nullptr) return;
  tickets_[static_cast<size_t>(bucket)] =
      stream_->submit(&ValueReturn::run, this, static_cast<uint64_t>(bucket), 0);
}

void ValueReturn::wait(int32_t bucket) {
  if (stream_ == nullptr) return;
  stream_->wait(tickets_[static_cast<size_t>(bucket)]);
  context_.failure.check();
}

void ValueReturn::wait_for_all() {
  if (stream_ == nullptr) return;
  stream_->drain();
  context_.failure.check();
}

} // namespace zero::engine

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/initial_values.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "engine/agreement.h"
#include "engine/master_weights.h"

namespace zero::engine {
namespace {

comm::CollectiveStamp stamp_of(int32_t bucket) {
  comm::CollectiveStamp stamp;
  stamp.operation = comm::Operation::kBroadcast;
  stamp.bucket = bucket;
  return stamp;
}

// Elements of a bucket from the data that the host program registered.
struct Registered {
  const Context* context;
  int32_t bucket;
};
void pack_registered(void* opaque, uint64_t begin, uint64_t count, std::byte* out) {
  const Registered& from = *static_cast<Registered*>(opaque);
  const Context& context = *from.context;
  const uint64_t size = context.storage->element_bytes(from.bucket);
  std::memset(out, 0, count * size);
  context.plan->for_each_run(from.bucket, begin, begin + count, [&](const plan::Run& run) {
    const auto* data = static_cast<const std::byte*>(context.parameter(run.param).data);
    if (data == nullptr) return;
    std::memcpy(out + (run.bucket_offset - begin) * size, data + run.param_offset * size,
                run.count * size);
  });
}

void copy_buffers(Context& context) {
  for (size_t p = 0; p < context.plan->places.size(); ++p) {
    const plan::Parameter& parameter = context.parameter(static_cast<zero_param_id>(p));
    const bool own = parameter.root == static_cast<zero_param_id>(p);
    if (parameter.role != ZERO_PARAM_BUFFER || !own || parameter.data == nullptr) continue;
    std::byte* value = context.storage->whole_value(static_cast<zero_param_id>(p));
    if (value == parameter.data) continue;
    std::memcpy(value, parameter.data, parameter.elements * dtype_bytes(parameter.dtype));
  }
}

void broadcast_buffers(Context& context, int32_t root) {
  for (size_t p = 0; p < context.plan->places.size(); ++p) {
    const plan::Parameter& parameter = context.parameter(static_cast<zero_param_id>(p));
    const bool own = parameter.root == static_cast<zero_param_id>(p);
    if (parameter.role != ZERO_PARAM_BUFFER || !own || parameter.elements == 0) continue;
    context.comm->broadcast(comm::Channel::kControl, stamp_of(static_cast<int32_t>(p)),
                            context.storage->whole_value(static_cast<zero_param_id>(p)),
                            parameter.elements * dtype_bytes(parameter.dtype), root);
  }
}

// Where this rank's bucket or shard of it lies flat; null for CALLER.
std::byte* flat_of(Context& context, int32_t bucket) {
  const plan::Bucket& layout = context.bucket(bucket);
  std::byte* params = context.storage->of_bucket(bucket).params;
  if (params == nullptr) return nullptr;
  const uint64_t start =
      context.plan->placement.parameters_sharded ? layout.shard_offset : layout.class_offset;
  return params + start * context.storage->element_bytes(bucket);
}

// The caller's own values into the flat memory of this rank, without asking anybody.
void copy_own(Context& context, int32_t bucket) {
  std::byte* flat = flat_of(context, bucket);
  if (flat == nullptr) return;
  const plan::Bucket& layout = context.bucket(bucket);
  Registered from{&context, bucket};
  if (context.plan->placement.parameters_sharded) {
    pack_registered(&from, static_cast<uint64_t>(context.rank()) * layout.shard_elements,
                    layout.shard_elements, flat);
  } else {
    pack_registered(&from, 0, layout.elements, flat);
  }
}

void broadcast_bucket(Context& context, BucketTransfer& transfer, int32_t bucket, int32_t root) {
  BucketTransfer::Ends ends;
  ends.whole = flat_of(context, bucket);
  ends.shard = ends.whole;
  ends.sendable = ends.whole != nullptr && context.storage->may_be_sent(ZERO_MEMORY_PARAMS);
  transfer.broadcast(stamp_of(bucket), bucket, ends, root);
}

// Stage 3: root holds the whole only in the caller's memory, piece by piece in a gradient slot.
void scatter_bucket(Context& context, BucketTransfer& transfer, int32_t bucket, int32_t root,
                    std::byte* scratch, uint64_t scratch_bytes) {
  Registered from{&context, bucket};
  transfer.scatter(stamp_of(bucket), bucket, root, &pack_registered, &from, scratch, scratch_bytes,
                   flat_of(context, bucket));
}

// Checksums of everything registered must be equal; the sentence names the parameter.
void verify_values(Context& context) {
  std::vector<std::string> lines;
  for (size_t p = 0; p < context.plan->places.size(); ++p) {
    const plan::Parameter& parameter = context.parameter(static_cast<zero_param_id>(p));
    const uint64_t bytes = parameter.elements * dtype_bytes(parameter.dtype);
    const uint64_t hash = parameter.data == nullptr ? 0 : XXH3_64bits(parameter.data, bytes);
    lines.push_back(format("param \"%s\" has checksum %016llx", parameter.name.c_str(),
                           static_cast<unsigned long long>(hash)));
  }
  agree_on_lines(*context.comm, 30, "initial values", lines);
}

} // namespace

static void fill_values(Context& context) {
  const plan::Plan& plan = *context.plan;
  const bool sharded = plan.placement.parameters_sharded;
  const auto buckets = static_cast<int32_t>(plan.buckets.size());
  const bool alone = context.ranks() == 1;
  if (context.settings.initial_values == config::InitialValues::kVerify) verify_values(context);
  copy_buffers(context);
  if (alone || context.settings.initial_values != config::InitialValues::kRank) {
    for (int32_t b = 0; b < buckets; ++b) copy_own(context, b);
    if (alone || sharded || context.settings.initial_values == config::InitialValues::kVerify) {
      return;
    }
    // Each rank's own part is the truth, at every stage alike.
    BucketTransfer transfer(context, comm::Channel::kControl);
    for (int32_t b = 0; b < buckets; ++b) {
      const uint64_t shard_bytes =
          context.bucket(b).shard_elements * context.storage->element_bytes(b);
      BucketTransfer::Ends ends;
      ends.whole = flat_of(context, b);
      if (ends.whole != nullptr) {
        ends.shard = ends.whole + static_cast<uint64_t>(context.rank()) * shard_bytes;
        ends.sendable = context.storage->may_be_sent(ZERO_MEMORY_PARAMS);
      }
      transfer.gather(stamp_of(b), b, ends);
    }
    return;
  }
  const int32_t root = context.settings.initial_rank;
  BucketTransfer transfer(context, comm::Channel::kControl);
  if (!sharded) {
    if (context.rank() == root) {
      for (int32_t b = 0; b < buckets; ++b) copy_own(context, b);
    }
    broadcast_values(context, transfer, root);
    return;
  }
  // The gradient slots are not in use yet; without trained parameters a small piece has to do.
  const plan::Region* pool = nullptr;
  for (const plan::Region& region : plan.memory.regions) {
    if (region.kind == plan::RegionKind::kPool && (pool == nullptr || region.bytes > pool->bytes)) {
      pool = &region;
    }
  }
  std::byte* scratch = nullptr;
  uint64_t scratch_bytes = 0;
  if (pool != nullptr && context.storage->may_be_sent(ZERO_MEMORY_BUCKETS)) {
    scratch = context.storage->of_class(pool->parameter_class).pool;
    scratch_bytes = pool->bytes;
  } else if (context.storage->gather_staging() != nullptr) {
    scratch = context.storage->gather_staging();
    scratch_bytes = context.storage->staging_bytes();
  }
  for (int32_t b = 0; b < buckets; ++b) {
    const uint64_t least =
        static_cast<uint64_t>(context.ranks()) * context.storage->element_bytes(b);
    if (scratch_bytes >= least) {
      scatter_bucket(context, transfer, b, root, scratch, scratch_bytes);
      continue;
    }
    // Frozen parameters alone: everybody sees every piece and keeps his own.
    const plan::Bucket& layout = context.bucket(b);
    const uint64_t size = context.storage->element_bytes(b);
    std::vector<std::byte> piece(64 * 1024);
    const uint64_t own = static_cast<uint64_t>(context.rank()) * layout.shard_elements;
    for (uint64_t at = 0; at < layout.elements; at += piece.size() / size) {
      const uint64_t count = std::min(piece.size() / size, layout.elements - at);
      Registered from{&context, b};
      if (context.rank() == root) pack_registered(&from, at, count, piece.data());
      context.comm->broadcast(comm::Channel::kControl, stamp_of(b), piece.data(), count * size,
                              root);
      const uint64_t first = std::max(at, own);
      const uint64_t last = std::min(at + count, own + layout.shard_elements);
      if (first < last) {
        std::memcpy(flat_of(context, b) + (first - own) * size, piece.data() + (first - at) * size,
                    (last - first) * size);
      }
    }
  }
  broadcast_buffers(context, root);
  // What the pool was used for must not be taken for a gradient.
  if (scratch != nullptr && context.rank() == root) std::memset(scratch, 0, scratch_bytes);
}

void set_initial_values(Context& context) {
  fill_values(context);
  masters_from_all_values(context);
}

void broadcast_values(Context& context, BucketTransfer& transfer, int32_t root) {
  for (int32_t b = 0; b < static_cast<int32_t>(context.plan->buckets.size()); ++b) {
    broadcast_bucket(context, transfer, b, root);
  }
  broadcast_buffers(context, root);
}

} // namespace zero::engine

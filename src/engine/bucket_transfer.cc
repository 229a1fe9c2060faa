// SPDX-License-Identifier: BSD-3-Clause
#include "engine/bucket_transfer.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "comm/streaming_copy.h"

namespace zero::engine {
namespace {

constexpr uint64_t kCopyGrainBytes = 1u << 20;

struct CopyJob {
  std::byte* dst;
  const std::byte* src;
};

// A plan without the staging that its own memory needs would loop for ever here.
void check_piece(uint64_t piece, uint64_t total) {
  if (piece != 0 || total == 0) return;
  fail(ZERO_ERR_INTERNAL, "the plan has no staging for a transfer of %llu bytes",
       static_cast<unsigned long long>(total));
}

void copy_part(void* context, uint64_t begin, uint64_t end, int32_t) {
  const CopyJob& job = *static_cast<CopyJob*>(context);
  comm::copy_streaming(job.dst + begin, job.src + begin, end - begin);
}

} // namespace

BucketTransfer::BucketTransfer(Context& context, comm::Channel channel)
    : context_(context), channel_(channel), views_(static_cast<size_t>(context.ranks())) {}

void BucketTransfer::copy(std::byte* dst, const void* src, uint64_t bytes) {
  if (dst == src || bytes == 0) return;
  CopyJob job{dst, static_cast<const std::byte*>(src)};
  context_.device->parallel(bytes, kCopyGrainBytes, &copy_part, &job);
}

void BucketTransfer::pack_caller(int32_t bucket, uint64_t begin, uint64_t count, std::byte* flat) {
  const uint64_t size = context_.storage->element_bytes(bucket);
  std::memset(flat, 0, count * size);
  context_.plan->for_each_run(bucket, begin, begin + count, [&](const plan::Run& run) {
    const std::byte* value = static_cast<std::byte*>(context_.parameter(run.param).data);
    std::memcpy(flat + (run.bucket_offset - begin) * size, value + run.param_offset * size,
                run.count * size);
  });
}

void BucketTransfer::unpack_caller(int32_t bucket, uint64_t begin, uint64_t count,
                                   const std::byte* flat) {
  const uint64_t size = context_.storage->element_bytes(bucket);
  context_.plan->for_each_run(bucket, begin, begin + count, [&](const plan::Run& run) {
    std::byte* value = static_cast<std::byte*>(context_.parameter(run.param).data);
    std::memcpy(value + run.param_offset * size, flat + (run.bucket_offset - begin) * size,
                run.count * size);
  });
}

void BucketTransfer::gather(comm::CollectiveStamp stamp, int32_t bucket, const Ends& ends) {
  comm::Communicator& comm = *context_.comm;
  const plan::Bucket& layout = context_.bucket(bucket);
  const uint64_t size =
      ends.element_bytes != 0 ? ends.element_bytes : context_.storage->element_bytes(bucket);
  const uint64_t shard_bytes = layout.shard_elements * size;
  const uint64_t limit = ends.sendable ? shard_bytes : context_.storage->staging_bytes();
  const uint64_t piece = std::min({shard_bytes, limit, comm.largest_block()});
  const int32_t rank = comm.rank();
  // One rank's own values in its own memory: nothing to do, and no staging to do it with.
  if (comm.size() == 1 && ends.whole == nullptr) return;
  check_piece(piece, shard_bytes);
  for (uint64_t offset = 0; offset < shard_bytes; offset += piece) {
    const uint64_t bytes = std::min(piece, shard_bytes - offset);
    const uint64_t own = static_cast<uint64_t>(rank) * layout.shard_elements + offset / size;
    const std::byte* send = ends.shard == nullptr ? nullptr : ends.shard + offset;
    if (!ends.sendable) {
      std::byte* staging = context_.storage->gather_staging();
      if (send != nullptr) {
        copy(staging, send, bytes);
      } else {
        pack_caller(bucket, own, bytes / size, staging);
      }
      send = staging;
    }
    stamp.bytes = bytes;
    stamp.detail = offset;
    comm.exchange_begin(channel_, comm::ExchangeKind::kGather, stamp, send, 0, views_.data());
    for (int32_t r = 0; r < comm.size(); ++r) {
      const uint64_t begin = static_cast<uint64_t>(r) * shard_bytes + offset;
      if (ends.whole != nullptr) {
        const std::byte* own_source = ends.shard == nullptr ? nullptr : ends.shard + offset;
        if (r == rank && own_source == ends.whole + begin) continue;
        copy(ends.whole + begin, views_[static_cast<size_t>(r)], bytes);
      } else if (r != rank) {
        unpack_caller(bucket, begin / size, bytes / size,
                      static_cast<const std::byte*>(views_[static_cast<size_t>(r)]));
      }
    }
    comm.exchange_end(channel_);
  }
}

void BucketTransfer::broadcast(comm::CollectiveStamp stamp, int32_t bucket, const Ends& ends,
                               int32_t root) {
  comm::Communicator& comm = *context_.comm;
  const plan::Bucket& layout = context_.bucket(bucket);
  const uint64_t size = context_.storage->element_bytes(bucket);
  const uint64_t whole_bytes = layout.elements * size;
  const uint64_t limit = ends.sendable ? whole_bytes : context_.storage->staging_bytes();
  const uint64_t piece = std::min({whole_bytes, limit, comm.largest_block()}) / size * size;
  if (comm.size() == 1) return;
  check_piece(piece, whole_bytes);
  stamp.operation = comm::Operation::kBroadcast;
  stamp.bucket = root;
  for (uint64_t offset = 0; offset < whole_bytes; offset += piece) {
    const uint64_t bytes = std::min(piece, whole_bytes - offset);
    const std::byte* send = ends.shard == nullptr ? nullptr : ends.shard + offset;
    if (!ends.sendable) {
      std::byte* staging = context_.storage->gather_staging();
      if (comm.rank() == root) {
        if (send != nullptr) {
          copy(staging, send, bytes);
        } else {
          pack_caller(bucket, offset / size, bytes / size, staging);
        }
      }
      send = staging;
    }
    stamp.bytes = bytes;
    stamp.detail = offset;
    comm.exchange_begin(channel_, comm::ExchangeKind::kGather, stamp, send, 0, views_.data());
    if (comm.rank() != root) {
      const auto* from = static_cast<const std::byte*>(views_[static_cast<size_t>(root)]);
      if (ends.whole != nullptr) {
        copy(ends.whole + offset, from, bytes);
      } else {
        unpack_caller(bucket, offset / size, bytes / size, from);
      }
    }
    comm.exchange_end(channel_);
  }
}

void BucketTransfer::scatter(comm::CollectiveStamp stamp, int32_t bucket, int32_t root, Pack pack,
                             void* pack_context, std::byte* staging, uint64_t staging_bytes,
                             std::byte* shard) {
  comm::Communicator& comm = *context_.comm;
  const plan::Bucket& layout = context_.bucket(bucket);
  const uint64_t size = context_.storage->element_bytes(bucket);
  const auto ranks = static_cast<uint64_t>(comm.size());
  const uint64_t shard_bytes = layout.shard_elements * size;
  const uint64_t piece =
      std::min({shard_bytes, staging_bytes / ranks / size * size, comm.largest_block()});
  check_piece(piece, shard_bytes);
  stamp.operation = comm::Operation::kBroadcast;
  stamp.bucket = root;
  for (uint64_t offset = 0; offset < shard_bytes; offset += piece) {
    const uint64_t bytes = std::min(piece, shard_bytes - offset);
    if (comm.rank() == root) {
      for (uint64_t r = 0; r < ranks; ++r) {
        pack(pack_context, r * layout.shard_elements + offset / size, bytes / size,
             staging + r * bytes);
      }
    }
    stamp.bytes = bytes;
    stamp.detail = offset;
    comm.exchange_begin(channel_, comm::ExchangeKind::kScatter, stamp,
                        comm.rank() == root ? staging : nullptr, bytes, views_.data());
    copy(shard + offset, views_[static_cast<size_t>(root)], bytes);
    comm.exchange_end(channel_);
  }
}

} // namespace zero::engine

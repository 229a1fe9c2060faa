// Moves the values of one bucket between ranks: shards to everywhere, or one rank's whole to all.
// Knows flat memory, the caller's scattered memory, and when a copy through staging is needed.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "engine/context.h"

namespace zero::engine {

class BucketTransfer {
 public:
  BucketTransfer(Context& context, comm::Channel channel);

  struct Ends {
    uint64_t element_bytes = 0; // 0: as the bucket's parameters
    // This rank's shard; null: the CALLER parameters of the bucket.
    const std::byte* shard = nullptr;
    bool sendable = false; // shard may be handed to the communicator as it is
    // Where the whole bucket goes; null: the CALLER parameters.  This rank's own part is not
    // written when shard already lies there.
    std::byte* whole = nullptr;
  };
  // On every rank the whole bucket, put together from the shards.
  void gather(comm::CollectiveStamp stamp, int32_t bucket, const Ends& ends);

  // On every rank root's whole bucket.  ends.shard is root's whole here; null as above.
  void broadcast(comm::CollectiveStamp stamp, int32_t bucket, const Ends& ends, int32_t root);

  // root's whole bucket (in `read`'s order of calls, see cc) cut into shards, each to its owner:
  // this rank's goes to shard.  staging: sendable memory of staging_bytes for root to pack into.
  // pack(context, bucket_offset, count, out) writes elements of the whole bucket, padding as zeros.
  using Pack = void (*)(void* context, uint64_t bucket_offset, uint64_t count, std::byte* out);
  void scatter(comm::CollectiveStamp stamp, int32_t bucket, int32_t root, Pack pack, void* context,
               std::byte* staging, uint64_t staging_bytes, std::byte* shard);

 private:
  void copy(std::byte* dst, const void* src, uint64_t bytes);
  // Elements [begin, begin + count) of the bucket between the caller's memory and `flat`.
  void pack_caller(int32_t bucket, uint64_t begin, uint64_t count, std::byte* flat);
  void unpack_caller(int32_t bucket, uint64_t begin, uint64_t count, const std::byte* flat);

  Context& context_;
  const comm::Channel channel_;
  std::vector<const void*> views_;
};

} // namespace zero::engine

// The control block that local ranks share: fresh (all zero) shared memory is a valid start, every
// field that two ranks touch is atomic, so that ThreadSanitizer can judge the order.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/comm_failure.h"
#include "comm/communicator.h"

namespace zero::comm {

constexpr int32_t kLocalRanks = 64; // most ranks of one local communicator
constexpr int32_t kSetupChannel = kChannels; // allocate_shared's own
constexpr int32_t kAllChannels = kChannels + 1;
constexpr uint64_t kAnnouncements = 512; // how far apart two ranks may be and still be compared

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct SharedStamp {
  std::atomic<uint64_t> sequence, bytes, detail;
  std::atomic<int32_t> operation, bucket;

  // Acquire and release on each field: a reader may then re-read a tag to see that none was torn.
  void store(const CollectiveStamp& stamp) {
    sequence.store(stamp.sequence, std::memory_order_release);
    bytes.store(stamp.bytes, std::memory_order_release);
    detail.store(stamp.detail, std::memory_order_release);
    operation.store(static_cast<int32_t>(stamp.operation), std::memory_order_release);
    bucket.store(stamp.bucket, std::memory_order_release);
  }
  CollectiveStamp load() const {
    CollectiveStamp stamp;
    stamp.sequence = sequence.load(std::memory_order_acquire);
    stamp.bytes = bytes.load(std::memory_order_acquire);
    stamp.detail = detail.load(std::memory_order_acquire);
    stamp.operation = static_cast<Operation>(operation.load(std::memory_order_acquire));
    stamp.bucket = bucket.load(std::memory_order_acquire);
    return stamp;
  }
};

// A counter that peers sleep on.
struct Gate {
  std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleepers;
};

// One rank's side of one channel.  Written before `arrived` is raised, read by peers between that
// and their own raise of `finished`; the owner writes again only when all have finished.
struct alignas(128) ChannelSlot {
  Gate arrived; // exchanges begun
  Gate finished; // exchanges whose views this rank no longer needs
  std::atomic<int32_t> waiting_for; // a rank + 1; 0: nobody
  std::atomic<int32_t> exchange_kind;
  SharedStamp stamp;
  std::atomic<uint64_t> region, offset, stride;
  std::atomic<uint64_t> value; // allocate_shared: bytes wanted, then how it went
};

struct Announcement {
  std::atomic<uint64_t> tag; // sequence + 1; 0 while it is written
  SharedStamp stamp;
};

struct alignas(128) RankBlock {
  std::atomic<uint64_t> progress; // counts whatever the rank does here
  std::atomic<uint32_t> left; // 1: it has closed its communicator in good order
  ChannelSlot channels[kAllChannels];
  Announcement announcements[kAnnouncements];
};

struct ControlBlock {
  FailureRecord failure;
  RankBlock ranks[1]; // size() of them
};

constexpr uint64_t control_bytes(int32_t size) {
  return sizeof(ControlBlock) + static_cast<uint64_t>(size - 1) * sizeof(RankBlock);
}

} // namespace zero::comm

// LocalComm's shared memory: one memfd a round, made by rank 0, mapped whole by every rank.
// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "comm/fd_passing.h"
#include "comm/local_comm.h"
#include "comm/progress_watch.h"

namespace zero::comm {
namespace {

constexpr uint64_t kPage = 4096;

struct MemoryMessage {
  uint64_t round;
  int32_t error; // an errno; 0: the memory comes with the message
  int32_t reserved;
};

} // namespace

// Three meetings on a channel of its own: sizes; (the memfd;) how it went.  So every rank that
// returns memory knows that all did, and a shortage on one is the same error on all.
void* LocalComm::allocate_shared(uint64_t bytes) {
  const uint64_t wanted = round_up(bytes == 0 ? kPage : bytes, kPage);
  const std::vector<uint64_t> sizes = gather_values(wanted);
  uint64_t total = 0, offset = 0;
  for (int32_t i = 0; i < size_; ++i) {
    const uint64_t size = sizes[static_cast<size_t>(i)];
    total = round_up(total, size >= kHugePage ? kHugePage : kPage); // a hole costs no memory
    if (i == rank_) offset = total;
    total = checked_add(total, size, "shared memory of all ranks");
  }

  Region region;
  region.number = rounds_;
  region.own_bytes = wanted;
  int error = 0;
  const Descriptor memory = share_memory(total, &error);
  if (error == 0) {
    try {
      region.segment = map_shared_memory(memory.get(), total);
      region.own = region.segment->base() + offset;
      error = populate_shared_memory(region.own, wanted);
    } catch (const Error& mapping) {
      error = mapping.native_code() != 0 ? mapping.native_code() : ENOMEM;
    }
  }
  const std::vector<uint64_t> outcomes = gather_values(static_cast<uint64_t>(error));
  for (int32_t i = 0; i < size_; ++i) {
    const auto outcome = static_cast<int>(outcomes[static_cast<size_t>(i)]);
    if (outcome == 0) continue;
    throw Error(ZERO_ERR_OUT_OF_MEMORY,
                format("rank %d cannot have its %llu bytes of shared memory (%llu bytes for all "
                       "ranks): %s",
                       i, static_cast<unsigned long long>(sizes[static_cast<size_t>(i)]),
                       static_cast<unsigned long long>(total), std::strerror(outcome)),
                i, outcome, "os");
  }
  const std::lock_guard<std::mutex> lock(regions_mutex_);
  regions_.push_back(std::move(region));
  return regions_.back().own;
}

void LocalComm::release_shared(void* memory) {
  std::shared_ptr<LocalSegment> unmapped_outside_the_lock;
  const std::lock_guard<std::mutex> lock(regions_mutex_);
  for (auto it = regions_.begin(); it != regions_.end(); ++it) {
    if (it->own != memory) continue;
    unmapped_outside_the_lock = std::move(it->segment);
    regions_.erase(it);
    return;
  }
}

std::vector<uint64_t> LocalComm::gather_values(uint64_t value) {
  if (has_failure(control_->failure)) throw_ended(-1);
  CollectiveStamp stamp;
  stamp.sequence = rounds_++;
  slot(rank_, kSetupChannel).value.store(value, std::memory_order_relaxed);
  arrive_and_compare(kSetupChannel, stamp, ExchangeKind::kGather);
  std::vector<uint64_t> values(static_cast<size_t>(size_));
  for (int32_t i = 0; i < size_; ++i) {
    values[static_cast<size_t>(i)] = slot(i, kSetupChannel).value.load(std::memory_order_relaxed);
  }
  finish(kSetupChannel);
  return values;
}

Descriptor LocalComm::share_memory(uint64_t bytes, int* error) {
  if (rank_ != 0) return receive_memory(rounds_, error);
  Descriptor memory;
  try {
    memory = create_shared_memory(bytes);
  } catch (const Error& shortage) {
    *error = shortage.native_code();
  }
  const MemoryMessage message = {rounds_, *error, 0};
  // A peer that cannot be told is dead: the next meeting finds that out.
  for (int32_t i = 1; i < size_; ++i) {
    send_message(peers_.socket(i), &message, sizeof(message), memory.get());
  }
  return memory;
}

Descriptor LocalComm::receive_memory(uint64_t round, int* error) {
  ProgressWatch watch(timeout_ns_, progress_behind(0), now_ns());
  for (;;) {
    MemoryMessage message = {};
    Descriptor passed[kPassedDescriptors];
    const Received received = receive_message(peers_.socket(0), &message, sizeof(message), passed);
    if (received == Received::kMessage) {
      if (message.round != round) continue; // of a round that ended early here
      *error = message.error;
      if (*error == 0 && !passed[0].valid()) *error = EMFILE; // no room for one more descriptor
      return std::move(passed[0]);
    }
    if (has_failure(control_->failure)) throw_ended(kSetupChannel);
    if (block(0).left.load(std::memory_order_acquire) != 0) {
      end_with(ZERO_ERR_COMM_ABORTED, 0, "rank 0 has closed its communicator", kSetupChannel);
    }
    const int32_t dead = peers_.find_dead(*control_);
    if (dead >= 0) end_with_dead(dead, kSetupChannel);
    if (watch.expired(progress_behind(0), now_ns())) {
      end_with_timeout(0, kSetupChannel);
    }
    pollfd readable = {peers_.socket(0), POLLIN, 0};
    poll(&readable, 1, 50);
  }
}

// ---- where exchanges lie --------------------------------------------------------------------

void LocalComm::locate(const void* send, uint64_t extent, uint64_t* region,
                       uint64_t* offset) const {
  const auto at = reinterpret_cast<uintptr_t>(send);
  const std::lock_guard<std::mutex> lock(regions_mutex_);
  for (const Region& candidate : regions_) {
    const auto start = reinterpret_cast<uintptr_t>(candidate.own);
    if (at < start || at - start > candidate.own_bytes) continue;
    if (extent > candidate.own_bytes - (at - start)) continue;
    *region = candidate.number;
    *offset = at - reinterpret_cast<uintptr_t>(candidate.segment->base());
    return;
  }
  fail(ZERO_ERR_INTERNAL,
       "an exchange of %llu bytes does not lie in memory from allocate_shared of rank %d",
       static_cast<unsigned long long>(extent), rank_);
}

const char* LocalComm::region_base(uint64_t number) const {
  const std::lock_guard<std::mutex> lock(regions_mutex_);
  for (const Region& candidate : regions_) {
    if (candidate.number == number) return candidate.segment->base();
  }
  fail(ZERO_ERR_INTERNAL, "a peer sends from shared memory that rank %d has released", rank_);
}

} // namespace zero::comm

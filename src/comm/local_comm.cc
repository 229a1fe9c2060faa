// SPDX-License-Identifier: BSD-3-Clause
#include "comm/local_comm.h"

#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "comm/collective_stamp.h"
#include "comm/local_barrier.h"
#include "comm/progress_watch.h"

namespace zero::comm {
namespace {

constexpr uint64_t kNoContribution = UINT64_MAX; // in place of a region: zeros, not held anywhere
constexpr int64_t kSliceNs = INT64_C(50) * 1000 * 1000; // how often a sleeper looks at its peers

} // namespace

LocalComm::LocalComm(LocalParty party, int32_t rank, int32_t size, int64_t timeout_ns)
    : rank_(rank),
      size_(size),
      timeout_ns_(timeout_ns),
      spin_ns_(spin_budget_ns(size)),
      owner_(getpid()),
      control_segment_(map_shared_memory(party.control.get(), control_bytes(size))),
      control_(reinterpret_cast<ControlBlock*>(control_segment_->base())),
      peers_(std::move(party.peers), rank) {
  try {
    small_ = static_cast<char*>(allocate_shared(kStagingBytes));
  } catch (...) {
    leave();
    throw;
  }
}

LocalComm::~LocalComm() {
  leave();
}

void* LocalComm::small_buffer(Channel channel) {
  return small_ + static_cast<uint64_t>(channel) * kSmallBytes;
}

// ---- exchanges --------------------------------------------------------------------------------

void LocalComm::exchange_begin(Channel channel, ExchangeKind kind, const CollectiveStamp& stamp,
                               const void* send, uint64_t stride, const void** views) {
  const auto index = static_cast<int32_t>(channel);
  const bool scatter = kind == ExchangeKind::kScatter;
  const uint64_t blocks = scatter ? static_cast<uint64_t>(size_) : 1;
  uint64_t extent = stamp.bytes;
  if (blocks > 1) {
    extent = checked_add(checked_multiply(blocks - 1, stride, "exchange"), extent, "exchange");
  }
  uint64_t region = kNoContribution, offset = 0;
  if (send != nullptr && size_ == 1) region = 0; // nobody else looks there
  if (send != nullptr && size_ > 1) locate(send, extent, &region, &offset);
  if (has_failure(control_->failure)) throw_before(stamp);

  ChannelSlot& own = slot(rank_, index);
  own.region.store(region, std::memory_order_relaxed);
  own.offset.store(offset, std::memory_order_relaxed);
  own.stride.store(stride, std::memory_order_relaxed);
  arrive_and_compare(index, stamp, kind);

  for (int32_t i = 0; i < size_; ++i) {
    const ChannelSlot& peer = slot(i, index);
    if (peer.region.load(std::memory_order_relaxed) == kNoContribution) {
      views[i] = nullptr;
      continue;
    }
    if (i == rank_) {
      views[i] =
          static_cast<const char*>(send) + (scatter ? static_cast<uint64_t>(rank_) * stride : 0);
      continue;
    }
    uint64_t at = peer.offset.load(std::memory_order_relaxed);
    if (scatter) at += static_cast<uint64_t>(rank_) * peer.stride.load(std::memory_order_relaxed);
    views[i] = region_base(peer.region.load(std::memory_order_relaxed)) + at;
  }
}

void LocalComm::exchange_end(Channel channel) {
  if (has_failure(control_->failure)) throw_ended(static_cast<int32_t>(channel));
  finish(static_cast<int32_t>(channel));
}

void LocalComm::arrive_and_compare(int32_t channel, const CollectiveStamp& stamp,
                                   ExchangeKind kind) {
  ChannelSlot& own = slot(rank_, channel);
  own.stamp.store(stamp);
  own.exchange_kind.store(static_cast<int32_t>(kind), std::memory_order_relaxed);
  const uint32_t target = own.arrived.count.load(std::memory_order_relaxed) + 1;
  count_progress();
  raise_gate(own.arrived, target);
  for (int32_t i = 0; i < size_; ++i) {
    if (i != rank_) wait_for(channel, &ChannelSlot::arrived, target, i);
  }
  compare_stamps(channel);
}

void LocalComm::finish(int32_t channel) {
  Gate& own = slot(rank_, channel).finished;
  const uint32_t target = own.count.load(std::memory_order_relaxed) + 1;
  count_progress();
  raise_gate(own, target);
  for (int32_t i = 0; i < size_; ++i) {
    if (i != rank_) wait_for(channel, &ChannelSlot::finished, target, i);
  }
}

void LocalComm::compare_stamps(int32_t channel) {
  const CollectiveStamp mine = slot(rank_, channel).stamp.load();
  const int32_t kind = slot(rank_, channel).exchange_kind.load(std::memory_order_relaxed);
  bool same = true;
  for (int32_t i = 0; i < size_; ++i) {
    const ChannelSlot& peer = slot(i, channel);
    same = same && same_stamp(mine, peer.stamp.load()) &&
           peer.exchange_kind.load(std::memory_order_relaxed) == kind;
  }
  if (same) return;
  CollectiveStamp stamps[kLocalRanks];
  for (int32_t i = 0; i < size_; ++i) stamps[i] = slot(i, channel).stamp.load();
  int32_t reference = 0;
  int32_t odd = odd_rank_out(stamps, size_, &reference);
  if (odd < 0) { // only the kind differs: the caller's own mistake, still not a hang
    end_with(ZERO_ERR_COMM_MISMATCH, rank_, "ranks disagree on scatter or gather", channel);
  }
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(namer_mutex_);
    text = mismatch_sentence(odd, stamps[odd], reference, stamps[reference], namer_);
  }
  end_with(ZERO_ERR_COMM_MISMATCH, odd, text, channel);
}

void LocalComm::wait_for(int32_t channel, Gate ChannelSlot::*gate, uint32_t target, int32_t peer) {
  Gate& watched = slot(peer, channel).*gate;
  if (spin_on_gate(watched, target, spin_ns_)) return;
  std::atomic<int32_t>& waiting_for = slot(rank_, channel).waiting_for;
  waiting_for.store(peer + 1, std::memory_order_relaxed);
  int64_t looked_ns = now_ns();
  ProgressWatch watch(timeout_ns_, progress_behind(peer), looked_ns);
  while (!has_reached(watched, target)) {
    if (has_failure(control_->failure)) throw_ended(channel);
    if (block(peer).left.load(std::memory_order_acquire) != 0) {
      if (has_reached(watched, target)) break; // it came here first, then left
      end_with(ZERO_ERR_COMM_ABORTED, peer, format("rank %d has closed its communicator", peer),
               channel);
    }
    sleep_on_gate(watched, target, kSliceNs);
    const int64_t now = now_ns();
    if (now - looked_ns < kSliceNs / 2 || has_reached(watched, target)) continue;
    looked_ns = now;
    const int32_t dead = peers_.find_dead(*control_);
    if (dead >= 0) end_with_dead(dead, channel);
    if (watch.expired(progress_behind(peer), now)) {
      end_with_timeout(peer, channel);
    }
  }
  waiting_for.store(0, std::memory_order_relaxed);
}

// ---- announcements ----------------------------------------------------------------------------

// A rank writes its own entry before it reads those of the others (both in one total order), so
// of two ranks that differ at least one sees it.
void LocalComm::announce(const CollectiveStamp& stamp) {
  if (has_failure(control_->failure)) throw_before(stamp);
  const uint64_t place = stamp.sequence % kAnnouncements;
  const uint64_t tag = stamp.sequence + 1;
  Announcement& own = block(rank_).announcements[place];
  own.tag.store(0, std::memory_order_seq_cst);
  own.stamp.store(stamp);
  own.tag.store(tag, std::memory_order_seq_cst);
  count_progress();
  for (int32_t i = 0; i < size_; ++i) {
    const Announcement& other = block(i).announcements[place];
    if (i == rank_ || other.tag.load(std::memory_order_seq_cst) != tag) continue;
    const CollectiveStamp theirs = other.stamp.load();
    if (other.tag.load(std::memory_order_seq_cst) != tag || same_stamp(stamp, theirs)) continue;
    end_with_announced(tag);
  }
}

void LocalComm::end_with_announced(uint64_t tag) {
  CollectiveStamp stamps[kLocalRanks];
  int32_t ranks[kLocalRanks];
  int32_t count = 0; // of those that have come to this place
  for (int32_t i = 0; i < size_; ++i) {
    const Announcement& entry = block(i).announcements[(tag - 1) % kAnnouncements];
    if (entry.tag.load(std::memory_order_seq_cst) != tag) continue;
    stamps[count] = entry.stamp.load();
    ranks[count++] = i;
  }
  int32_t reference = 0;
  const int32_t odd = odd_rank_out(stamps, count, &reference);
  if (odd < 0) return; // the other one has moved on: its exchange will tell
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(namer_mutex_);
    text = mismatch_sentence(ranks[odd], stamps[odd], ranks[reference], stamps[reference], namer_);
  }
  end_with(ZERO_ERR_COMM_MISMATCH, ranks[odd], text, -1);
}

void LocalComm::count_progress() {
  block(rank_).progress.fetch_add(1, std::memory_order_relaxed);
}

} // namespace zero::comm

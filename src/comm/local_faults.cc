// LocalComm's endings: the first failure is written where all ranks see it, whoever sleeps is
// roused, and every call from then on throws it with what this rank was doing.
// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include "base/error.h"
#include "comm/collective_stamp.h"
#include "comm/local_barrier.h"
#include "comm/local_comm.h"
#include "comm/progress_watch.h"
#include "comm/rank_environment.h"

namespace zero::comm {

void LocalComm::post(zero_status status, int32_t rank, const std::string& text) noexcept {
  Failure failure;
  failure.status = status;
  failure.rank = rank;
  try {
    failure.text = text;
  } catch (...) {
    // No memory for the sentence: the status and the rank still arrive.
  }
  post_failure(control_->failure, rank_, failure);
  for (int32_t i = 0; i < size_; ++i) {
    for (int32_t channel = 0; channel < kAllChannels; ++channel) {
      rouse_gate(slot(i, channel).arrived);
      rouse_gate(slot(i, channel).finished);
    }
  }
}

void LocalComm::end_with(zero_status status, int32_t rank, const std::string& text,
                         int32_t channel) {
  post(status, rank, text);
  throw_ended(channel);
}

void LocalComm::throw_ended(int32_t channel) const {
  std::string doing;
  if (channel == kSetupChannel) {
    doing = format("rank %d was allocating shared memory", rank_);
  } else if (channel >= 0) {
    doing = format("rank %d was in %s", rank_, describe(slot(rank_, channel).stamp.load()).c_str());
  }
  throw_failure(control_->failure, doing);
}

void LocalComm::throw_before(const CollectiveStamp& stamp) const {
  throw_failure(control_->failure,
                format("rank %d was about to begin %s", rank_, describe(stamp).c_str()));
}

void LocalComm::end_with_dead(int32_t peer, int32_t channel) {
  end_with(
      ZERO_ERR_COMM, peer,
      format("rank %d is dead: its process has ended (it %s)", peer, describe_doing(peer).c_str()),
      channel);
}

// The rank waited for may itself wait for another one: the end of that chain is at fault, and its
// progress is what counts.  In a ring of ranks nobody makes any.
int32_t LocalComm::end_of_chain(int32_t peer) const {
  int32_t end = peer;
  for (int32_t steps = 0; steps < size_; ++steps) {
    int32_t next = -1;
    for (int32_t c = 0; c < kAllChannels && next < 0; ++c) {
      next = slot(end, c).waiting_for.load(std::memory_order_relaxed) - 1;
    }
    if (next < 0 || next >= size_ || next == rank_) break;
    end = next;
  }
  return end;
}

uint64_t LocalComm::progress_behind(int32_t peer) const {
  const int32_t end = end_of_chain(peer);
  return block(end).progress.load(std::memory_order_relaxed) ^ (static_cast<uint64_t>(end) << 56);
}

// Ranks that wait for each other are in different collectives: then that is the answer.
void LocalComm::end_with_ring(int32_t channel) {
  CollectiveStamp stamps[kLocalRanks];
  for (int32_t i = 0; i < size_; ++i) {
    int32_t inside = 0;
    while (inside < kAllChannels - 1 && slot(i, inside).waiting_for.load() == 0) ++inside;
    stamps[i] = slot(i, inside).stamp.load();
  }
  int32_t reference = 0;
  const int32_t odd = odd_rank_out(stamps, size_, &reference);
  if (odd < 0) return;
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(namer_mutex_);
    text = mismatch_sentence(odd, stamps[odd], reference, stamps[reference], namer_);
  }
  end_with(ZERO_ERR_COMM_MISMATCH, odd, text, channel);
}

void LocalComm::end_with_timeout(int32_t peer, int32_t channel) {
  const int32_t culprit = end_of_chain(peer);
  bool waits = false;
  for (int32_t c = 0; c < kAllChannels; ++c) {
    waits = waits || slot(culprit, c).waiting_for.load(std::memory_order_relaxed) != 0;
  }
  if (waits) end_with_ring(channel);
  end_with(ZERO_ERR_COMM_TIMEOUT, culprit,
           format("rank %d is alive but made no progress for %.3g s while rank %d waited for it "
                  "(it %s)",
                  culprit, static_cast<double>(timeout_ns_) / 1e9, rank_,
                  describe_doing(culprit).c_str()),
           channel);
}

std::string LocalComm::describe(const CollectiveStamp& stamp) const {
  const std::lock_guard<std::mutex> lock(namer_mutex_);
  return describe_stamp(stamp, namer_);
}

std::string LocalComm::describe_doing(int32_t rank) const {
  std::string last;
  for (int32_t channel = 0; channel < kAllChannels; ++channel) {
    const ChannelSlot& there = slot(rank, channel);
    const uint32_t arrived = there.arrived.count.load(std::memory_order_acquire);
    if (arrived == 0) continue;
    const bool inside = arrived != there.finished.count.load(std::memory_order_acquire);
    if (channel == kSetupChannel) {
      if (inside) return "is allocating shared memory";
      continue;
    }
    const std::string name = describe(there.stamp.load());
    if (inside) return "is in " + name;
    last += (last.empty() ? "has done " : ", ") + name;
  }
  return last.empty() ? "has not begun any collective" : last + " and not begun the next";
}

void LocalComm::set_namer(const StampNamer* namer) {
  const std::lock_guard<std::mutex> lock(namer_mutex_);
  namer_ = namer;
  if (namer == nullptr) return;
  for (Announcement& own : block(rank_).announcements) {
    own.tag.store(0, std::memory_order_seq_cst);
  }
}

void LocalComm::abort() noexcept {
  if (owner_ != getpid()) return;
  try {
    post(ZERO_ERR_COMM_ABORTED, rank_, format("the communicator was aborted by rank %d", rank_));
  } catch (...) {
    post(ZERO_ERR_COMM_ABORTED, rank_, {});
  }
}

void LocalComm::check() {
  if (!has_failure(control_->failure)) {
    const int32_t dead = peers_.find_dead(*control_);
    if (dead < 0) return;
    end_with_dead(dead, -1);
  }
  throw_ended(-1);
}

void LocalComm::leave() noexcept {
  if (owner_ != getpid()) return;
  if (block(rank_).left.exchange(1, std::memory_order_seq_cst) != 0) return;
  for (int32_t channel = 0; channel < kAllChannels; ++channel) {
    rouse_gate(slot(rank_, channel).arrived);
    rouse_gate(slot(rank_, channel).finished);
  }
}

std::shared_ptr<Communicator> make_local(const std::string& group_name, int32_t rank, int32_t size,
                                         int64_t timeout_ns) {
  if (size < 1 || size > kLocalRanks) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "size is %d, expected 1 to %d ranks of one machine", size,
         kLocalRanks);
  }
  if (rank < 0 || rank >= size) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "rank is %d, expected 0 <= rank < %d", rank, size);
  }
  if (timeout_ns < 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "timeout_ns is %lld, expected 0 (10 minutes) or more",
         static_cast<long long>(timeout_ns));
  }
  if (timeout_ns == 0) timeout_ns = kDefaultTimeoutNs;
  const std::string job = read_job_name();
  LocalParty party = meet_local_ranks(local_socket_name(job, group_name, geteuid()), group_name,
                                      rank, size, timeout_ns);
  return std::make_shared<LocalComm>(std::move(party), rank, size, timeout_ns);
}

} // namespace zero::comm

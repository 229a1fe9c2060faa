// Ranks of one machine, processes or threads, through shared memory: an exchange publishes where
// this rank's bytes lie, waits until all have, and yields pointers into their memory.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/local_control.h"
#include "comm/local_peers.h"
#include "comm/local_segment.h"
#include "comm/rendezvous_unix.h"

namespace zero::comm {

class LocalComm final : public Communicator {
 public:
  // The small collectives' buffers; bucket data is never copied.
  static constexpr uint64_t kStagingBytes = kSmallBytes * kChannels;

  // party: from meet_local_ranks.  [collective]
  LocalComm(LocalParty party, int32_t rank, int32_t size, int64_t timeout_ns);
  ~LocalComm() override;

  zero_comm_kind kind() const override { return ZERO_COMM_LOCAL; }
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  int32_t local_size() const override { return size_; }
  int32_t usable_channels() const override { return kChannels; }
  std::string overlap_refusal() const override { return {}; }

  bool needs_shared_memory() const override { return size_ > 1; }
  void* allocate_shared(uint64_t bytes) override;
  void release_shared(void* memory) override;
  uint64_t staging_bytes() const override { return kStagingBytes; }

  void exchange_begin(Channel channel, ExchangeKind kind, const CollectiveStamp& stamp,
                      const void* send, uint64_t stride, const void** views) override;
  void exchange_end(Channel channel) override;
  uint64_t largest_block() const override { return UINT64_MAX; }

  void announce(const CollectiveStamp& stamp) override;
  void set_namer(const StampNamer* namer) override;
  void abort() noexcept override;
  void check() override;
  void leave() noexcept override;

 protected:
  void* small_buffer(Channel channel) override;

 private:
  // One allocate_shared: the parts of all ranks, one after the other.
  struct Region {
    uint64_t number = 0; // the same on all ranks
    std::shared_ptr<LocalSegment> segment;
    char* own = nullptr;
    uint64_t own_bytes = 0;
  };

  RankBlock& block(int32_t rank) const { return control_->ranks[rank]; }
  ChannelSlot& slot(int32_t rank, int32_t channel) const { return block(rank).channels[channel]; }

  // The two halves of every exchange, on an index of kAllChannels.
  void arrive_and_compare(int32_t channel, const CollectiveStamp& stamp, ExchangeKind kind);
  void finish(int32_t channel);
  void wait_for(int32_t channel, Gate ChannelSlot::*gate, uint32_t target, int32_t peer);
  void compare_stamps(int32_t channel);
  void end_with_announced(uint64_t tag); // a difference was seen there

  // allocate_shared's steps; each waits for all.
  std::vector<uint64_t> gather_values(uint64_t value);
  Descriptor share_memory(uint64_t bytes, int* error); // rank 0 makes it, the others receive it
  Descriptor receive_memory(uint64_t round, int* error);

  void locate(const void* send, uint64_t extent, uint64_t* region, uint64_t* offset) const;
  const char* region_base(uint64_t number) const;

  [[noreturn]] void end_with(zero_status status, int32_t rank, const std::string& text,
                             int32_t channel);
  void post(zero_status status, int32_t rank, const std::string& text) noexcept;
  [[noreturn]] void throw_ended(int32_t channel) const; // -1: outside of any collective
  [[noreturn]] void throw_before(const CollectiveStamp& stamp) const;
  [[noreturn]] void end_with_dead(int32_t peer, int32_t channel);
  void end_with_ring(int32_t channel); // returns where there is none
  [[noreturn]] void end_with_timeout(int32_t peer, int32_t channel);
  int32_t end_of_chain(int32_t peer) const;
  uint64_t progress_behind(int32_t peer) const; // any number that changes when there is some
  std::string describe(const CollectiveStamp& stamp) const;
  std::string describe_doing(int32_t rank) const;
  void count_progress();

  const int32_t rank_;
  const int32_t size_;
  const int64_t timeout_ns_;
  const int64_t spin_ns_;
  const int owner_; // the process that made it; a forked child must not speak for it
  std::shared_ptr<LocalSegment> control_segment_;
  ControlBlock* control_;
  LocalPeers peers_;
  uint64_t rounds_ = 0;
  char* small_ = nullptr;

  mutable std::mutex regions_mutex_;
  std::vector<Region> regions_;
  mutable std::mutex namer_mutex_;
  const StampNamer* namer_ = nullptr;
};

} // namespace zero::comm

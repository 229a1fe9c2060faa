// NCCL as a communicator: exchanges are enqueued on the current stream and never block the host; a
// thread watches for errors of NCCL, dead peers and time-outs, and then aborts what hangs.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/device_comm.h"
#include "comm/nccl_library.h"
#include "device/device.h"

namespace zero::comm {

struct NcclOptions {
  // False: NCCL adds, in its own order.  True: it only moves bytes and the engine adds in rank
  // order ("libzero": {"reproducible": "stage"}), at the price of N times the received bytes.
  bool rank_order = false;
  uint64_t segment_bytes = UINT64_C(32) << 20; // of each of four staging segments on the device
  int64_t timeout_ns = 0;
  // One that the host program owns: split off, and otherwise left alone.
  void* split_from = nullptr;
};

class NcclCommunicator final : public DeviceComm {
 public:
  // [collective] host: of the same ranks; the unique id travels over it.  Throws UNSUPPORTED where
  // there is no NCCL, COMM where it refuses.
  NcclCommunicator(std::shared_ptr<Communicator> host, device::Device& device,
                   const NcclOptions& options);
  // Local: what is still in flight is aborted.
  ~NcclCommunicator() override;

  zero_comm_kind kind() const override { return ZERO_COMM_NCCL; }
  int32_t usable_channels() const override { return kChannels; }
  std::string overlap_refusal() const override { return {}; }
  uint64_t staging_bytes() const override { return host().staging_bytes() + 4 * segment_bytes_; }
  uint64_t largest_block() const override;

  void exchange_begin(Channel channel, ExchangeKind kind, const CollectiveStamp& stamp,
                      const void* send, uint64_t stride, const void** views) override;
  void exchange_end(Channel channel) override;
  bool sums() const override { return !rank_order_; }
  void sum_on_device(Channel channel, const CollectiveStamp& stamp, int64_t* values,
                     uint64_t count) override;

  void set_namer(const StampNamer* namer) override;
  void abort() noexcept override;
  void check() override;

 private:
  struct Segment { // of one channel, on the device
    std::byte* sent = nullptr;
    std::byte* came = nullptr;
    void* window = nullptr;
    std::unique_ptr<device::Event> ended; // the last exchange's readers
  };
  struct Launch { // one that may not have run yet
    std::unique_ptr<device::Event> event;
    CollectiveStamp stamp;
    int64_t since_ns = 0;
  };
  static constexpr size_t kLaunches = 64;

  Segment& segment(Channel channel) { return segments_[channel == Channel::kGather ? 1 : 0]; }
  std::byte* allocate_segment();
  void free_segments() noexcept;
  void connect(void* split_from);
  // A call's result, once NCCL has made up its mind (a communicator that does not block says "in
  // progress"); throws COMM naming the call.
  void settle(int32_t result, const char* call);
  void reduce_scatter(Segment& here, const CollectiveStamp& stamp, const void* send,
                      uint64_t stride, const void** views);
  void all_to_all(Segment& here, const CollectiveStamp& stamp, const void* send, uint64_t stride,
                  const void** views);
  void gather(Segment& here, const CollectiveStamp& stamp, const void* send, const void** views);
  void note_launch(const CollectiveStamp& stamp);

  void watch();
  // One look; false: the communicator has ended.
  bool look();
  void end_with(const Error& error);

  device::Device& device_;
  const NcclLibrary& nccl_;
  const bool rank_order_;
  const uint64_t segment_bytes_;
  const int64_t timeout_ns_;
  NcclComm comm_ = nullptr;
  Segment segments_[2];
  std::vector<void*> own_memory_; // from ncclMemAlloc
  std::mutex launching_; // groups of calls

  std::mutex watched_; // guards what follows
  std::vector<Launch> launches_; // a ring
  size_t first_launch_ = 0, launch_count_ = 0;
  const StampNamer* namer_ = nullptr;
  std::unique_ptr<Error> ended_by_;
  bool aborted_ = false; // comm_ is gone
  bool leaving_ = false;
  std::condition_variable wake_;
  std::thread watcher_;
};

std::shared_ptr<Communicator> make_nccl(std::shared_ptr<Communicator> host, device::Device& device,
                                        const NcclOptions& options);

} // namespace zero::comm

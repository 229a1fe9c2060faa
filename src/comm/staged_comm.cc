// A communicator of host memory for a runtime on a device: what is sent is copied to host memory
// that the ranks share, what the peers send comes back into staging of the device.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "comm/device_comm.h"
#include "device/device.h"

namespace zero::comm {
namespace {

constexpr uint64_t kAlign = 256; // of a block in staging

class StagedComm final : public DeviceComm {
 public:
  StagedComm(std::shared_ptr<Communicator> host, device::Device& device, uint64_t segment_bytes);
  ~StagedComm() override;

  zero_comm_kind kind() const override { return host().kind(); }
  // An exchange blocks the thread that makes it, and a device's streams have no threads of theirs.
  int32_t usable_channels() const override { return 1; }
  std::string overlap_refusal() const override {
    return "device memory goes through host memory here, and the calling thread carries it";
  }
  uint64_t staging_bytes() const override { return host().staging_bytes() + 4 * segment_bytes_; }

  void exchange_begin(Channel channel, ExchangeKind kind, const CollectiveStamp& stamp,
                      const void* send, uint64_t stride, const void** views) override;
  void exchange_end(Channel channel) override;
  uint64_t largest_block() const override {
    const uint64_t most = segment_bytes_ / static_cast<uint64_t>(size()) / kAlign * kAlign;
    return std::min(most, host().largest_block());
  }
  void sum_on_device(Channel channel, const CollectiveStamp& stamp, int64_t* values,
                     uint64_t count) override;

 private:
  // Of one channel of exchanges: what this rank sends, in host memory, and what came, on the
  // device.
  struct Segment {
    std::byte* sent = nullptr;
    std::byte* came = nullptr;
    std::vector<const void*> views;
  };
  Segment& segment(Channel channel) { return segments_[channel == Channel::kGather ? 1 : 0]; }
  void* allocate_host(uint64_t bytes);
  void release_host(void* memory);

  device::Device& device_;
  const uint64_t segment_bytes_;
  Segment segments_[2];
};

void* StagedComm::allocate_host(uint64_t bytes) {
  if (host().needs_shared_memory()) return host().allocate_shared(bytes);
  return device_.allocate_pinned(bytes);
}

void StagedComm::release_host(void* memory) {
  if (memory == nullptr) return;
  if (host().needs_shared_memory()) {
    host().release_shared(memory);
  } else {
    device_.release_pinned(memory, segment_bytes_);
  }
}

StagedComm::StagedComm(std::shared_ptr<Communicator> host, device::Device& device,
                       uint64_t segment_bytes)
    : DeviceComm(std::move(host)),
      device_(device),
      segment_bytes_(round_up(segment_bytes, kAlign)) {
  if (segment_bytes_ / static_cast<uint64_t>(size()) < kAlign) {
    fail(ZERO_ERR_INTERNAL, "%llu bytes of staging are too few for %d ranks",
         static_cast<unsigned long long>(segment_bytes), size());
  }
  try {
    for (Segment& segment : segments_) {
      segment.sent = static_cast<std::byte*>(allocate_host(segment_bytes_));
      segment.came = static_cast<std::byte*>(device_.allocate(segment_bytes_));
      segment.views.resize(static_cast<size_t>(size()));
    }
  } catch (...) {
    for (Segment& segment : segments_) {
      release_host(segment.sent);
      device_.release(segment.came, segment_bytes_);
    }
    throw;
  }
}

StagedComm::~StagedComm() {
  for (Segment& segment : segments_) {
    release_host(segment.sent);
    device_.release(segment.came, segment_bytes_);
  }
}

void StagedComm::exchange_begin(Channel channel, ExchangeKind kind, const CollectiveStamp& stamp,
                                const void* send, uint64_t stride, const void** views) {
  Segment& here = segment(channel);
  const auto ranks = static_cast<uint64_t>(size());
  const auto own = static_cast<uint64_t>(rank());
  const bool scatters = kind == ExchangeKind::kScatter;
  const bool broadcasts = stamp.operation == Operation::kBroadcast;
  const auto root = broadcasts ? static_cast<uint64_t>(stamp.bucket) : 0;
  const uint64_t step = round_up(stamp.bytes, kAlign);
  if (stamp.bytes > largest_block()) {
    fail(ZERO_ERR_INTERNAL, "a block of %llu bytes was to be exchanged, expected at most %llu",
         static_cast<unsigned long long>(stamp.bytes),
         static_cast<unsigned long long>(largest_block()));
  }
  const auto* const from = static_cast<const std::byte*>(send);
  if (scatters && send != nullptr) {
    for (uint64_t r = 0; r < ranks; ++r) {
      if (r != own) device_.copy(here.sent + r * step, from + r * stride, stamp.bytes);
    }
    device_.synchronize();
  } else if (!scatters && (!broadcasts || root == own)) {
    device_.copy(here.sent, from, stamp.bytes);
    device_.synchronize();
  }
  const void* const sent = scatters && send == nullptr ? nullptr : here.sent;
  host().exchange_begin(channel, kind, stamp, sent, step, here.views.data());
  for (uint64_t r = 0; r < ranks; ++r) {
    views[r] = nullptr;
    if (r == own) {
      views[r] = scatters && send != nullptr ? from + own * stride : from;
    } else if (here.views[r] != nullptr && (!broadcasts || r == root)) {
      device_.copy(here.came + r * step, here.views[r], stamp.bytes);
      views[r] = here.came + r * step;
    }
  }
}

// The peers' memory may change once this has returned; what came is read by what the current
// stream holds already, so that the staging may be written again by what comes after on it.
void StagedComm::exchange_end(Channel channel) {
  device_.synchronize();
  host().exchange_end(channel);
}

void StagedComm::sum_on_device(Channel channel, const CollectiveStamp& stamp, int64_t* values,
                               uint64_t count) {
  auto* const numbers = reinterpret_cast<int64_t*>(segment(channel).sent); // no exchange is open
  const uint64_t most = segment_bytes_ / sizeof(int64_t);
  for (uint64_t done = 0; done < count; done += most) {
    const uint64_t now = std::min(most, count - done);
    device_.copy(numbers, values + done, now * sizeof(int64_t));
    device_.synchronize();
    host().all_reduce_int64(channel, stamp, numbers, now);
    device_.copy(values + done, numbers, now * sizeof(int64_t));
    device_.synchronize();
  }
}

} // namespace

std::shared_ptr<Communicator> make_staged(std::shared_ptr<Communicator> host,
                                          device::Device& device, uint64_t segment_bytes) {
  return std::make_shared<StagedComm>(std::move(host), device, segment_bytes);
}

} // namespace zero::comm

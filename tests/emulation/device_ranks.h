// Ranks whose memory is a device's, on the emulated machine: each is a process with a device of its
// own.  What every communicator of device memory must do.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "local_ranks.h"

#include "device/device.h"

namespace device_ranks {

using namespace local_ranks;
using zero::device::Device;

constexpr int32_t kRanks = 3;
constexpr uint64_t kSegment = 64 * 1024;

using Maker = std::function<std::shared_ptr<Communicator>(std::shared_ptr<Communicator> host,
                                                          Device& device)>;

struct Keep {
  void operator()(Device*) const {}
};

struct Rank {
  Rank(const std::string& group, int32_t rank, const Maker& make)
      : device(zero::device::make_cuda_device(rank)),
        comm(make(join(group, rank, kRanks), *device)) {}
  // Another communicator of a rank that there is.
  Rank(Device& of, std::shared_ptr<Communicator> by) : device(&of, Keep{}), comm(std::move(by)) {}
  std::shared_ptr<Device> device;
  std::shared_ptr<Communicator> comm;

  uint32_t* upload(const std::vector<uint32_t>& values) {
    const uint64_t bytes = values.size() * sizeof(uint32_t);
    auto* const memory = static_cast<uint32_t*>(device->allocate(bytes));
    device->copy(memory, values.data(), bytes);
    device->synchronize();
    return memory;
  }
  std::vector<uint32_t> download(const void* memory, uint64_t count) {
    std::vector<uint32_t> values(count);
    device->copy(values.data(), memory, count * sizeof(uint32_t));
    device->synchronize();
    return values;
  }
};

inline uint32_t value_of(int32_t from, int32_t to, uint64_t i) {
  return static_cast<uint32_t>(from * 1000000 + to * 100000) + static_cast<uint32_t>(i);
}

inline CollectiveStamp device_stamp(uint64_t sequence, Operation operation, uint64_t bytes,
                                    int32_t bucket) {
  CollectiveStamp stamp;
  stamp.sequence = sequence;
  stamp.operation = operation;
  stamp.bytes = bytes;
  stamp.bucket = bucket;
  return stamp;
}

// Runs `body` as each rank, in a process; 0: all ended well.
inline int failures_of(const Maker& make, const std::function<void(Rank&)>& body) {
  const std::string group = fresh_group();
  std::vector<pid_t> children;
  fflush(nullptr);
  for (int32_t r = 0; r < kRanks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kLimitSeconds);
      try {
        Rank rank(group, r, make);
        body(rank);
        rank.comm->leave();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", r, error.what());
        _exit(2);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  int failures = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failures += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  return failures;
}

// Block i of every rank comes to rank i, whatever the stride and wherever the blocks begin.
inline void scatter(Rank& rank) {
  constexpr uint64_t kCount = 1000, kStride = 1500;
  std::vector<uint32_t> values(kRanks * kStride, 7);
  for (int32_t to = 0; to < kRanks; ++to) {
    for (uint64_t i = 0; i < kCount; ++i) {
      values[static_cast<uint64_t>(to) * kStride + i] = value_of(rank.comm->rank(), to, i);
    }
  }
  const uint32_t* const send = rank.upload(values);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const void* views[kRanks];
    rank.comm->exchange_begin(
        Channel::kReduce, ExchangeKind::kScatter,
        device_stamp(sequence, Operation::kReduceScatter, kCount * sizeof(uint32_t), 4), send,
        kStride * sizeof(uint32_t), views);
    for (int32_t from = 0; from < kRanks; ++from) {
      const std::vector<uint32_t> came = rank.download(views[from], kCount);
      for (uint64_t i = 0; i < kCount; ++i) {
        EXPECT(came[i] == value_of(from, rank.comm->rank(), i));
      }
    }
    rank.comm->exchange_end(Channel::kReduce);
  }
}

// A rank that brings nothing has no view.
inline void scatter_of_some(Rank& rank) {
  constexpr uint64_t kCount = 64;
  const uint32_t* const send =
      rank.upload(std::vector<uint32_t>(kRanks * kCount, static_cast<uint32_t>(rank.comm->rank())));
  const void* views[kRanks];
  rank.comm->exchange_begin(
      Channel::kReduce, ExchangeKind::kScatter,
      device_stamp(1, Operation::kReduceScatter, kCount * sizeof(uint32_t), 0),
      rank.comm->rank() == 1 ? nullptr : send, kCount * sizeof(uint32_t), views);
  EXPECT(views[1] == nullptr);
  EXPECT(rank.download(views[0], kCount)[kCount - 1] == 0);
  EXPECT(rank.download(views[2], kCount)[kCount - 1] == 2);
  rank.comm->exchange_end(Channel::kReduce);
}

// The content of what is sent may change as soon as the exchange has ended.
inline void gather(Rank& rank) {
  constexpr uint64_t kCount = 5000;
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    std::vector<uint32_t> values(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      values[i] = value_of(rank.comm->rank(), static_cast<int32_t>(sequence), i);
    }
    uint32_t* const send = rank.upload(values);
    const void* views[kRanks];
    rank.comm->exchange_begin(
        Channel::kGather, ExchangeKind::kGather,
        device_stamp(sequence, Operation::kGather, kCount * sizeof(uint32_t), 2), send, 0, views);
    std::vector<void*> kept;
    for (const void* view : views) {
      kept.push_back(rank.device->allocate(kCount * sizeof(uint32_t)));
      rank.device->copy(kept.back(), view, kCount * sizeof(uint32_t));
    }
    rank.comm->exchange_end(Channel::kGather);
    rank.device->fill(send, 0xff, kCount * sizeof(uint32_t));
    for (int32_t from = 0; from < kRanks; ++from) {
      const auto came = rank.download(kept[static_cast<size_t>(from)], kCount);
      for (uint64_t i = 0; i < kCount; ++i) {
        EXPECT(came[i] == value_of(from, static_cast<int32_t>(sequence), i));
      }
    }
  }
}

inline void broadcast(Rank& rank) {
  constexpr uint64_t kCount = 300;
  const uint32_t* const send =
      rank.upload(std::vector<uint32_t>(kCount, static_cast<uint32_t>(100 + rank.comm->rank())));
  const void* views[kRanks];
  rank.comm->exchange_begin(Channel::kGather, ExchangeKind::kGather,
                            device_stamp(1, Operation::kBroadcast, kCount * sizeof(uint32_t), 2),
                            rank.comm->rank() == 2 ? send : nullptr, 0, views);
  EXPECT(rank.download(views[2], kCount)[kCount - 1] == 102);
  rank.comm->exchange_end(Channel::kGather);
}

// More numbers than a segment holds, in the device's memory; and in the host's, as everywhere.
inline void sums(Rank& rank) {
  constexpr uint64_t kCount = 3 * kSegment / sizeof(int64_t) + 5;
  std::vector<int64_t> numbers(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    numbers[i] = (static_cast<int64_t>(i) << 20) * (rank.comm->rank() + 1);
  }
  const uint64_t bytes = kCount * sizeof(int64_t);
  auto* const memory = static_cast<int64_t*>(rank.device->allocate(bytes));
  rank.device->copy(memory, numbers.data(), bytes);
  rank.comm->sum_on_device(Channel::kControl, device_stamp(1, Operation::kRecord, bytes, -1),
                           memory, kCount);
  rank.device->copy(numbers.data(), memory, bytes);
  rank.device->synchronize();
  for (uint64_t i = 0; i < kCount; ++i) EXPECT(numbers[i] == (static_cast<int64_t>(i) << 20) * 6);
  int64_t one = rank.comm->rank();
  rank.comm->all_reduce_int64(Channel::kControl, device_stamp(2, Operation::kAllReduce, 8, -1),
                              &one, 1);
  EXPECT(one == 3);
}

} // namespace device_ranks

// Ranks whose memory is a device's over a communicator of host memory, on the emulated machine:
// each rank is a process with a device of its own.
// SPDX-License-Identifier: BSD-3-Clause
#include "../unit/local_ranks.h"

#include "device/device.h"

namespace {

using namespace local_ranks;
using zero::device::Device;

constexpr int32_t kRanks = 3;
constexpr uint64_t kSegment = 64 * 1024;

struct Rank {
  explicit Rank(const std::string& group, int32_t rank)
      : device(zero::device::make_cuda_device(rank)),
        comm(zero::comm::make_staged(join(group, rank, kRanks), *device, kSegment)) {}
  std::unique_ptr<Device> device;
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

uint32_t value_of(int32_t from, int32_t to, uint64_t i) {
  return static_cast<uint32_t>(from * 1000000 + to * 100000) + static_cast<uint32_t>(i);
}

CollectiveStamp stamp_of(uint64_t sequence, Operation operation, uint64_t bytes, int32_t bucket) {
  CollectiveStamp stamp;
  stamp.sequence = sequence;
  stamp.operation = operation;
  stamp.bytes = bytes;
  stamp.bucket = bucket;
  return stamp;
}

// Runs `body` as each rank, in a process; 0: all ended well.
int failures_of(const std::function<void(Rank&)>& body) {
  const std::string group = fresh_group();
  std::vector<pid_t> children;
  fflush(nullptr);
  for (int32_t r = 0; r < kRanks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kLimitSeconds);
      try {
        Rank rank(group, r);
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
void scatter(Rank& rank) {
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
        stamp_of(sequence, Operation::kReduceScatter, kCount * sizeof(uint32_t), 4), send,
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

void every_rank_sees_its_block_of_every_rank(void**) {
  assert_int_equal(failures_of(scatter), 0);
}

// A rank that brings nothing has no view.
void scatter_of_some(Rank& rank) {
  constexpr uint64_t kCount = 64;
  const uint32_t* const send =
      rank.upload(std::vector<uint32_t>(kRanks * kCount, static_cast<uint32_t>(rank.comm->rank())));
  const void* views[kRanks];
  rank.comm->exchange_begin(Channel::kReduce, ExchangeKind::kScatter,
                            stamp_of(1, Operation::kReduceScatter, kCount * sizeof(uint32_t), 0),
                            rank.comm->rank() == 1 ? nullptr : send, kCount * sizeof(uint32_t),
                            views);
  EXPECT(views[1] == nullptr);
  EXPECT(rank.download(views[0], kCount)[kCount - 1] == 0);
  EXPECT(rank.download(views[2], kCount)[kCount - 1] == 2);
  rank.comm->exchange_end(Channel::kReduce);
}

void a_rank_that_brings_nothing_has_no_view(void**) {
  assert_int_equal(failures_of(scatter_of_some), 0);
}

// The content of what is sent may change as soon as the exchange has ended.
void gather(Rank& rank) {
  constexpr uint64_t kCount = 5000;
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    std::vector<uint32_t> values(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      values[i] = value_of(rank.comm->rank(), static_cast<int32_t>(sequence), i);
    }
    uint32_t* const send = rank.upload(values);
    const void* views[kRanks];
    rank.comm->exchange_begin(Channel::kGather, ExchangeKind::kGather,
                              stamp_of(sequence, Operation::kGather, kCount * sizeof(uint32_t), 2),
                              send, 0, views);
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

void every_rank_sees_every_block(void**) {
  assert_int_equal(failures_of(gather), 0);
}

void broadcast(Rank& rank) {
  constexpr uint64_t kCount = 300;
  const uint32_t* const send =
      rank.upload(std::vector<uint32_t>(kCount, static_cast<uint32_t>(100 + rank.comm->rank())));
  const void* views[kRanks];
  rank.comm->exchange_begin(Channel::kGather, ExchangeKind::kGather,
                            stamp_of(1, Operation::kBroadcast, kCount * sizeof(uint32_t), 2),
                            rank.comm->rank() == 2 ? send : nullptr, 0, views);
  EXPECT(rank.download(views[2], kCount)[kCount - 1] == 102);
  rank.comm->exchange_end(Channel::kGather);
}

void a_broadcast_needs_the_roots_block_alone(void**) {
  assert_int_equal(failures_of(broadcast), 0);
}

// More numbers than a segment holds, in the device's memory; and in the host's, as everywhere.
void sums(Rank& rank) {
  constexpr uint64_t kCount = 3 * kSegment / sizeof(int64_t) + 5;
  std::vector<int64_t> numbers(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    numbers[i] = (static_cast<int64_t>(i) << 20) * (rank.comm->rank() + 1);
  }
  const uint64_t bytes = kCount * sizeof(int64_t);
  auto* const memory = static_cast<int64_t*>(rank.device->allocate(bytes));
  rank.device->copy(memory, numbers.data(), bytes);
  rank.comm->sum_on_device(Channel::kControl, stamp_of(1, Operation::kRecord, bytes, -1), memory,
                           kCount);
  rank.device->copy(numbers.data(), memory, bytes);
  rank.device->synchronize();
  for (uint64_t i = 0; i < kCount; ++i) EXPECT(numbers[i] == (static_cast<int64_t>(i) << 20) * 6);
  int64_t one = rank.comm->rank();
  rank.comm->all_reduce_int64(Channel::kControl, stamp_of(2, Operation::kAllReduce, 8, -1), &one,
                              1);
  EXPECT(one == 3);
}

void numbers_on_the_device_are_summed(void**) {
  assert_int_equal(failures_of(sums), 0);
}

// What another rank does instead is found by the host's communicator, and said with its words.
void mismatch(Rank& rank) {
  const uint32_t* const send = rank.upload(std::vector<uint32_t>(256, 1));
  const void* views[kRanks];
  zero_status status = ZERO_OK;
  try {
    rank.comm->exchange_begin(Channel::kGather, ExchangeKind::kGather,
                              stamp_of(1, Operation::kGather, rank.comm->rank() == 1 ? 64 : 128, 0),
                              send, 0, views);
  } catch (const zero::Error& error) {
    status = error.status();
  }
  EXPECT(status == ZERO_ERR_COMM_MISMATCH);
}

void a_mismatch_is_the_same_error_as_elsewhere(void**) {
  assert_int_equal(failures_of(mismatch), 0);
}

// A host communicator of two ranks without the other one: what it "sent" is gone when the exchange
// has ended.
class Fleeting final : public Communicator {
 public:
  zero_comm_kind kind() const override { return ZERO_COMM_USER; }
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 2; }
  int32_t local_size() const override { return 2; }
  int32_t usable_channels() const override { return 1; }
  std::string overlap_refusal() const override { return {}; }
  bool needs_shared_memory() const override { return false; }
  void* allocate_shared(uint64_t) override { return nullptr; }
  void release_shared(void*) override {}
  uint64_t staging_bytes() const override { return 0; }
  void exchange_begin(Channel, ExchangeKind, const CollectiveStamp& stamp, const void* send,
                      uint64_t, const void** views) override {
    sent_.assign(stamp.bytes / sizeof(uint32_t), 5);
    views[0] = send;
    views[1] = sent_.data();
  }
  void exchange_end(Channel) override { sent_.assign(sent_.size(), 9); }
  uint64_t largest_block() const override { return UINT64_MAX; }
  void set_namer(const zero::comm::StampNamer*) override {}
  void abort() noexcept override {}
  void check() override {}
  void leave() noexcept override {}

 protected:
  void* small_buffer(Channel) override { return nullptr; }

 private:
  std::vector<uint32_t> sent_;
};

void one_rank_of_two() {
  constexpr uint64_t kCount = 200;
  const auto device = zero::device::make_cuda_device(0);
  const auto comm = zero::comm::make_staged(std::make_shared<Fleeting>(), *device, kSegment);
  void* const send = device->allocate(kCount * sizeof(uint32_t));
  void* const kept = device->allocate(kCount * sizeof(uint32_t));
  const void* views[2];
  comm->exchange_begin(Channel::kGather, ExchangeKind::kGather,
                       stamp_of(1, Operation::kGather, kCount * sizeof(uint32_t), 0), send, 0,
                       views);
  device->copy(kept, views[1], kCount * sizeof(uint32_t));
  comm->exchange_end(Channel::kGather);
  std::vector<uint32_t> values(kCount);
  device->copy(values.data(), kept, kCount * sizeof(uint32_t));
  device->synchronize();
  for (const uint32_t value : values) EXPECT(value == 5);
}

void what_a_peer_sent_has_been_read_when_the_exchange_ends(void**) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLimitSeconds);
    one_rank_of_two();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_rank_sees_its_block_of_every_rank),
      cmocka_unit_test(a_rank_that_brings_nothing_has_no_view),
      cmocka_unit_test(every_rank_sees_every_block),
      cmocka_unit_test(a_broadcast_needs_the_roots_block_alone),
      cmocka_unit_test(numbers_on_the_device_are_summed),
      cmocka_unit_test(what_a_peer_sent_has_been_read_when_the_exchange_ends),
      cmocka_unit_test(a_mismatch_is_the_same_error_as_elsewhere),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// A communicator of host memory for ranks on devices.
// SPDX-License-Identifier: BSD-3-Clause
#include "device_ranks.h"

namespace {

using namespace device_ranks;

std::shared_ptr<Communicator> staged(std::shared_ptr<Communicator> host, Device& device) {
  return zero::comm::make_staged(std::move(host), device, kSegment);
}

void every_rank_sees_its_block_of_every_rank(void**) {
  assert_int_equal(failures_of(staged, scatter), 0);
}

void a_rank_that_brings_nothing_has_no_view(void**) {
  assert_int_equal(failures_of(staged, scatter_of_some), 0);
}

void every_rank_sees_every_block(void**) {
  assert_int_equal(failures_of(staged, gather), 0);
}

void a_broadcast_needs_the_roots_block_alone(void**) {
  assert_int_equal(failures_of(staged, broadcast), 0);
}

void numbers_on_the_device_are_summed(void**) {
  assert_int_equal(failures_of(staged, sums), 0);
}

// What another rank does instead is found by the host's communicator, and said with its words.
void mismatch(Rank& rank) {
  const uint32_t* const send = rank.upload(std::vector<uint32_t>(256, 1));
  const void* views[kRanks];
  zero_status status = ZERO_OK;
  try {
    rank.comm->exchange_begin(
        Channel::kGather, ExchangeKind::kGather,
        device_stamp(1, Operation::kGather, rank.comm->rank() == 1 ? 64 : 128, 0), send, 0, views);
  } catch (const zero::Error& error) {
    status = error.status();
  }
  EXPECT(status == ZERO_ERR_COMM_MISMATCH);
}

void a_mismatch_is_the_same_error_as_elsewhere(void**) {
  assert_int_equal(failures_of(staged, mismatch), 0);
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
                       device_stamp(1, Operation::kGather, kCount * sizeof(uint32_t), 0), send, 0,
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

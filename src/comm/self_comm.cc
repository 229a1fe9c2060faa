// One rank: nothing moves, an exchange yields what it was given.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "comm/comm_failure.h"
#include "comm/communicator.h"

namespace zero::comm {
namespace {

class SelfComm final : public Communicator {
 public:
  zero_comm_kind kind() const override { return ZERO_COMM_SELF; }
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }
  int32_t local_size() const override { return 1; }
  int32_t usable_channels() const override { return kChannels; }
  std::string overlap_refusal() const override { return {}; }

  bool needs_shared_memory() const override { return false; }
  void* allocate_shared(uint64_t) override {
    fail(ZERO_ERR_INTERNAL, "the self communicator needs no shared memory; it was asked for some");
  }
  void release_shared(void*) override {}
  uint64_t staging_bytes() const override { return 0; }

  void exchange_begin(Channel, ExchangeKind, const CollectiveStamp&, const void* send, uint64_t,
                      const void** views) override {
    check();
    views[0] = send;
  }
  void exchange_end(Channel) override { check(); }
  uint64_t largest_block() const override { return UINT64_MAX; }
  // Nothing is read or written here, wherever it lies.
  bool handles_device_memory() const override { return true; }
  void sum_on_device(Channel, const CollectiveStamp&, int64_t*, uint64_t) override { check(); }
  void set_namer(const StampNamer*) override {}

  void abort() noexcept override {
    Failure failure;
    failure.status = ZERO_ERR_COMM_ABORTED;
    failure.rank = 0;
    failure.text = "the communicator was aborted by rank 0";
    post_failure(failure_, 0, failure);
  }
  void check() override {
    if (has_failure(failure_)) throw_failure(failure_, "");
  }
  void leave() noexcept override {}

 protected:
  void* small_buffer(Channel) override { return nullptr; }

 private:
  FailureRecord failure_ = {};
};

} // namespace

std::shared_ptr<Communicator> make_self() {
  return std::make_shared<SelfComm>();
}

} // namespace zero::comm

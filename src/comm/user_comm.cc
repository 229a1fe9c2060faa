// SPDX-License-Identifier: BSD-3-Clause
#include "comm/user_comm.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "comm/comm_failure.h"
#include "comm/communicator.h"

namespace zero::comm {
namespace {

constexpr uint64_t kStagingBytes = UINT64_C(4) << 20; // each of send and receive
constexpr uint64_t kGrain = 256; // a chunk of 32 elements of up to 8 bytes

std::atomic<std::string (*)()> message_source{nullptr};

class UserComm final : public Communicator {
 public:
  UserComm(int32_t rank, int32_t size, const zero_comm_callbacks& callbacks, void* user_data)
      : rank_(rank), size_(size), callbacks_(callbacks), user_data_(user_data) {
    void* const memory = mmap(nullptr, staging_bytes(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
      throw Error(ZERO_ERR_OUT_OF_MEMORY,
                  format("staging of %llu bytes for a communicator of the host program's own: %s",
                         static_cast<unsigned long long>(staging_bytes()), std::strerror(errno)),
                  -1, errno, "os");
    }
    staging_ = static_cast<char*>(memory);
    local_size_ = local_size_by_environment();
  }

  ~UserComm() override {
    munmap(staging_, staging_bytes());
    if (callbacks_.destroy != nullptr) callbacks_.destroy(user_data_);
  }

  zero_comm_kind kind() const override { return ZERO_COMM_USER; }
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  int32_t local_size() const override { return local_size_; }
  int32_t usable_channels() const override {
    return callbacks_.any_thread != 0 ? std::min(callbacks_.channels, kChannels) : 1;
  }
  std::string overlap_refusal() const override {
    if (callbacks_.any_thread == 0) {
      return "the callbacks of this communicator do not declare any_thread";
    }
    if (callbacks_.channels < kChannels) {
      return format("the callbacks of this communicator have %d channels, overlap needs %d",
                    callbacks_.channels, kChannels);
    }
    return {};
  }

  bool needs_shared_memory() const override { return false; }
  void* allocate_shared(uint64_t) override {
    fail(ZERO_ERR_INTERNAL, "a user communicator needs no shared memory; it was asked for some");
  }
  void release_shared(void*) override {}
  uint64_t staging_bytes() const override { return user_staging_bytes(size_); }

  void exchange_begin(Channel channel, ExchangeKind kind, const CollectiveStamp& stamp,
                      const void* send, uint64_t stride, const void** views) override {
    check();
    const auto n = static_cast<uint64_t>(size_);
    if (stamp.bytes > largest_block()) {
      fail(ZERO_ERR_INTERNAL, "an exchange of blocks of %llu bytes, expected at most %llu",
           static_cast<unsigned long long>(stamp.bytes),
           static_cast<unsigned long long>(largest_block()));
    }
    char* const send_staging = staging_ + static_cast<uint64_t>(channel) * 2 * n * largest_block();
    char* const received = send_staging + n * largest_block();
    for (uint64_t i = 0; i < n; ++i) views[i] = received + i * stamp.bytes;
    if (stamp.bytes == 0) return;
    const int32_t number = std::min(static_cast<int32_t>(channel), callbacks_.channels - 1);
    if (kind == ExchangeKind::kGather) {
      if (send == nullptr) send = std::memset(send_staging, 0, stamp.bytes);
      verify("all_gather", callbacks_.all_gather(user_data_, number, send, received, stamp.bytes,
                                                 ZERO_PLACE_HOST, nullptr));
      return;
    }
    const void* blocks = send;
    if (send == nullptr) {
      std::memset(send_staging, 0, n * stamp.bytes);
      blocks = send_staging;
    } else if (stride != stamp.bytes) {
      for (uint64_t i = 0; i < n; ++i) {
        std::memcpy(send_staging + i * stamp.bytes, static_cast<const char*>(send) + i * stride,
                    stamp.bytes);
      }
      blocks = send_staging;
    }
    verify("all_to_all", callbacks_.all_to_all(user_data_, number, blocks, received, stamp.bytes,
                                               ZERO_PLACE_HOST, nullptr));
  }

  // The callbacks return when their operation is done: nobody reads this rank's send any more.
  void exchange_end(Channel) override { check(); }
  uint64_t largest_block() const override { return user_block_bytes(size_); }
  void set_namer(const StampNamer*) override {}

  void abort() noexcept override {
    Failure failure;
    failure.status = ZERO_ERR_COMM_ABORTED;
    failure.rank = rank_;
    failure.text = "the communicator was aborted";
    post_failure(failure_, rank_, failure);
    if (callbacks_.abort != nullptr) callbacks_.abort(user_data_);
  }
  void check() override {
    if (has_failure(failure_)) throw_failure(failure_, "");
  }
  void leave() noexcept override {}

 protected:
  void* small_buffer(Channel) override { return nullptr; }

 private:
  // The callbacks do not say who is on this machine; the launcher may.
  int32_t local_size_by_environment() const {
    try {
      const RankEnvironment environment = read_rank_environment();
      return environment.size == size_ ? environment.local_size : 1;
    } catch (const Error&) {
      return 1; // its ranks are not ours to judge
    }
  }

  // A callback that failed leaves its collective half-done: its status is this communicator's end.
  void verify(const char* name, zero_status status) {
    if (status == ZERO_OK) return check(); // aborted meanwhile
    Failure failure;
    failure.status = status;
    failure.origin = "callback";
    const auto take = message_source.load(std::memory_order_acquire);
    if (take != nullptr) failure.text = take();
    if (failure.text.empty()) {
      failure.text =
          format("the %s callback of the host program's communicator returned %d", name, status);
    }
    post_failure(failure_, rank_, failure);
    check();
  }

  const int32_t rank_;
  const int32_t size_;
  const zero_comm_callbacks callbacks_;
  void* const user_data_;
  int32_t local_size_ = 1;
  char* staging_ = nullptr; // a channel: size blocks to send, size blocks received
  FailureRecord failure_ = {};
};

} // namespace

uint64_t user_block_bytes(int32_t size) {
  const uint64_t share = kStagingBytes / static_cast<uint64_t>(std::max(size, 1));
  return std::max(share / kGrain * kGrain, kGrain);
}

uint64_t user_staging_bytes(int32_t size) {
  return kChannels * 2 * static_cast<uint64_t>(std::max(size, 1)) * user_block_bytes(size);
}

void set_callback_message_source(std::string (*take)()) {
  message_source.store(take, std::memory_order_release);
}

std::shared_ptr<Communicator> make_user(int32_t rank, int32_t size,
                                        const zero_comm_callbacks& callbacks, void* user_data) {
  if (size < 1) fail(ZERO_ERR_INVALID_ARGUMENT, "size is %d, expected 1 or more ranks", size);
  if (rank < 0 || rank >= size) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "rank is %d, expected 0 <= rank < %d", rank, size);
  }
  if (callbacks.all_gather == nullptr) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "callbacks: all_gather is NULL, expected a function");
  }
  if (callbacks.all_to_all == nullptr) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "callbacks: all_to_all is NULL, expected a function");
  }
  if (callbacks.channels < 1) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "callbacks: channels is %d, expected 1 or more",
         callbacks.channels);
  }
  return std::make_shared<UserComm>(rank, size, callbacks, user_data);
}

} // namespace zero::comm

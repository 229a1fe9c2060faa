// What communicators of device memory have in common: a communicator of host memory beside them,
// which carries the small collectives, compares what the ranks announce, and notices who is dead.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <utility>

#include "base/error.h"
#include "comm/communicator.h"

namespace zero::comm {

class DeviceComm : public Communicator {
 public:
  explicit DeviceComm(std::shared_ptr<Communicator> host) : host_(std::move(host)) {}

  int32_t rank() const override { return host_->rank(); }
  int32_t size() const override { return host_->size(); }
  int32_t local_size() const override { return host_->local_size(); }
  bool needs_shared_memory() const override { return false; }
  void* allocate_shared(uint64_t) override {
    fail(ZERO_ERR_INTERNAL, "a communicator of device memory sends from any memory of the device");
  }
  void release_shared(void*) override {}
  bool handles_device_memory() const override { return true; }

  void announce(const CollectiveStamp& stamp) override { host_->announce(stamp); }
  void set_namer(const StampNamer* namer) override { host_->set_namer(namer); }
  void abort() noexcept override { host_->abort(); }
  void check() override { host_->check(); }
  void leave() noexcept override { host_->leave(); }

  // Of host memory, as they are.
  void all_gather(Channel channel, CollectiveStamp stamp, const void* send, void* recv,
                  uint64_t bytes_each) override {
    host_->all_gather(channel, stamp, send, recv, bytes_each);
  }
  void broadcast(Channel channel, CollectiveStamp stamp, void* bytes, uint64_t count,
                 int32_t root) override {
    host_->broadcast(channel, stamp, bytes, count, root);
  }
  void barrier(Channel channel, CollectiveStamp stamp) override { host_->barrier(channel, stamp); }
  void all_reduce_int64(Channel channel, CollectiveStamp stamp, int64_t* values,
                        uint64_t count) override {
    host_->all_reduce_int64(channel, stamp, values, count);
  }
  void all_reduce_double(Channel channel, CollectiveStamp stamp, double* values, uint64_t count,
                         zero_reduce op) override {
    host_->all_reduce_double(channel, stamp, values, count, op);
  }

 protected:
  void* small_buffer(Channel) override { return nullptr; } // the small ones are the host's
  Communicator& host() const { return *host_; }

 private:
  const std::shared_ptr<Communicator> host_;
};

} // namespace zero::comm

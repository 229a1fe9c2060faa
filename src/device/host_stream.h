// Streams of the host device: a queue on a thread of its own, or none at all (inline).
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "device/device.h"

namespace zero::device {

// Tasks run inside submit, on the calling thread.
class InlineStream final : public Stream {
 public:
  uint64_t submit(Task task, void* context, uint64_t first, uint64_t second) override;
  void wait(uint64_t) override {}
  bool done(uint64_t ticket) const override { return ticket <= last_ticket(); }
  uint64_t last_ticket() const override { return last_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> last_{0};
};

// A ring of kCapacity tasks and one worker thread.  submit may be called from several threads,
// though from the worker itself only while the ring is not full.
class QueueStream final : public Stream {
 public:
  static constexpr uint64_t kCapacity = 4096;

  QueueStream();
  ~QueueStream() override;
  uint64_t submit(Task task, void* context, uint64_t first, uint64_t second) override;
  void wait(uint64_t ticket) override;
  bool done(uint64_t ticket) const override;
  uint64_t last_ticket() const override;

 private:
  struct Entry {
    Task task;
    void* context;
    uint64_t first;
    uint64_t second;
  };

  void work();

  const std::unique_ptr<Entry[]> ring_;
  mutable std::mutex mutex_;
  std::condition_variable submitted_; // the worker waits here
  std::condition_variable completed_; // wait and a full submit wait here
  uint64_t last_ticket_ = 0; // guarded by mutex_
  bool ending_ = false; // guarded by mutex_
  std::atomic<uint64_t> done_ticket_{0}; // written under mutex_ by the worker alone
  std::thread worker_;
};

} // namespace zero::device

// Ticket t occupies ring slot t modulo kCapacity from its submission until it has run.
// SPDX-License-Identifier: BSD-3-Clause
#include "device/host_stream.h"

#include <system_error>

#include "base/error.h"

namespace zero::device {

uint64_t InlineStream::submit(Task task, void* context, uint64_t first, uint64_t second) {
  task(context, first, second);
  return last_.fetch_add(1, std::memory_order_acq_rel) + 1;
}

QueueStream::QueueStream() : ring_(std::make_unique<Entry[]>(kCapacity)) {
  try {
    worker_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    fail(ZERO_ERR_OUT_OF_MEMORY, "the worker thread of a stream could not be started: %s",
         error.what());
  }
}

QueueStream::~QueueStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  submitted_.notify_one();
  worker_.join();
}

uint64_t QueueStream::submit(Task task, void* context, uint64_t first, uint64_t second) {
  uint64_t ticket;
  {
    std::unique_lock lock(mutex_);
    completed_.wait(lock, [this] {
      return last_ticket_ - done_ticket_.load(std::memory_order_relaxed) < kCapacity;
    });
    ticket = ++last_ticket_;
    ring_[ticket % kCapacity] = Entry{task, context, first, second};
  }
  submitted_.notify_one();
  return ticket;
}

void QueueStream::wait(uint64_t ticket) {
  if (done(ticket)) return;
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [&] { return done_ticket_.load(std::memory_order_relaxed) >= ticket; });
}

bool QueueStream::done(uint64_t ticket) const {
  return done_ticket_.load(std::memory_order_acquire) >= ticket;
}

uint64_t QueueStream::last_ticket() const {
  const std::lock_guard lock(mutex_);
  return last_ticket_;
}

void QueueStream::work() {
  std::unique_lock lock(mutex_);
  for (uint64_t ticket = 1;; ticket++) {
    submitted_.wait(lock, [&] { return last_ticket_ >= ticket || ending_; });
    if (last_ticket_ < ticket) return; // ending, and everything queued has run
    const Entry entry = ring_[ticket % kCapacity];
    lock.unlock();
    entry.task(entry.context, entry.first, entry.second);
    lock.lock();
    done_ticket_.store(ticket, std::memory_order_release);
    completed_.notify_all();
  }
}

} // namespace zero::device

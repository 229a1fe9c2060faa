// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/read_ahead.h"

#include "checkpoint/quiet_thread.h"

namespace zero::checkpoint {

ReadAhead::ReadAhead(const File& file, uint64_t buffer_bytes, int32_t buffers, Next next)
    : file_(file),
      buffer_bytes_(buffer_bytes),
      limit_(static_cast<size_t>(buffers)),
      next_(std::move(next)) {
  slots_.reserve(limit_);
  more_ = next_(&upcoming_);
}

ReadAhead::~ReadAhead() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const uint8_t* ReadAhead::take(Part* part) {
  if (!threaded_) {
    if (!more_) return nullptr;
    if (slots_.empty()) slots_.push_back(Slot{AlignedBuffer(buffer_bytes_), {}});
    Slot& first = slots_[0];
    first.part = *part = upcoming_;
    more_ = next_(&upcoming_);
    if (!more_) {
      file_.read(first.part.offset, first.memory.data(), first.part.bytes);
      return first.memory.data();
    }
    // More will come, and there is something to gain.
    while (slots_.size() < limit_) slots_.push_back(Slot{AlignedBuffer(buffer_bytes_), {}});
    file_.read(first.part.offset, first.memory.data(), first.part.bytes);
    read_ = taken_ = 1;
    holding_ = threaded_ = true;
    thread_ = start_quiet_thread([this] { run(); });
    return first.memory.data();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  holding_ = false;
  changed_.notify_all();
  changed_.wait(lock, [&] { return taken_ < read_ || ended_; });
  if (taken_ == read_) {
    if (failure_) std::rethrow_exception(failure_);
    return nullptr;
  }
  const Slot& slot = slots_[taken_ % limit_];
  ++taken_;
  holding_ = true;
  *part = slot.part;
  return slot.memory.data();
}

void ReadAhead::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (more_ && !ending_) {
    changed_.wait(lock, [&] { return ending_ || read_ - taken_ + (holding_ ? 1 : 0) < limit_; });
    if (ending_) break;
    Slot& slot = slots_[read_ % limit_];
    lock.unlock();
    slot.part = upcoming_;
    std::exception_ptr failure;
    try {
      file_.read(slot.part.offset, slot.memory.data(), slot.part.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    const bool more = !failure && next_(&upcoming_);
    lock.lock();
    if (failure) {
      failure_ = failure;
      break;
    }
    more_ = more;
    ++read_;
    changed_.notify_all();
  }
  ended_ = true;
  changed_.notify_all();
}

} // namespace zero::checkpoint

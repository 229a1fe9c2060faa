// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/write_behind.h"

#include "checkpoint/quiet_thread.h"

namespace zero::checkpoint {

WriteBehind::WriteBehind(File& file, uint64_t buffer_bytes, int32_t buffers)
    : file_(file), buffer_bytes_(buffer_bytes), limit_(static_cast<size_t>(buffers)) {
  slots_.reserve(limit_);
}

WriteBehind::~WriteBehind() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WriteBehind::throw_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

std::byte* WriteBehind::buffer() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t next = given_;
  changed_.wait(lock, [&] { return failure_ || next - written_ < limit_; });
  throw_failure();
  if (next < limit_ && slots_.size() == next) slots_.push_back(Slot{AlignedBuffer(buffer_bytes_)});
  return reinterpret_cast<std::byte*>(slots_[next % limit_].memory.data());
}

void WriteBehind::write(uint64_t offset, uint64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Slot& slot = slots_[given_ % limit_];
    slot.offset = offset;
    slot.bytes = bytes;
    ++given_;
  }
  changed_.notify_all();
  // A full buffer: more will come, and there is something to gain.
  if (bytes == buffer_bytes_ && !thread_.joinable()) {
    thread_ = start_quiet_thread([this] { run(); });
    return;
  }
  if (thread_.joinable()) return;
  const Slot& slot = slots_[written_ % limit_];
  file_.write(slot.offset, slot.memory.data(), slot.bytes);
  ++written_;
}

void WriteBehind::finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || written_ == given_; });
  throw_failure();
}

void WriteBehind::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || written_ < given_; });
    if (ending_) return;
    const Slot& slot = slots_[written_ % limit_];
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_.write(slot.offset, slot.memory.data(), slot.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      changed_.notify_all();
      return;
    }
    ++written_;
    changed_.notify_all();
  }
}

} // namespace zero::checkpoint

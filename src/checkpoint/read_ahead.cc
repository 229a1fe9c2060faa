// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/read_ahead.h"

#include "checkpoint/quiet_thread.h"

namespace zero::checkpoint {

ReadAhead::ReadAhead(const File& file, const Ring& ring, Next next, Check check)
    : file_(file),
      ring_(ring),
      next_(std::move(next)),
      check_(std::move(check)),
      slots_(static_cast<size_t>(ring.buffers)) {
  more_ = next_(&upcoming_);
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::fill(Slot* slot) const {
  try {
    if (!slot->memory) slot->memory.emplace(ring_.buffer_bytes);
    file_.read(slot->part.offset, slot->memory->data(), slot->part.bytes);
    check_(slot->part, slot->memory->data());
  } catch (...) {
    slot->failure = std::current_exception();
  }
}

// pre: locked, more_, and a slot is free.
ReadAhead::Slot* ReadAhead::claim() {
  Slot* const slot = &slots_[claimed_++ % slots_.size()];
  slot->part = upcoming_;
  more_ = next_(&upcoming_);
  return slot;
}

// As many as the system lets start; without any the caller reads.
void ReadAhead::start_threads() {
  try {
    for (int32_t i = 0; i < ring_.threads; ++i) {
      threads_.push_back(start_quiet_thread([this] { run(); }));
    }
  } catch (const std::exception&) {
    // Only slower.
  }
}

const uint8_t* ReadAhead::take(Part* part) {
  std::unique_lock<std::mutex> lock(mutex_);
  holding_ = false;
  changed_.notify_all();
  if (taken_ == claimed_ && threads_.empty() && more_) {
    Slot* const slot = claim();
    if (claimed_ == 1 && more_) start_threads(); // more will come, and there is something to gain
    lock.unlock();
    fill(slot);
    lock.lock();
    slot->done = true;
  }
  Slot& slot = slots_[taken_ % slots_.size()];
  changed_.wait(lock, [&] { return taken_ == claimed_ ? !more_ : slot.done; });
  if (taken_ == claimed_) return nullptr;
  if (slot.failure) std::rethrow_exception(slot.failure);
  slot.done = false;
  ++taken_;
  holding_ = true;
  *part = slot.part;
  return slot.memory->data();
}

void ReadAhead::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !more_ || may_claim(); });
    if (ending_ || !more_) return;
    Slot* const slot = claim();
    lock.unlock();
    fill(slot);
    lock.lock();
    slot->done = true;
    if (slot->failure) more_ = false; // nobody will want what comes behind it
    changed_.notify_all();
  }
}

} // namespace zero::checkpoint

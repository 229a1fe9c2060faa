// Parts of a file in a given order: other threads read the next ones into a ring of aligned buffers
// and check them while the caller works on one.  A single part is read without a thread.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/file.h"

namespace zero::checkpoint {

class ReadAhead {
 public:
  struct Part {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  // The part behind the one it gave last; false: no more.  Called by one thread at a time, not
  // always the caller's; throws nothing.  No part is larger than buffer_bytes.
  using Next = std::function<bool(Part* part)>;
  // Of what has been read; throws what is wrong with it.  Any thread, several at once.
  using Check = std::function<void(const Part& part, const uint8_t* bytes)>;
  struct Ring {
    uint64_t buffer_bytes = 0;
    int32_t buffers = 0; // one is the caller's
    int32_t threads = 0; // each reads and checks: the disk is busy while one of them checks
  };
  ReadAhead(const File& file, const Ring& ring, Next next, Check check);
  ~ReadAhead(); // what is read and not taken is dropped
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The bytes of the next part, until the next call; null: no more.  Throws what reading or
  // checking it has thrown.
  const uint8_t* take(Part* part);

 private:
  struct Slot {
    std::optional<AlignedBuffer> memory; // made when it is first used
    Part part;
    bool done = false; // read, or failed
    std::exception_ptr failure;
  };
  void run();
  void start_threads();
  Slot* claim();
  void fill(Slot* slot) const;
  bool may_claim() const { return claimed_ - taken_ + (holding_ ? 1 : 0) < slots_.size(); }

  const File& file_;
  const Ring ring_;
  const Next next_;
  const Check check_;
  std::vector<Slot> slots_;
  std::mutex mutex_; // guards what follows, and the slots but for those that a thread fills
  std::condition_variable changed_;
  Part upcoming_; // the next one to claim, while there is one
  bool more_ = false;
  uint64_t claimed_ = 0; // parts that a thread reads or has read, in turn
  uint64_t taken_ = 0;
  bool holding_ = false; // the caller works on part taken_ - 1
  bool ending_ = false; // nothing more is to be read
  std::vector<std::thread> threads_;
};

} // namespace zero::checkpoint

// Parts of a file in a given order: another thread reads the next ones into a ring of aligned
// buffers while the caller works on one.  A single part is read without a thread.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
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
  // next: the part behind the one it gave last; false: no more.  Called by one thread at a time,
  // not always the caller's; throws nothing.  No part is larger than buffer_bytes.
  using Next = std::function<bool(Part* part)>;
  ReadAhead(const File& file, uint64_t buffer_bytes, int32_t buffers, Next next);
  ~ReadAhead(); // what is read and not taken is dropped
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The bytes of the next part, until the next call; null: no more.  Throws what reading it has
  // thrown.
  const uint8_t* take(Part* part);

 private:
  struct Slot {
    AlignedBuffer memory;
    Part part;
  };
  void run();

  const File& file_;
  const uint64_t buffer_bytes_;
  const size_t limit_;
  const Next next_;
  std::vector<Slot> slots_; // made before the thread starts
  Part upcoming_; // the part to read next, while there is one
  bool more_ = false;
  bool threaded_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t read_ = 0; // parts that lie in slots, in turn
  uint64_t taken_ = 0;
  bool holding_ = false; // the caller works on part taken_ - 1
  bool ended_ = false; // the thread reads no more
  bool ending_ = false; // nor should it
  std::exception_ptr failure_; // of the part behind the last one read
  std::thread thread_;
};

} // namespace zero::checkpoint

// A ring of aligned buffers before a file: the caller fills one while another thread writes the
// ones before.  What fits in one buffer is written without a thread. SPDX-License-Identifier:
// BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/file.h"

namespace zero::checkpoint {

class WriteBehind {
 public:
  WriteBehind(File& file, uint64_t buffer_bytes, int32_t buffers);
  ~WriteBehind(); // drops what is not written yet
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // The next one to fill; waits for one to be free.  Throws what a write before has thrown.
  std::byte* buffer();
  // What buffer() gave last goes to the file.
  void write(uint64_t offset, uint64_t bytes);
  // All is written; throws what went wrong.
  void finish();

 private:
  struct Slot {
    AlignedBuffer memory;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  void run();
  void throw_failure();

  File& file_;
  const uint64_t buffer_bytes_;
  const size_t limit_;
  std::vector<Slot> slots_; // made as they are needed
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t given_ = 0; // buffers handed to write, in turn
  uint64_t written_ = 0;
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

} // namespace zero::checkpoint

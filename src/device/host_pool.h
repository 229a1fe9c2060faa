// The kernel threads of a host device: helpers that share the parts of whoever calls run().
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "device/device.h"

namespace zero::device {

class HostPool {
 public:
  explicit HostPool(int32_t threads); // helpers are threads - 1
  ~HostPool();
  int32_t width() const { return width_; }
  // As Device::parallel; a part's index is its place in the range, and each index runs once.
  void run(uint64_t count, uint64_t grain, Part part, void* context);

 private:
  // One call of run, on its caller's stack, linked in while it has parts that nobody has taken.
  struct Job {
    Part part;
    void* context;
    uint64_t count;
    uint64_t step; // elements a part, a multiple of grain
    int32_t parts;
    int32_t taken = 0;
    int32_t finished = 0;
    Job* next = nullptr;
  };

  void help();
  void stop();
  int32_t take(Job* job); // under mutex_; unlinks the job with its last part
  static void run_part(const Job& job, int32_t index);

  const int32_t width_;
  std::mutex mutex_;
  std::condition_variable offered_;
  std::condition_variable finished_;
  Job* jobs_ = nullptr; // guarded by mutex_
  bool ending_ = false; // guarded by mutex_
  std::vector<std::thread> helpers_;
};

} // namespace zero::device

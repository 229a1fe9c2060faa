// The seam between the engine and where memory and streams live.  One file an implementation.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <memory>

namespace zero::device {

// A task never throws and never allocates; what goes wrong in it is kept by whoever submitted it.
using Task = void (*)(void* context, uint64_t first, uint64_t second);

// A queue run in order.  Tickets count from 1.  submit and wait allocate nothing.
class Stream {
 public:
  virtual ~Stream() = default; // runs what is queued, then ends
  // Blocks only while the queue (kCapacity tasks) is full.
  virtual uint64_t submit(Task task, void* context, uint64_t first, uint64_t second) = 0;
  // Until the task with this ticket, and so all before it, has run.
  virtual void wait(uint64_t ticket) = 0;
  virtual bool done(uint64_t ticket) const = 0;
  virtual uint64_t last_ticket() const = 0;
  void drain() { wait(last_ticket()); }
};

// Splits [0, count) at multiples of grain over the threads of the device and returns when all
// parts have run.  part(context, begin, end, index), index < parallel_width().
using Part = void (*)(void* context, uint64_t begin, uint64_t end, int32_t index);

class Device {
 public:
  virtual ~Device() = default;
  virtual zero_place place() const = 0;
  // Zero-filled, at least 4 KiB aligned (2 MiB and huge pages from 2 MiB on), populated.  Throws
  // OUT_OF_MEMORY saying how much.
  virtual void* allocate(uint64_t bytes) = 0;
  virtual void release(void* memory, uint64_t bytes) = 0;
  // inline_stream: tasks run inside submit.
  virtual std::unique_ptr<Stream> create_stream(bool inline_stream) = 0;
  virtual int32_t parallel_width() const = 0;
  // May be called from several streams at once; each call runs on the calling thread and on
  // whichever helpers are free.
  virtual void parallel(uint64_t count, uint64_t grain, Part part, void* context) = 0;
};

// threads >= 1: kernel threads of this rank, the calling one included.
std::unique_ptr<Device> make_host_device(int32_t threads);
// What a machine without CUDA answers: throws UNSUPPORTED with the reason.
std::unique_ptr<Device> make_cuda_device(int32_t device);

} // namespace zero::device

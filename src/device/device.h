// The seam between the engine and where memory and streams live.  One file an implementation.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <memory>

namespace zero::kernels {
struct CudaKernelTable;
}

namespace zero::device {

// ---- the stream of the calling thread -----------------------------------------------------------
// Everything that works on device memory is ordered on the current stream of the thread that asks
// for it: a cudaStream_t, null being CUDA's legacy default stream.  On the host device nobody looks
// at it.
void* current_stream();
// Makes `stream` current until it goes.
class StreamScope {
 public:
  explicit StreamScope(void* stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  void* const before_;
};

// A task never throws and never allocates; what goes wrong in it is kept by whoever submitted it.
using Task = void (*)(void* context, uint64_t first, uint64_t second);

// A queue run in order.  Tickets count from 1.  submit and wait allocate nothing.
// Of the host device: tasks run on a thread of the queue's own, and wait blocks.
// Of a CUDA device: tasks run inside submit, on the calling thread, with the queue's own stream
// current, which first waits for what the caller's current stream holds; a ticket is an event on
// it.  wait makes the caller's current stream wait for that event and does not block; a ticket that
// this stream has waited for already (or a later one) is passed over, so that a captured graph
// never waits for what came before its capture.
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

// A place in a stream that other streams, or the host, can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record() = 0; // on the current stream
  virtual void wait() = 0; // the current stream waits; nothing recorded: does nothing
  virtual void host_wait() = 0;
  virtual bool done() const = 0; // never blocks; nothing recorded: true
};

// Splits [0, count) at multiples of grain over the threads of the device and returns when all
// parts have run.  part(context, begin, end, index), index < parallel_width().
using Part = void (*)(void* context, uint64_t begin, uint64_t end, int32_t index);

// Throws Error of status DEVICE or DEVICE_LOST, origin "cuda", native_code the cudaError_t, where
// CUDA refuses.
class Device {
 public:
  virtual ~Device() = default;
  virtual zero_place place() const = 0;
  virtual int32_t ordinal() const { return -1; } // of the CUDA device
  // Null on the host device.
  virtual const kernels::CudaKernelTable* cuda_kernels() const { return nullptr; }
  // Throws where a launcher of that table returned an error; `what` names it.
  virtual void check_launch(int32_t error, const char* what) const;

  // Zero-filled, at least 4 KiB aligned (2 MiB and huge pages from 2 MiB on), populated.  Throws
  // OUT_OF_MEMORY saying how much (OUT_OF_DEVICE_MEMORY).  Blocks.
  virtual void* allocate(uint64_t bytes) = 0;
  virtual void release(void* memory, uint64_t bytes) = 0;
  // Host memory that the device reads and writes without blocking the host; zero-filled.
  virtual void* allocate_pinned(uint64_t bytes) { return allocate(bytes); }
  virtual void release_pinned(void* memory, uint64_t bytes) { release(memory, bytes); }

  // On the current stream; dst and src may each be of the device or of the host.  What lies in host
  // memory must stay as it is until that has run: synchronize.
  virtual void copy(void* dst, const void* src, uint64_t bytes) = 0;
  virtual void fill(void* dst, uint8_t value, uint64_t bytes) = 0;
  // Blocks until all that the current stream holds has run.
  virtual void synchronize() = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  // Whether the current stream is being captured into a graph: then nothing may block.
  virtual bool capturing() const { return false; }
  // What kind of memory: HOST where CUDA does not know the pointer; its device in *device, else -1.
  virtual zero_place place_of(const void* memory, int32_t* device) const;

  // inline_stream: tasks run inside submit; of a CUDA device on the current stream itself.
  virtual std::unique_ptr<Stream> create_stream(bool inline_stream) = 0;
  // The threads of the host beside the device: a CUDA device has one, the caller's.
  virtual int32_t parallel_width() const = 0;
  // May be called from several streams at once; each call runs on the calling thread and on
  // whichever helpers are free.
  virtual void parallel(uint64_t count, uint64_t grain, Part part, void* context) = 0;
};

// threads >= 1: kernel threads of this rank, the calling one included.
std::unique_ptr<Device> make_host_device(int32_t threads);
// ordinal -1: LOCAL_RANK's, else 0.  Throws UNSUPPORTED with the reason where there is none.
std::unique_ptr<Device> make_cuda_device(int32_t ordinal);

} // namespace zero::device

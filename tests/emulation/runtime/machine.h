// The emulated machine: operations on streams, which run as late as CUDA allows and in an adverse
// order.  Nothing runs until a host thread waits for something; then only what that depends on
// runs, one branch after the other, in an order drawn from CUEMU_STREAMS:
//   late[:seed]   as said (the default)
//   eager         each operation as soon as what it depends on has run: at once, where nothing
//   waits mixed:seed    late, with single operations run early
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

struct CUgraph_st {
  struct Node {
    cuemu::Body body;
    const char* what;
    int device;
    std::vector<size_t> after;
    const void* owner; // the communicator
  };
  std::vector<Node> nodes;
};
struct CUgraphExec_st {
  std::vector<CUgraph_st::Node> nodes;
};

namespace cuemu {

struct Operation {
  Body body;
  const char* what = "";
  const void* owner = nullptr; // the communicator
  int device = 0;
  std::vector<std::shared_ptr<Operation>> after; // empty once it has run
  uint64_t phase = 0;
  uint64_t blocked_pass = 0;
  bool done = false;
};
using Ticket = std::shared_ptr<Operation>;

// What streams are being captured into.
struct Capture {
  CUgraph_st graph;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalidated = false;
  std::vector<cudaStream_t> streams;
};

} // namespace cuemu

struct CUstream_st {
  int device = 0;
  bool blocking = true; // synchronises with the legacy stream
  bool alive = true;
  cuemu::Ticket last;
  std::vector<cuemu::Ticket> joins; // events to wait for before what comes next
  std::shared_ptr<cuemu::Capture> capture;
  std::vector<size_t> capture_after; // nodes that the next one comes after
};

struct CUevent_st {
  int device = 0;
  bool alive = true;
  cuemu::Ticket mark;
  std::shared_ptr<cuemu::Capture> capture;
  std::vector<size_t> capture_after;
};

namespace cuemu {

class Machine {
 public:
  static Machine& get();
  using Lock = std::unique_lock<std::mutex>;
  Lock lock() { return Lock(mutex_); }

  // cudaErrorInitializationError in a forked child of a process that has used the machine.
  cudaError_t begin();
  // The stream itself: that of the legacy default stream of the current device for null.
  cudaStream_t resolve(cudaStream_t stream); // null: not a stream
  cudaStream_t legacy(int device) { return &legacy_[device]; }
  cudaStream_t create(int device, bool blocking);
  cudaEvent_t create_event(int device);
  bool is_event(cudaEvent_t event);
  const std::vector<std::unique_ptr<CUstream_st>>& streams() const { return streams_; }

  // Behind the stream's last operation, and what its being blocking asks for.
  Ticket enqueue(Lock* lock, cudaStream_t stream, const char* what, Body body,
                 std::vector<Ticket> after = {}, const void* owner = nullptr);
  // The oldest of this owner that has not ended, or null.
  Ticket first_of(const void* owner) const;
  // Until it has run; other threads may go on in between.
  void drive(Lock* lock, const Ticket& target);
  // Runs what the target depends on, as far as that goes; whether anything went on.
  bool advance(const Ticket& target);
  // Everything on this device.
  std::vector<Ticket> heads(int device);
  void woken() { changed_.notify_all(); }
  // Captures that forbid calls which wait, on this thread or anywhere.
  bool capturing_anywhere() const { return global_captures_ > 0; }
  void count_capture(int more) { global_captures_ += more; }

 private:
  Machine();
  bool run(const Ticket& operation);

  std::mutex mutex_;
  std::condition_variable changed_;
  CUstream_st legacy_[16];
  std::vector<std::unique_ptr<CUstream_st>> streams_; // destroyed ones too
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::deque<Ticket> pending_; // as submitted; ended ones are dropped now and then
  int64_t pid_ = 0;
  uint64_t pass_ = 0;
  int global_captures_ = 0;
  enum class Policy { kLate, kEager, kMixed } policy_ = Policy::kLate;
  std::mt19937_64 random_;
};

int current_device();
void set_current_device(int device);

} // namespace cuemu

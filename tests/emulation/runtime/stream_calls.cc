// CUDA's calls on streams, events and captures, of the emulated machine.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "machine_calls.h"

namespace cuemu {
namespace {

// What is being captured from a stream that the legacy one, `stream`, would wait for.
Capture* captured_beside(cudaStream_t stream) {
  Machine& machine = Machine::get();
  if (stream != machine.legacy(stream->device)) return nullptr;
  for (const auto& other : machine.streams()) {
    if (other->alive && other->blocking && other->device == stream->device &&
        other->capture != nullptr) {
      return other->capture.get();
    }
  }
  return nullptr;
}

} // namespace

// One more operation of this stream: into its graph, where it is being captured.
cudaError_t put(Machine::Lock* lock, cudaStream_t stream, const char* what, Body body,
                const void* owner) {
  Machine& machine = Machine::get();
  if (stream->capture != nullptr) {
    Capture& capture = *stream->capture;
    if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
    capture.graph.nodes.push_back(
        {std::move(body), what, stream->device, std::move(stream->capture_after), owner});
    stream->capture_after.assign(1, capture.graph.nodes.size() - 1);
    return cudaSuccess;
  }
  // The legacy stream would wait for what is being captured.
  if (Capture* const other = captured_beside(stream); other != nullptr) {
    other->invalidated = true;
    return cudaErrorStreamCaptureImplicit;
  }
  machine.enqueue(lock, stream, what, std::move(body), {}, owner);
  return cudaSuccess;
}

cudaError_t submit(cudaStream_t stream, const char* what, Body body) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  return call.failed(put(&call.lock, own, what, std::move(body)));
}

// A call that waits: not while anything is being captured in the strict mode.
cudaError_t may_wait() {
  return Machine::get().capturing_anywhere() && thread_mode() != cudaStreamCaptureModeRelaxed
             ? cudaErrorStreamCaptureUnsupported
             : cudaSuccess;
}

cudaStreamCaptureMode& thread_mode() {
  static thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

} // namespace cuemu

using namespace cuemu;

namespace {

cudaError_t create_stream(cudaStream_t* stream, unsigned flags) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  if (stream == nullptr || flags > cudaStreamNonBlocking) return call.failed(cudaErrorInvalidValue);
  *stream = Machine::get().create(current_device(), flags == cudaStreamDefault);
  return cudaSuccess;
}

} // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create_stream(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create_stream(stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return create_stream(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr || own == Machine::get().legacy(own->device)) {
    return call.failed(cudaErrorInvalidResourceHandle);
  }
  own->alive = false; // what it holds still runs
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  if (own->capture != nullptr) {
    own->capture->invalidated = true;
    return call.failed(cudaErrorStreamCaptureUnsupported);
  }
  if (stream == nullptr && may_wait() != cudaSuccess) {
    return call.failed(cudaErrorStreamCaptureImplicit);
  }
  // Waiting for the legacy stream is waiting for the blocking ones.
  if (own == Machine::get().legacy(own->device)) {
    Machine::get().enqueue(&call.lock, own, "synchronize", nullptr);
  }
  const std::vector<Ticket> joins = own->joins;
  const Ticket last = own->last;
  for (const Ticket& ticket : joins) Machine::get().drive(&call.lock, ticket);
  Machine::get().drive(&call.lock, last);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  if (own->capture != nullptr) return call.failed(cudaErrorStreamCaptureUnsupported);
  bool done = true;
  std::vector<Ticket> all = own->joins;
  if (own->last != nullptr) all.push_back(own->last);
  for (const Ticket& ticket : all) {
    if (!ticket->done) Machine::get().advance(ticket);
    done = done && ticket->done;
  }
  return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  *device = own->device;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  Machine& machine = Machine::get();
  const cudaStream_t own = machine.resolve(stream);
  if (own == nullptr || !machine.is_event(event)) {
    return call.failed(cudaErrorInvalidResourceHandle);
  }
  if (event->capture != nullptr) {
    if (own->capture != nullptr && own->capture != event->capture) {
      return call.failed(cudaErrorStreamCaptureIsolation);
    }
    if (own->capture == nullptr) { // joins the capture
      if (own == machine.legacy(own->device)) return call.failed(cudaErrorStreamCaptureImplicit);
      own->capture = event->capture;
      own->capture->streams.push_back(own);
      own->capture_after.clear();
    }
    for (const size_t node : event->capture_after) own->capture_after.push_back(node);
    return cudaSuccess;
  }
  if (own->capture != nullptr) { // an event of before the capture
    if (event->mark == nullptr) return cudaSuccess;
    own->capture->invalidated = true;
    return call.failed(cudaErrorStreamCaptureIsolation);
  }
  if (event->mark != nullptr && !event->mark->done) own->joins.push_back(event->mark);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  return submit(stream, "host function", [function, user_data](uint64_t*) {
    function(user_data);
    return true;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  *event = Machine::get().create_event(current_device());
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  if (!Machine::get().is_event(event)) return call.failed(cudaErrorInvalidResourceHandle);
  event->alive = false;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  Machine& machine = Machine::get();
  const cudaStream_t own = machine.resolve(stream);
  if (own == nullptr || !machine.is_event(event) || event->device != own->device) {
    return call.failed(cudaErrorInvalidResourceHandle);
  }
  if (own->capture != nullptr) {
    if (own->capture->invalidated) return call.failed(cudaErrorStreamCaptureInvalidated);
    event->capture = own->capture;
    event->capture_after = own->capture_after;
    event->mark = nullptr;
    return cudaSuccess;
  }
  event->capture = nullptr;
  const cudaError_t error = put(&call.lock, own, "event", nullptr);
  if (error == cudaSuccess) event->mark = own->last;
  return call.failed(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  if (!Machine::get().is_event(event)) return call.failed(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) {
    event->capture->invalidated = true;
    return call.failed(cudaErrorCapturedEvent);
  }
  const Ticket mark = event->mark;
  Machine::get().drive(&call.lock, mark);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  if (!Machine::get().is_event(event)) return call.failed(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return call.failed(cudaErrorCapturedEvent);
  if (may_wait() != cudaSuccess) return call.failed(cudaErrorStreamCaptureUnsupported);
  const Ticket mark = event->mark;
  if (mark == nullptr || mark->done) return cudaSuccess;
  Machine::get().advance(mark); // time goes on; the answer is of before
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  if (own == Machine::get().legacy(own->device)) {
    return call.failed(cudaErrorStreamCaptureUnsupported);
  }
  if (own->capture != nullptr) return call.failed(cudaErrorStreamCaptureUnsupported);
  own->capture = std::make_shared<Capture>();
  own->capture->origin = own;
  own->capture->mode = mode;
  own->capture->streams.push_back(own);
  own->capture_after.clear();
  if (mode == cudaStreamCaptureModeGlobal) Machine::get().count_capture(1);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = own->capture;
  if (capture == nullptr || capture->origin != own) {
    return call.failed(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode == cudaStreamCaptureModeGlobal) Machine::get().count_capture(-1);
  // Every branch must have come back to the origin.
  std::vector<bool> joined(capture->graph.nodes.size());
  std::vector<size_t> open = own->capture_after;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (joined[node]) continue;
    joined[node] = true;
    for (const size_t before : capture->graph.nodes[node].after) open.push_back(before);
  }
  for (const cudaStream_t each : capture->streams) {
    each->capture = nullptr;
    each->capture_after.clear();
  }
  *graph = nullptr;
  if (capture->invalidated) return call.failed(cudaErrorStreamCaptureInvalidated);
  if (!std::all_of(joined.begin(), joined.end(), [](bool each) { return each; })) {
    return call.failed(cudaErrorStreamCaptureUnjoined);
  }
  *graph = new CUgraph_st{capture->graph};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  if (captured_beside(own) != nullptr) return call.failed(cudaErrorStreamCaptureImplicit);
  *status = own->capture == nullptr     ? cudaStreamCaptureStatusNone
            : own->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode());
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (graph == nullptr) return cudaErrorInvalidValue;
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  Machine& machine = Machine::get();
  const cudaStream_t own = machine.resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  if (own->capture != nullptr) return call.failed(cudaErrorNotSupported);
  const Ticket start = machine.enqueue(&call.lock, own, "graph", nullptr);
  std::vector<Ticket> tickets;
  std::vector<CUstream_st> branches(exec->nodes.size()); // each node on a stream of its own
  for (size_t n = 0; n < exec->nodes.size(); ++n) {
    const CUgraph_st::Node& node = exec->nodes[n];
    branches[n].device = node.device;
    branches[n].blocking = false;
    std::vector<Ticket> after{start};
    for (const size_t before : node.after) after.push_back(tickets[before]);
    tickets.push_back(
        machine.enqueue(&call.lock, &branches[n], node.what, node.body, after, node.owner));
  }
  machine.enqueue(&call.lock, own, "graph's end", nullptr, tickets);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

} // extern "C"

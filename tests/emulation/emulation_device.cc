// The seam Device over the plug-in, as libzero.so opens it, on the emulated machine: what orders
// work and what does not, whose device is current, and what is said where there is no device.
// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// Before cmocka, whose macro is called fail too.
#include "base/error.h"
#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"

#include <csetjmp>
extern "C" {
#include <cmocka.h>
}

namespace {

using zero::device::Device;
using zero::device::Event;
using zero::device::Stream;
using zero::device::StreamScope;

constexpr uint64_t kCount = 4096;

struct OnDevice {
  explicit OnDevice(Device& of, uint64_t bytes_ = kCount * sizeof(float))
      : device(of), bytes(bytes_), data(static_cast<float*>(of.allocate(bytes_))) {}
  ~OnDevice() { device.release(data, bytes); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  Device& device;
  uint64_t bytes;
  float* data;
};

std::vector<float> read(Device& device, const float* data, uint64_t count = kCount) {
  std::vector<float> values(count, -1);
  device.copy(values.data(), data, count * sizeof(float));
  device.synchronize();
  return values;
}

// values = values * factor, by a kernel on the current stream.
void multiply(Device& device, float* values, float factor) {
  zero::kernels::CudaConvert convert;
  convert.src = values;
  convert.dst = values;
  convert.count = kCount;
  convert.factor = factor;
  device.check_launch(device.cuda_kernels()->scale(&convert, zero::device::current_stream()),
                      "scale");
}

std::vector<float> filled(float value) {
  return std::vector<float>(kCount, value);
}

// The status that it threw, with its sentence.
std::string refusal(const std::function<void()>& call, zero_status status) {
  try {
    call();
  } catch (const zero::Error& error) {
    if (error.status() != status) fail_msg("status %d: %s", error.status(), error.what());
    return error.what();
  }
  fail_msg("not refused");
  return "";
}

void assert_says(const std::string& sentence, const char* words) {
  if (sentence.find(words) == std::string::npos) {
    fail_msg("\"%s\" does not say \"%s\"", sentence.c_str(), words);
  }
}

// In a process of its own, which has not used CUDA yet; true: it ended well.
bool in_child(const std::function<void()>& body) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// ---- what there is and what is said where there is nothing
// ----------------------------------------

void refusals_say_what_is_missing() {
  setenv("CUEMU_DRIVER", "none", 1);
  assert_says(refusal([] { zero::device::make_cuda_device(1); }, ZERO_ERR_UNSUPPORTED),
              "CUDA device 1 was asked for, but this machine has no NVIDIA driver");
  setenv("CUEMU_DRIVER", "old", 1);
  assert_says(refusal([] { zero::device::make_cuda_device(1); }, ZERO_ERR_UNSUPPORTED),
              "the NVIDIA driver is for CUDA 11.4, expected 12.0 or newer");
  unsetenv("CUEMU_DRIVER");
  setenv("CUEMU_DEVICES", "0", 1);
  assert_says(refusal([] { zero::device::make_cuda_device(0); }, ZERO_ERR_UNSUPPORTED),
              "CUDA finds no device");
}

void no_driver_an_old_one_and_no_device_each_have_a_sentence(void**) {
  assert_true(in_child(refusals_say_what_is_missing));
}

void a_plugin_that_is_not_there_or_another_version_is_named() {
  const std::string plugin = getenv("LIBZERO_CUDA_PATH");
  setenv("LIBZERO_CUDA_PATH", "/nowhere/libzero_cuda.so", 1);
  assert_says(refusal([] { zero::device::make_cuda_device(0); }, ZERO_ERR_UNSUPPORTED),
              "/nowhere/libzero_cuda.so");
  setenv("LIBZERO_CUDA_PATH", getenv("LIBZERO_OTHER_LIBRARY"), 1);
  assert_says(refusal([] { zero::device::make_cuda_device(0); }, ZERO_ERR_UNSUPPORTED),
              "is not the CUDA part of this libzero");
  setenv("LIBZERO_CUDA_PATH", plugin.c_str(), 1); // what failed is tried again
  assert_int_equal(zero::device::make_cuda_device(0)->ordinal(), 0);
}

void a_missing_plugin_and_a_strange_one_are_named(void**) {
  assert_true(in_child(a_plugin_that_is_not_there_or_another_version_is_named));
}

void a_device_that_does_not_exist_is_named(void**) {
  assert_says(refusal([] { zero::device::make_cuda_device(8); }, ZERO_ERR_INVALID_ARGUMENT),
              "CUDA device 8 does not exist, expected 0 to 7");
}

void local_rank_says_which_device(void**) {
  setenv("LOCAL_RANK", "3", 1);
  assert_int_equal(zero::device::make_cuda_device(-1)->ordinal(), 3);
  setenv("LOCAL_RANK", "3a", 1);
  assert_says(refusal([] { zero::device::make_cuda_device(-1); }, ZERO_ERR_INVALID_ARGUMENT),
              "LOCAL_RANK is \"3a\"");
  unsetenv("LOCAL_RANK");
  assert_int_equal(zero::device::make_cuda_device(-1)->ordinal(), 0);
}

void memory_that_the_device_does_not_have_is_refused_with_what_is_free(void**) {
  const auto device = zero::device::make_cuda_device(0);
  const std::string sentence =
      refusal([&] { device->allocate(UINT64_C(1) << 40); }, ZERO_ERR_OUT_OF_DEVICE_MEMORY);
  assert_says(sentence, "1099511627776 bytes of CUDA device 0");
  assert_says(sentence, "are free");
}

// ---- memory
// --------------------------------------------------------------------------------------

void memory_is_clear_and_its_place_is_known(void**) {
  const auto device = zero::device::make_cuda_device(2);
  const OnDevice memory(*device);
  for (const float value : read(*device, memory.data)) assert_true(value == 0);
  int32_t ordinal = 7;
  assert_int_equal(device->place_of(memory.data, &ordinal), ZERO_PLACE_DEVICE);
  assert_int_equal(ordinal, 2);
  const float here = 0;
  assert_int_equal(device->place_of(&here, &ordinal), ZERO_PLACE_HOST);
  assert_int_equal(ordinal, -1);
  auto* pinned = static_cast<float*>(device->allocate_pinned(64));
  assert_int_equal(device->place_of(pinned, &ordinal), ZERO_PLACE_PINNED);
  for (int i = 0; i < 16; ++i) assert_true(pinned[i] == 0);
  device->release_pinned(pinned, 64);
}

void the_current_device_is_after_each_call_what_it_was(void**) {
  const auto device = zero::device::make_cuda_device(3);
  cudaSetDevice(5);
  const OnDevice memory(*device);
  const auto event = device->create_event();
  const auto stream = device->create_stream(false);
  const std::vector<float> ones = filled(1);
  device->copy(memory.data, ones.data(), memory.bytes);
  device->synchronize();
  event->record();
  event->host_wait();
  stream->drain();
  int current = -1;
  cudaGetDevice(&current);
  assert_int_equal(current, 5);
  int32_t ordinal = -1;
  device->place_of(memory.data, &ordinal);
  assert_int_equal(ordinal, 3);
  cudaSetDevice(0);
}

// ---- order
// ---------------------------------------------------------------------------------------

struct Factor {
  Device* device;
  float* values;
  float factor;
};

void run_factor(void* context, uint64_t, uint64_t) {
  const Factor& factor = *static_cast<Factor*>(context);
  multiply(*factor.device, factor.values, factor.factor);
}

// The caller's stream holds a copy; the queue's task comes after it, the caller's next after that.
void a_task_comes_after_the_current_stream_and_before_what_waits_for_it(void**) {
  const auto device = zero::device::make_cuda_device(0);
  const OnDevice memory(*device);
  const auto queue = device->create_stream(false);
  cudaStream_t caller = nullptr;
  cudaStreamCreateWithFlags(&caller, cudaStreamNonBlocking);
  for (void* stream : {static_cast<void*>(nullptr), static_cast<void*>(caller)}) {
    const StreamScope scope(stream);
    const std::vector<float> threes = filled(3);
    Factor factor{device.get(), memory.data, 5};
    device->copy(memory.data, threes.data(), memory.bytes);
    queue->wait(queue->submit(run_factor, &factor, 0, 0));
    multiply(*device, memory.data, 7);
    for (const float value : read(*device, memory.data)) assert_true(value == 105);
  }
  cudaStreamDestroy(caller);
}

// More tasks than events are kept, and tickets waited for long after.
void an_old_ticket_may_still_be_waited_for(void**) {
  const auto device = zero::device::make_cuda_device(0);
  const OnDevice memory(*device);
  const std::vector<float> ones = filled(1);
  device->copy(memory.data, ones.data(), memory.bytes);
  const auto queue = device->create_stream(false);
  Factor factor{device.get(), memory.data, 2};
  const uint64_t first = queue->submit(run_factor, &factor, 0, 0);
  factor.factor = 1;
  for (int i = 0; i < 600; ++i) queue->submit(run_factor, &factor, 0, 0);
  assert_false(queue->done(queue->last_ticket()));
  queue->wait(first);
  for (const float value : read(*device, memory.data)) assert_true(value == 2);
  queue->drain();
  device->synchronize();
  assert_true(queue->done(queue->last_ticket()));
}

void an_event_orders_two_streams_and_tells_the_host(void**) {
  const auto device = zero::device::make_cuda_device(0);
  const OnDevice memory(*device);
  const auto event = device->create_event();
  assert_true(event->done()); // nothing recorded
  event->wait();
  cudaStream_t one = nullptr, other = nullptr;
  cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  const std::vector<float> fours = filled(4);
  {
    const StreamScope scope(one);
    device->copy(memory.data, fours.data(), memory.bytes);
    event->record();
    assert_false(event->done());
  }
  {
    const StreamScope scope(other);
    event->wait();
    multiply(*device, memory.data, 2);
    for (const float value : read(*device, memory.data)) assert_true(value == 8);
  }
  assert_true(event->done());
  event->host_wait();
  cudaStreamDestroy(one);
  cudaStreamDestroy(other);
}

void an_inline_stream_is_the_current_one(void**) {
  const auto device = zero::device::make_cuda_device(0);
  const OnDevice memory(*device);
  const auto queue = device->create_stream(true);
  cudaStream_t one = nullptr, other = nullptr;
  cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  const std::vector<float> threes = filled(3);
  uint64_t ticket = 0;
  Factor factor{device.get(), memory.data, 5};
  {
    const StreamScope scope(one);
    device->copy(memory.data, threes.data(), memory.bytes);
    ticket = queue->submit(run_factor, &factor, 0, 0);
  }
  {
    const StreamScope scope(other);
    queue->wait(ticket);
    for (const float value : read(*device, memory.data)) assert_true(value == 15);
  }
  cudaStreamDestroy(one);
  cudaStreamDestroy(other);
}

// Captured once, replayed: the fork to the queue's stream and the join are in the graph; what the
// queue did before the capture is not waited for in it.
void a_queue_is_captured_with_the_stream_that_forks_it(void**) {
  const auto device = zero::device::make_cuda_device(0);
  const OnDevice memory(*device);
  const std::vector<float> ones = filled(1);
  device->copy(memory.data, ones.data(), memory.bytes);
  device->synchronize();
  const auto queue = device->create_stream(false);
  cudaStream_t caller = nullptr;
  cudaStreamCreateWithFlags(&caller, cudaStreamNonBlocking);
  const StreamScope scope(caller);
  Factor factor{device.get(), memory.data, 2};
  queue->wait(queue->submit(run_factor, &factor, 0, 0));
  assert_false(device->capturing());
  assert_int_equal(cudaStreamBeginCapture(caller, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  assert_true(device->capturing());
  queue->wait(queue->last_ticket()); // passed over: waited for before the capture
  factor.factor = 3;
  queue->wait(queue->submit(run_factor, &factor, 0, 0));
  cudaGraph_t graph = nullptr;
  assert_int_equal(cudaStreamEndCapture(caller, &graph), cudaSuccess);
  cudaGraphExec_t replay = nullptr;
  assert_int_equal(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int i = 0; i < 2; ++i) assert_int_equal(cudaGraphLaunch(replay, caller), cudaSuccess);
  for (const float value : read(*device, memory.data)) assert_true(value == 18);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(caller);
}

// ---- mistakes that the machine must catch through the seam
// -----------------------------------------

bool ends_badly(const std::function<void()>& mistake) {
  return !in_child([&] {
    // Only a fault of the machine counts, not an error that is told.
    try {
      mistake();
    } catch (const zero::Error&) {
      _exit(0);
    }
  });
}

void mistake_host_pointer_to_a_kernel() {
  const auto device = zero::device::make_cuda_device(0);
  std::vector<float> host = filled(1);
  multiply(*device, host.data(), 2);
  device->synchronize();
}

void mistake_host_reads_device_memory() {
  const auto device = zero::device::make_cuda_device(0);
  const OnDevice memory(*device);
  const volatile float value = memory.data[0];
  (void)value;
}

void a_host_pointer_in_a_kernel_and_device_memory_on_the_host_end_the_process(void**) {
  assert_true(ends_badly(mistake_host_pointer_to_a_kernel));
  assert_true(ends_badly(mistake_host_reads_device_memory));
}

// Two streams and no event between them: the value that was to be is not there.
void a_missing_event_shows(void**) {
  const auto device = zero::device::make_cuda_device(0);
  const OnDevice memory(*device);
  const auto queue = device->create_stream(false);
  const std::vector<float> threes = filled(3);
  Factor factor{device.get(), memory.data, 5};
  cudaStream_t caller = nullptr;
  cudaStreamCreateWithFlags(&caller, cudaStreamNonBlocking);
  const StreamScope scope(caller);
  device->copy(memory.data, threes.data(), memory.bytes);
  queue->submit(run_factor, &factor, 0, 0); // and nobody waits for its ticket
  assert_true(read(*device, memory.data)[0] == 3);
  device->synchronize();
  queue->drain();
  assert_true(read(*device, memory.data)[0] == 15);
  cudaStreamDestroy(caller);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      // Those that fork come first: a process that has used the machine cannot.
      cmocka_unit_test(no_driver_an_old_one_and_no_device_each_have_a_sentence),
      cmocka_unit_test(a_missing_plugin_and_a_strange_one_are_named),
      cmocka_unit_test(a_host_pointer_in_a_kernel_and_device_memory_on_the_host_end_the_process),
      cmocka_unit_test(a_device_that_does_not_exist_is_named),
      cmocka_unit_test(local_rank_says_which_device),
      cmocka_unit_test(memory_that_the_device_does_not_have_is_refused_with_what_is_free),
      cmocka_unit_test(memory_is_clear_and_its_place_is_known),
      cmocka_unit_test(the_current_device_is_after_each_call_what_it_was),
      cmocka_unit_test(a_task_comes_after_the_current_stream_and_before_what_waits_for_it),
      cmocka_unit_test(an_old_ticket_may_still_be_waited_for),
      cmocka_unit_test(an_event_orders_two_streams_and_tells_the_host),
      cmocka_unit_test(an_inline_stream_is_the_current_one),
      cmocka_unit_test(a_queue_is_captured_with_the_stream_that_forks_it),
      cmocka_unit_test(a_missing_event_shows),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// The emulated machine itself (runtime/): what it lets pass as CUDA does, and the mistakes that it
// must catch.  A mistake that ends the process is made in a forked child.
// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/cuda_kernels.h"

namespace {

using namespace zero::kernels;

void good(cudaError_t error) {
  if (error != cudaSuccess) fail_msg("cudaError %d", error);
}

constexpr uint64_t kCount = 100000;

// The table is of a library that the tests link: the kernels, every access checked.
const CudaKernelTable& table() {
  return *zero_cuda_kernels(kCudaKernelsVersion);
}

struct DeviceFloats {
  explicit DeviceFloats(uint64_t count) : bytes(count * sizeof(float)) {
    void* memory = nullptr;
    good(cudaMalloc(&memory, bytes));
    data = static_cast<float*>(memory);
  }
  ~DeviceFloats() { cudaFree(data); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  uint64_t bytes;
  float* data = nullptr;
};

struct PinnedFloats {
  PinnedFloats(uint64_t count, float value) {
    void* memory = nullptr;
    good(cudaMallocHost(&memory, count * sizeof(float)));
    data = static_cast<float*>(memory);
    for (uint64_t i = 0; i < count; ++i) data[i] = value;
  }
  ~PinnedFloats() { cudaFreeHost(data); }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  float* data = nullptr;
};

int32_t scale(float* data, uint64_t count, float factor, cudaStream_t stream) {
  CudaConvert convert;
  convert.src = data;
  convert.dst = data;
  convert.count = count;
  convert.factor = factor;
  return table().scale(&convert, stream);
}

float last_of(const DeviceFloats& device) {
  float value = 0;
  good(cudaMemcpy(&value, device.data + device.bytes / 4 - 1, 4, cudaMemcpyDeviceToHost));
  return value;
}

// The signal that ended a child that ran this, with what it wrote to stderr.
int ended_by(const std::function<void()>& body, std::string* words) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    body();
    _exit(0);
  }
  close(ends[1]);
  char text[2000];
  for (ssize_t got; (got = read(ends[0], text, sizeof text)) > 0;) {
    words->append(text, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void caught(const std::function<void()>& body, int by, const char* word) {
  std::string words;
  const int number = ended_by(body, &words);
  if (number != by || words.find(word) == std::string::npos) {
    fail_msg("ended by %d, saying: %s", number, words.c_str());
  }
}

// First in the file: nothing has used CUDA in this process yet, so children may.
void a_host_pointer_passed_as_a_device_pointer_is_caught(void**) {
  caught(
      [] {
        std::vector<float> host(kCount, 1.0f);
        scale(host.data(), kCount, 2, nullptr);
        cudaDeviceSynchronize();
      },
      SIGABRT, "a host pointer");
}

void device_memory_touched_by_the_host_is_caught(void**) {
  caught(
      [] {
        const DeviceFloats device(kCount);
        cudaMemset(device.data, 0, device.bytes);
        cudaDeviceSynchronize();
        device.data[7] = 1;
      },
      SIGSEGV, "the host touched memory of device 0");
}

void a_kernel_beyond_an_allocation_is_caught(void**) {
  caught(
      [] {
        const DeviceFloats device(kCount);
        scale(device.data, kCount + 1, 2, nullptr);
        cudaDeviceSynchronize();
      },
      SIGABRT, "which is not allocated");
}

void memory_of_another_device_is_caught(void**) {
  caught(
      [] {
        const DeviceFloats device(kCount);
        cudaSetDevice(1);
        scale(device.data, kCount, 2, nullptr);
        cudaDeviceSynchronize();
      },
      SIGABRT, "memory of device 0");
}

void a_host_pointer_inside_an_array_of_pointers_is_caught(void**) {
  caught(
      [] {
        std::vector<float> host(kCount, 1.0f);
        const DeviceFloats sum(kCount), pointers(2);
        const float* list = host.data();
        cudaMemcpy(pointers.data, &list, sizeof list, cudaMemcpyHostToDevice);
        CudaReduce reduce;
        reduce.contributions = reinterpret_cast<const void* const*>(pointers.data);
        reduce.ranks = 1;
        reduce.accumulate = sum.data;
        reduce.count = kCount;
        table().reduce(&reduce, nullptr);
        cudaDeviceSynchronize();
      },
      SIGABRT, "a host pointer");
}

void a_child_of_a_process_that_used_cuda_cannot(void**) {
  const DeviceFloats device(8);
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    _exit(cudaMalloc(&memory, 8));
  }
  int status = 0;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), cudaErrorInitializationError);
}

// Two streams that work on one array; with_event: the second waits for the first.
float two_streams(bool with_event) {
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr;
  good(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  good(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const DeviceFloats device(kCount);
  const PinnedFloats source(kCount, 3.0f), result(kCount, 0.0f);
  good(cudaMemcpyAsync(device.data, source.data, device.bytes, cudaMemcpyHostToDevice, first));
  good(cudaEventRecord(event, first));
  if (with_event) good(cudaStreamWaitEvent(second, event));
  assert_int_equal(scale(device.data, kCount, 2, second), 0);
  good(cudaMemcpyAsync(result.data, device.data, device.bytes, cudaMemcpyDeviceToHost, second));
  assert_true(result.data[5] == 0.0f); // nothing has run
  good(cudaStreamSynchronize(second));
  const float value = result.data[5];
  good(cudaStreamSynchronize(first));
  good(cudaEventDestroy(event));
  good(cudaStreamDestroy(first));
  good(cudaStreamDestroy(second));
  return value;
}

void an_event_orders_two_streams(void**) {
  assert_true(two_streams(true) == 6.0f);
}
void a_missing_event_is_seen_in_the_numbers(void**) {
  const float value = two_streams(false);
  assert_false(value == 6.0f);
}

void pageable_memory_is_read_late(void**) {
  cudaStream_t stream = nullptr;
  good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const DeviceFloats device(1);
  float value = 5;
  good(cudaMemcpyAsync(device.data, &value, 4, cudaMemcpyHostToDevice, stream));
  value = 9; // a mistake: nobody waited
  good(cudaStreamSynchronize(stream));
  assert_true(last_of(device) == 9.0f);
  good(cudaStreamDestroy(stream));
}

void a_result_used_before_it_arrives_is_seen(void**) {
  cudaStream_t stream = nullptr;
  good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const DeviceFloats device(kCount);
  const PinnedFloats host(kCount, 1.0f);
  good(cudaMemcpyAsync(device.data, host.data, device.bytes, cudaMemcpyHostToDevice, stream));
  assert_int_equal(scale(device.data, kCount, 4, stream), 0);
  good(cudaMemcpyAsync(host.data, device.data, device.bytes, cudaMemcpyDeviceToHost, stream));
  assert_true(host.data[kCount - 1] == 1.0f);
  assert_int_equal(cudaStreamQuery(stream) == cudaSuccess || host.data[0] == 1.0f, 1);
  good(cudaStreamSynchronize(stream));
  assert_true(host.data[kCount - 1] == 4.0f);
  good(cudaStreamDestroy(stream));
}

// What the legacy default stream holds, a blocking stream waits for; a non-blocking one does not.
float behind_the_legacy_stream(unsigned flags) {
  cudaStream_t stream = nullptr;
  good(cudaStreamCreateWithFlags(&stream, flags));
  const DeviceFloats device(kCount);
  const PinnedFloats source(kCount, 3.0f), result(kCount, 0.0f);
  good(cudaMemcpyAsync(device.data, source.data, device.bytes, cudaMemcpyHostToDevice, nullptr));
  good(cudaMemcpyAsync(result.data, device.data, device.bytes, cudaMemcpyDeviceToHost, stream));
  good(cudaStreamSynchronize(stream));
  const float value = result.data[1];
  good(cudaStreamSynchronize(nullptr));
  good(cudaStreamDestroy(stream));
  return value;
}
void the_legacy_stream_goes_before_blocking_streams(void**) {
  assert_true(behind_the_legacy_stream(cudaStreamDefault) == 3.0f);
}
void null_taken_for_no_stream_is_seen_in_the_numbers(void**) {
  assert_false(behind_the_legacy_stream(cudaStreamNonBlocking) == 3.0f);
}

void a_graph_is_recorded_and_replayed(void**) {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t fork_event = nullptr, join_event = nullptr;
  good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  good(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  good(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
  good(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
  const DeviceFloats device(kCount);
  const PinnedFloats one(kCount, 1.0f);
  good(cudaMemcpy(device.data, one.data, device.bytes, cudaMemcpyHostToDevice));
  good(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  assert_int_equal(scale(device.data, kCount, 2, stream), 0);
  good(cudaEventRecord(fork_event, stream));
  good(cudaStreamWaitEvent(other, fork_event));
  assert_int_equal(scale(device.data, kCount, 3, other), 0);
  good(cudaEventRecord(join_event, other));
  good(cudaStreamWaitEvent(stream, join_event));
  assert_int_equal(scale(device.data, kCount, 5, stream), 0);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  good(cudaStreamEndCapture(stream, &graph));
  good(cudaGraphInstantiate(&exec, graph));
  assert_true(last_of(device) == 1.0f);
  good(cudaGraphLaunch(exec, stream));
  good(cudaGraphLaunch(exec, stream));
  good(cudaStreamSynchronize(stream));
  assert_true(last_of(device) == 900.0f);
  good(cudaGraphExecDestroy(exec));
  good(cudaGraphDestroy(graph));
}

void a_call_that_waits_ends_a_capture(void**) {
  cudaStream_t stream = nullptr;
  good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  good(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* memory = nullptr;
  assert_int_equal(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  assert_int_equal(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  assert_null(graph);
}

void a_branch_that_does_not_come_back_is_refused(void**) {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  good(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const DeviceFloats device(64);
  good(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  good(cudaEventRecord(event, stream));
  good(cudaStreamWaitEvent(other, event));
  assert_int_equal(scale(device.data, 64, 2, other), 0);
  cudaGraph_t graph = nullptr;
  assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
}

void memory_runs_out_and_comes_back(void**) {
  size_t before = 0, total = 0, after = 0;
  good(cudaMemGetInfo(&before, &total));
  void* memory = nullptr;
  assert_int_equal(cudaMalloc(&memory, total + 1), cudaErrorMemoryAllocation);
  {
    const DeviceFloats device(1 << 20);
    good(cudaMemGetInfo(&after, &total));
    assert_true(after <= before - (4 << 20));
    cudaPointerAttributes attributes;
    good(cudaPointerGetAttributes(&attributes, device.data + 5));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
  }
  good(cudaMemGetInfo(&after, &total));
  assert_true(after == before);
}

void copies_whose_ends_are_elsewhere_are_refused(void**) {
  const DeviceFloats device(16);
  float host[16] = {};
  assert_int_equal(cudaMemcpy(host, device.data, 64, cudaMemcpyHostToDevice),
                   cudaErrorInvalidValue);
  assert_int_equal(cudaMemcpy(device.data, host, 68, cudaMemcpyHostToDevice),
                   cudaErrorInvalidValue);
  assert_int_equal(cudaFree(device.data + 1), cudaErrorInvalidValue);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_host_pointer_passed_as_a_device_pointer_is_caught),
      cmocka_unit_test(device_memory_touched_by_the_host_is_caught),
      cmocka_unit_test(a_kernel_beyond_an_allocation_is_caught),
      cmocka_unit_test(memory_of_another_device_is_caught),
      cmocka_unit_test(a_host_pointer_inside_an_array_of_pointers_is_caught),
      cmocka_unit_test(a_child_of_a_process_that_used_cuda_cannot),
      cmocka_unit_test(an_event_orders_two_streams),
      cmocka_unit_test(a_missing_event_is_seen_in_the_numbers),
      cmocka_unit_test(pageable_memory_is_read_late),
      cmocka_unit_test(a_result_used_before_it_arrives_is_seen),
      cmocka_unit_test(the_legacy_stream_goes_before_blocking_streams),
      cmocka_unit_test(null_taken_for_no_stream_is_seen_in_the_numbers),
      cmocka_unit_test(a_graph_is_recorded_and_replayed),
      cmocka_unit_test(a_call_that_waits_ends_a_capture),
      cmocka_unit_test(a_branch_that_does_not_come_back_is_refused),
      cmocka_unit_test(memory_runs_out_and_comes_back),
      cmocka_unit_test(copies_whose_ends_are_elsewhere_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

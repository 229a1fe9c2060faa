// libzero_cuda.so: CUDA's run-time library and the kernels behind device/cuda_plugin.h's table.
// Plain C++, so that the host's compiler makes it, against CUDA or against the emulated machine.
// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <zero.h>

#include <cstring>

#include "device/cuda_plugin.h"
#include "kernels/cuda/cuda_kernels.h"

namespace zero::device {
namespace {

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

// An error is told once, by what it was returned from: nobody finds it later in CUDA's drawer.
int32_t answer(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return static_cast<int32_t>(error);
}

const char* error_name(int32_t error) {
  return cudaGetErrorName(static_cast<cudaError_t>(error));
}

const char* error_text(int32_t error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

int32_t versions(int32_t* driver, int32_t* runtime) {
  int of_driver = 0, of_runtime = 0;
  cudaError_t error = cudaDriverGetVersion(&of_driver);
  if (error == cudaSuccess) error = cudaRuntimeGetVersion(&of_runtime);
  *driver = of_driver;
  *runtime = of_runtime;
  return answer(error);
}

int32_t device_count(int32_t* count) {
  int found = 0;
  const cudaError_t error = cudaGetDeviceCount(&found);
  *count = error == cudaSuccess ? found : 0;
  return answer(error);
}

int32_t device_kind(int32_t device, char* name, uint64_t capacity, int32_t* compute) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return answer(error);
  std::strncpy(name, properties.name, capacity - 1);
  name[capacity - 1] = '\0';
  *compute = 10 * properties.major + properties.minor;
  return 0;
}

int32_t get_device(int32_t* device) {
  int current = 0;
  const cudaError_t error = cudaGetDevice(&current);
  *device = current;
  return answer(error);
}

int32_t set_device(int32_t device) {
  return answer(cudaSetDevice(device));
}

int32_t memory_left(uint64_t* left_bytes, uint64_t* total_bytes) {
  size_t left = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&left, &total);
  *left_bytes = left;
  *total_bytes = total;
  return answer(error);
}

int32_t allocate(void** memory, uint64_t bytes) {
  return answer(cudaMalloc(memory, bytes));
}

int32_t release(void* memory) {
  return answer(cudaFree(memory));
}

int32_t allocate_pinned(void** memory, uint64_t bytes) {
  return answer(cudaHostAlloc(memory, bytes, cudaHostAllocPortable));
}

int32_t release_pinned(void* memory) {
  return answer(cudaFreeHost(memory));
}

int32_t place_of(const void* memory, int32_t* place, int32_t* device) {
  *place = ZERO_PLACE_HOST;
  *device = -1;
  cudaPointerAttributes attributes;
  const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
  if (error == cudaErrorInvalidValue) { // before CUDA 11: of memory that CUDA does not know
    cudaGetLastError();
    return 0;
  }
  if (error != cudaSuccess) return answer(error);
  if (attributes.type == cudaMemoryTypeHost) *place = ZERO_PLACE_PINNED;
  if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) {
    *place = ZERO_PLACE_DEVICE;
    *device = attributes.device;
  }
  return 0;
}

int32_t copy(void* dst, const void* src, uint64_t bytes, void* stream) {
  return answer(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_of(stream)));
}

int32_t fill(void* dst, int32_t value, uint64_t bytes, void* stream) {
  return answer(cudaMemsetAsync(dst, value, bytes, stream_of(stream)));
}

int32_t stream_create(void** stream, int32_t urgent) {
  int least = 0, greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  cudaStream_t made = nullptr;
  if (error == cudaSuccess) {
    error = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, urgent ? greatest : least);
  }
  *stream = made;
  return answer(error);
}

int32_t stream_destroy(void* stream) {
  return answer(cudaStreamDestroy(stream_of(stream)));
}

int32_t stream_synchronize(void* stream) {
  return answer(cudaStreamSynchronize(stream_of(stream)));
}

int32_t stream_wait(void* stream, void* event) {
  return answer(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
}

int32_t stream_capturing(void* stream, int32_t* capturing) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream_of(stream), &status);
  *capturing = status == cudaStreamCaptureStatusActive;
  return answer(error);
}

int32_t event_create(void** event) {
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  *event = made;
  return answer(error);
}

int32_t event_destroy(void* event) {
  return answer(cudaEventDestroy(event_of(event)));
}

int32_t event_record(void* event, void* stream) {
  return answer(cudaEventRecord(event_of(event), stream_of(stream)));
}

int32_t event_synchronize(void* event) {
  return answer(cudaEventSynchronize(event_of(event)));
}

int32_t event_done(void* event, int32_t* done) {
  const cudaError_t error = cudaEventQuery(event_of(event));
  *done = error == cudaSuccess;
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return 0;
  }
  return answer(error);
}

} // namespace
} // namespace zero::device

extern "C" __attribute__((visibility("default"))) const zero::device::CudaPlugin* zero_cuda_plugin(
    uint32_t version) {
  using namespace zero::device;
  static const CudaPlugin plugin = {kCudaPluginVersion,
                                    sizeof(CudaPlugin),
                                    zero_cuda_kernels(zero::kernels::kCudaKernelsVersion),
                                    error_name,
                                    error_text,
                                    versions,
                                    device_count,
                                    device_kind,
                                    get_device,
                                    set_device,
                                    memory_left,
                                    allocate,
                                    release,
                                    allocate_pinned,
                                    release_pinned,
                                    place_of,
                                    copy,
                                    fill,
                                    stream_create,
                                    stream_destroy,
                                    stream_synchronize,
                                    stream_wait,
                                    stream_capturing,
                                    event_create,
                                    event_destroy,
                                    event_record,
                                    event_synchronize,
                                    event_done};
  return version == kCudaPluginVersion ? &plugin : nullptr;
}

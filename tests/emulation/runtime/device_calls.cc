// CUDA's calls on devices and memory, of the emulated machine.
// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <cstring>

#include "device_memory.h"
#include "machine_calls.h"

namespace cuemu {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t driver_error() {
  const char* const driver = getenv("CUEMU_DRIVER");
  if (driver != nullptr && (strcmp(driver, "none") == 0 || strcmp(driver, "old") == 0)) {
    return cudaErrorInsufficientDriver;
  }
  return device_count() == 0 ? cudaErrorNoDevice : cudaSuccess;
}

namespace {

bool is_device(const void* memory) {
  return device_of(memory) >= 0;
}

// Whether both ends are what kind says and are there.
cudaError_t check_copy(const void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (to_device != is_device(to) || from_device != is_device(from))) {
    return cudaErrorInvalidValue;
  }
  if (is_device(to) && !device_live(to, bytes)) return cudaErrorInvalidValue;
  if (is_device(from) && !device_live(from, bytes)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

Body copy_body(void* to, const void* from, uint64_t bytes) {
  return [to, from, bytes](uint64_t*) {
    if (is_device(to)) {
      open_device(device_of(to));
      if (!device_live(to, bytes)) fault("a copy to %p, which was freed before it ran", to);
    }
    if (is_device(from)) {
      open_device(device_of(from));
      if (!device_live(from, bytes)) fault("a copy from %p, which was freed before it ran", from);
    }
    if (bytes != 0) memmove(to, from, bytes);
    return true;
  };
}

} // namespace
} // namespace cuemu

using namespace cuemu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t error = driver_error();
  if (error == cudaSuccess) *count = device_count();
  return error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const char* const driver = getenv("CUEMU_DRIVER");
  const bool none = driver != nullptr && strcmp(driver, "none") == 0;
  const bool old = driver != nullptr && strcmp(driver, "old") == 0;
  *version = none ? 0 : old ? 11040 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  const cudaError_t error = driver_error();
  if (error == cudaSuccess) *device = current_device();
  return error;
}
cudaError_t cudaSetDevice(int device) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  if (device < 0 || device >= device_count()) return call.failed(cudaErrorInvalidDevice);
  set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  if (may_wait() != cudaSuccess) return call.failed(cudaErrorStreamCaptureUnsupported);
  for (const Ticket& ticket : Machine::get().heads(current_device())) {
    Machine::get().drive(&call.lock, ticket);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrUnifiedAddressing:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  *properties = {};
  strcpy(properties->name, "an emulated device");
  properties->totalGlobalMem = device_bytes();
  properties->major = 9;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) {
  return last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError:
      return "cudaErrorInitializationError";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit:
      return "cudaErrorStreamCaptureImplicit";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  if (may_wait() != cudaSuccess) return call.failed(cudaErrorStreamCaptureUnsupported);
  *memory = bytes == 0 ? nullptr : device_allocate(current_device(), bytes);
  return *memory != nullptr || bytes == 0 ? cudaSuccess : call.failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* memory) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  if (memory == nullptr) return cudaSuccess;
  if (may_wait() != cudaSuccess) return call.failed(cudaErrorStreamCaptureUnsupported);
  const int device = device_of(memory);
  if (device < 0) return call.failed(cudaErrorInvalidValue);
  // Waits for the device, as CUDA's does.
  for (const Ticket& ticket : Machine::get().heads(device)) {
    Machine::get().drive(&call.lock, ticket);
  }
  return device_release(memory) ? cudaSuccess : call.failed(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(memory, 4096, bytes) != 0) return call.failed(cudaErrorMemoryAllocation);
  memset(*memory, 0xff, bytes);
  pin(*memory, bytes, true);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* memory) {
  Call call;
  if (call.error != cudaSuccess) return call.error;
  if (memory == nullptr) return cudaSuccess;
  for (int device = 0; device < device_count(); ++device) {
    for (const Ticket& ticket : Machine::get().heads(device)) {
      Machine::get().drive(&call.lock, ticket);
    }
  }
  if (!unpin(memory, true)) return call.failed(cudaErrorInvalidValue);
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  if (memory == nullptr || bytes == 0 || is_device(memory)) {
    return call.failed(cudaErrorInvalidValue);
  }
  return pin(memory, bytes, false) ? cudaSuccess
                                   : call.failed(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* memory) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  return unpin(memory, false) ? cudaSuccess : call.failed(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (!pinned(host, 1)) return cudaErrorInvalidValue;
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  *total = device_bytes();
  *free_bytes = device_bytes() - device_used(current_device());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* memory) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(memory)};
  if (pinned(memory, 1)) {
    *attributes = {cudaMemoryTypeHost, current_device(), const_cast<void*>(memory),
                   const_cast<void*>(memory)};
  }
  if (device_live(memory, 1)) {
    *attributes = {cudaMemoryTypeDevice, device_of(memory), const_cast<void*>(memory), nullptr};
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  cudaError_t error = check_copy(to, from, bytes, kind);
  // Pageable memory is read and written late, as if it were pinned: CUDA says no more than that it
  // may be sooner.
  if (error == cudaSuccess) error = put(&call.lock, own, "copy", copy_body(to, from, bytes));
  return call.failed(error);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  if (error != cudaSuccess) return error;
  // Between device memory it is ordered, and returns at once.
  return is_device(to) && is_device(from) ? cudaSuccess : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Call call;
  if (call.error != cudaSuccess) return call.error;
  const cudaStream_t own = Machine::get().resolve(stream);
  if (own == nullptr) return call.failed(cudaErrorInvalidResourceHandle);
  if (!(is_device(to) ? device_live(to, bytes) : pinned(to, bytes))) {
    return call.failed(cudaErrorInvalidValue);
  }
  return call.failed(put(&call.lock, own, "memset", [to, value, bytes](uint64_t*) {
    if (is_device(to)) open_device(device_of(to));
    if (bytes != 0) memset(to, value, bytes);
    return true;
  }));
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

} // extern "C"

// What libzero.so asks of libzero_cuda.so: one table of C functions behind a version.  No exception
// and no C++ object crosses it; a cudaStream_t, cudaEvent_t travels as void*, a cudaError_t as
// int32_t, 0 being success.  libzero.so itself needs nothing of CUDA.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::kernels {
struct CudaKernelTable;
}

namespace zero::device {

constexpr uint32_t kCudaPluginVersion = 1;
// What the plug-in's file exports, as CudaPluginFunction.
constexpr const char* kCudaPluginSymbol = "zero_cuda_plugin";

struct CudaPlugin {
  uint32_t version;
  uint32_t size; // of this struct
  const kernels::CudaKernelTable* kernels;
  // "cudaErrorNoDevice: no CUDA-capable device is detected"; static text.
  const char* (*error_name)(int32_t error);
  const char* (*error_text)(int32_t error);

  // As CUDA counts them: 1000 x major + 10 x minor; driver 0: there is none.
  int32_t (*versions)(int32_t* driver, int32_t* runtime);
  int32_t (*device_count)(int32_t* count);
  // compute: 10 x major + minor.
  int32_t (*device_kind)(int32_t device, char* name, uint64_t capacity, int32_t* compute);
  int32_t (*get_device)(int32_t* device);
  int32_t (*set_device)(int32_t device);
  // Of the current device.
  int32_t (*memory_left)(uint64_t* left_bytes, uint64_t* total_bytes);
  int32_t (*allocate)(void** memory, uint64_t bytes);
  int32_t (*release)(void* memory);
  int32_t (*allocate_pinned)(void** memory, uint64_t bytes);
  int32_t (*release_pinned)(void* memory);
  // place: a zero_place; HOST and device -1 where CUDA does not know the pointer.
  int32_t (*place_of)(const void* memory, int32_t* place, int32_t* device);

  int32_t (*copy)(void* dst, const void* src, uint64_t bytes, void* stream);
  int32_t (*fill)(void* dst, int32_t value, uint64_t bytes, void* stream);

  // Waits for nobody unless told: not a blocking stream.  urgent: before the others.
  int32_t (*stream_create)(void** stream, int32_t urgent);
  int32_t (*stream_destroy)(void* stream);
  int32_t (*stream_synchronize)(void* stream);
  int32_t (*stream_wait)(void* stream, void* event);
  int32_t (*stream_capturing)(void* stream, int32_t* capturing);
  int32_t (*event_create)(void** event);
  int32_t (*event_destroy)(void* event);
  int32_t (*event_record)(void* event, void* stream);
  int32_t (*event_synchronize)(void* event);
  int32_t (*event_done)(void* event, int32_t* done);
};

// Null where the plug-in speaks another version.
using CudaPluginFunction = const CudaPlugin* (*)(uint32_t version);

// The plug-in, opened when first asked for: the file that LIBZERO_CUDA_PATH names, else
// libzero_cuda.so beside libzero.so, else where the loader finds it.  Never closed.  Throws
// UNSUPPORTED saying what was tried and what went wrong; ordinal: of the device that it is wanted
// for.  Any thread.
const CudaPlugin& cuda_plugin(int32_t ordinal);

// The device is current until this goes; then what was current is so again.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t ordinal); // throws DEVICE
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const CudaPlugin& cuda_;
  const int32_t ordinal_;
  int32_t before_ = 0;
};
// Throws DEVICE, or DEVICE_LOST where nothing on the device can go on, origin "cuda".
[[noreturn]] void fail_cuda(int32_t error, const char* what);

} // namespace zero::device

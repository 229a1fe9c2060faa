// The emulation's stand-in for CUDA's header of this name, for kernels that are compiled by a host
// compiler.  Launches, copies and clearing happen at once; device memory is host memory.  With
// CUEMU_MACHINE it is the header of the emulated machine (../runtime), streams and all.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "emulated_intrinsics.h"

#ifdef CUEMU_MACHINE
#include "emulated_api.h"
#else

template <typename... Parameters, typename... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                                      void (*kernel)(Parameters...), Arguments&&... arguments) {
  return cuemu::launch(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                       config->stream, std::forward<Arguments>(arguments)...);
}

inline cudaError_t cudaMalloc(void** memory, size_t bytes) {
  // To the byte, so that AddressSanitizer sees the first one too many.
  return posix_memalign(memory, 256, bytes) == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaFree(void* memory) {
  free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t = nullptr) {
  if (bytes != 0) memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind);
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) {
  if (bytes != 0) memset(to, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}

#endif

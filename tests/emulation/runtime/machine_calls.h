// What the emulated CUDA calls share.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "machine.h"

namespace cuemu {

extern thread_local cudaError_t last_error;
cudaError_t driver_error(); // of a machine without a driver, or with an old one

// The machine's lock for the time of one call.
struct Call {
  Call() : lock(Machine::get().lock()), error(driver_error()) {
    if (error == cudaSuccess) error = Machine::get().begin();
    if (error != cudaSuccess) last_error = error;
  }
  cudaError_t failed(cudaError_t with) const {
    if (with != cudaSuccess) last_error = with;
    return with;
  }
  mutable Machine::Lock lock;
  cudaError_t error;
};

cudaError_t put(Machine::Lock* lock, cudaStream_t stream, const char* what, Body body,
                const void* owner = nullptr);
cudaError_t may_wait();
cudaStreamCaptureMode& thread_mode();

} // namespace cuemu

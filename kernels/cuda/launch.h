// How a kernel is launched, and shared arrays declared, so that the same source also runs in the
// emulation (tests/emulation), whose cuda_runtime.h brings its own.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#ifndef CU_SHARED
#define CU_SHARED(type, name, dimensions) __shared__ type name dimensions
#endif

namespace zero::cuda {

constexpr uint32_t kThreads = 256; // of a block
// More blocks than this gain nothing on any device, and each ends in a few atomic additions.
constexpr uint64_t kMostBlocks = 2048;

template <typename... Parameters>
int32_t launch_grid(void (*kernel)(Parameters...), dim3 grid, uint32_t threads, void* stream,
                    Parameters... arguments) {
  if (grid.x == 0 || grid.y == 0) return 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads, 1, 1);
  config.stream = static_cast<cudaStream_t>(stream);
  return static_cast<int32_t>(cudaLaunchKernelEx(&config, kernel, arguments...));
}

template <typename... Parameters>
int32_t launch(void (*kernel)(Parameters...), uint64_t blocks, void* stream,
               Parameters... arguments) {
  return launch_grid(kernel, dim3(static_cast<unsigned>(blocks), 1, 1), kThreads, stream,
                     arguments...);
}

// Blocks of a loop over count elements, a group of eight a thread and turn.
inline uint64_t blocks_for(uint64_t count, uint32_t most) {
  constexpr uint64_t kTurn = kThreads * 8;
  const uint64_t wanted = count / kTurn + (count % kTurn != 0 ? 1 : 0);
  return std::min<uint64_t>(wanted, most != 0 ? most : kMostBlocks);
}

} // namespace zero::cuda

// The table that libzero_cuda.so hands out.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/cuda_launchers.h"

extern "C" const zero::kernels::CudaKernelTable* zero_cuda_kernels(uint32_t version) {
  using namespace zero;
  static constexpr kernels::CudaKernelTable kTable = {
      kernels::kCudaKernelsVersion,
      sizeof(kernels::CudaKernelTable),
      cuda::update,
      cuda::reduce,
      cuda::norm,
      cuda::norm_clear,
      cuda::cast,
      cuda::add,
      cuda::scale,
      cuda::split_master,
      cuda::join_master,
      cuda::product,
      cuda::orthogonalise,
      cuda::verdict,
      cuda::prepare,
      cuda::trust_ratio,
      cuda::note,
      cuda::record,
  };
  return version == kernels::kCudaKernelsVersion ? &kTable : nullptr;
}

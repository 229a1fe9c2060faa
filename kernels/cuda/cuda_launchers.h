// The launchers that the table is made of; see cuda_kernels.h.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/cuda/cuda_kernels.h"

namespace zero::cuda {

using namespace zero::kernels;

int32_t update(const CudaUpdate* update, void* stream);
int32_t reduce(const CudaReduce* reduce, void* stream);
int32_t norm(const CudaNorm* norm, void* stream);
int32_t norm_clear(ExactSum* norms, uint64_t* first_bad, uint64_t count, void* stream);
int32_t cast(const CudaConvert* convert, void* stream);
int32_t add(const CudaConvert* convert, void* stream);
int32_t scale(const CudaConvert* convert, void* stream);
int32_t split_master(const CudaMaster* master, void* stream);
int32_t join_master(const CudaMaster* master, void* stream);
int32_t product(const ProductArguments* product, void* stream);
int32_t orthogonalise(const CudaOrthogonalise* orthogonalise, void* stream);
int32_t verdict(const CudaVerdict* verdict, void* stream);
int32_t prepare(const CudaPrepare* prepare, void* stream);
int32_t trust_ratio(const CudaTrustRatio* trust_ratio, void* stream);
int32_t note(const CudaNote* note, void* stream);
int32_t record(const CudaRecord* record, void* stream);

} // namespace zero::cuda

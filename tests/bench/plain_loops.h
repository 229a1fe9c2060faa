// The floors that the kernels are held against: the same streams read and written, almost no
// arithmetic, compiled with everything a compiler offers (-O3 -march=native -ffast-math).
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Four streams read, three written: fp32 AdamW with the master as the parameter.
void plain_update(float* p, const float* g, float* m, float* v, size_t n);
// The same with a 16-bit gradient read and a 16-bit parameter written.
void plain_update_16(float* p, uint16_t* q, const uint16_t* g, float* m, float* v, size_t n);
// Two streams read, one written.
void plain_reduce(const float* a, const float* b, float* out, size_t n);
void plain_reduce_16(const uint16_t* a, const uint16_t* b, uint16_t* out, size_t n);
// One stream read, one written, of two widths.
void plain_narrow(const float* from, uint16_t* to, size_t n);
void plain_widen(const uint16_t* from, float* to, size_t n);

#ifdef __cplusplus
}
#endif

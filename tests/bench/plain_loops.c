/* Kept apart from the bench itself, because it is compiled with other options. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "plain_loops.h"

void plain_update(float* restrict p, const float* restrict g, float* restrict m, float* restrict v,
                  size_t n) {
  for (size_t i = 0; i < n; i++) {
    m[i] = 0.9f * m[i] + g[i];
    v[i] = 0.9f * v[i] + g[i];
    p[i] = p[i] - m[i];
  }
}

void plain_update_16(float* restrict p, uint16_t* restrict q, const uint16_t* restrict g,
                     float* restrict m, float* restrict v, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const float gradient = (float)g[i];
    m[i] = 0.9f * m[i] + gradient;
    v[i] = 0.9f * v[i] + gradient;
    p[i] = p[i] - m[i];
    q[i] = (uint16_t)g[i] + 1;
  }
}

void plain_reduce(const float* restrict a, const float* restrict b, float* restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = 0.5f * (a[i] + b[i]);
}

void plain_reduce_16(const uint16_t* restrict a, const uint16_t* restrict b, uint16_t* restrict out,
                     size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = (uint16_t)(a[i] + b[i]);
}

void plain_narrow(const float* restrict from, uint16_t* restrict to, size_t n) {
  const uint32_t* bits = (const uint32_t*)from;
  for (size_t i = 0; i < n; i++) to[i] = (uint16_t)(bits[i] >> 16);
}

void plain_widen(const uint16_t* restrict from, float* restrict to, size_t n) {
  uint32_t* bits = (uint32_t*)to;
  for (size_t i = 0; i < n; i++) bits[i] = (uint32_t)from[i] << 16;
}

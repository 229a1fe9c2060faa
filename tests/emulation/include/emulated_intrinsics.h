// The device functions that the kernels use, on the host.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "emulated_launch.h"

#define CUEMU_SITE (__LINE__ * 1000 + __COUNTER__ % 1000)
#define __syncthreads() ((void)cuemu::barrier(CUEMU_SITE, 0))
#define __syncthreads_count(p) cuemu::barrier(CUEMU_SITE, (p), 0)
#define __syncthreads_or(p) cuemu::barrier(CUEMU_SITE, (p), 1)
#define __syncthreads_and(p) cuemu::barrier(CUEMU_SITE, (p), 2)
#define CUEMU_LN int line = __builtin_LINE()
template <class T>
T __shfl_sync(unsigned m, T v, int s, int w = 32, CUEMU_LN) {
  return cuemu::shfl(m, v, s, 0, w, line);
}
template <class T>
T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_LN) {
  return cuemu::shfl(m, v, d, 1, w, line);
}
template <class T>
T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32, CUEMU_LN) {
  return cuemu::shfl(m, v, d, 2, w, line);
}
template <class T>
T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, CUEMU_LN) {
  return cuemu::shfl(m, v, x, 3, w, line);
}
inline unsigned __ballot_sync(unsigned m, int p, CUEMU_LN) {
  return cuemu::ballot(m, p, line);
}
inline int __any_sync(unsigned m, int p, CUEMU_LN) {
  return cuemu::ballot(m, p, line) != 0;
}
inline int __all_sync(unsigned m, int p, CUEMU_LN) {
  return cuemu::ballot(m, !p, line) == 0;
}
inline void __syncwarp(unsigned m = ~0u, CUEMU_LN) {
#if CUEMU_TSAN
  char* s = cuemu::warp_sync(m);
  __tsan_release(s);
  cuemu::exchange(m, cuemu::kSyncwarp, 0, line);
  __tsan_acquire(s);
#else
  cuemu::exchange(m, cuemu::kSyncwarp, 0, line);
#endif
}
template <class T>
T atomicAdd(T* p, typename cuemu::id<T>::type v) {
  return cuemu::rmw(p, [=](T o) { return T(o + v); });
}
template <class T>
T atomicMax(T* p, typename cuemu::id<T>::type v) {
  return cuemu::rmw(p, [=](T o) { return o > v ? o : v; });
}
template <class T>
T atomicMin(T* p, typename cuemu::id<T>::type v) {
  return cuemu::rmw(p, [=](T o) { return o < v ? o : v; });
}
template <class T>
T atomicOr(T* p, typename cuemu::id<T>::type v) {
  return cuemu::rmw(p, [=](T o) { return T(o | v); });
}
template <class T>
T atomicExch(T* p, typename cuemu::id<T>::type v) {
  return cuemu::rmw(p, [=](T) { return v; });
}
template <class T>
T atomicCAS(T* p, typename cuemu::id<T>::type c, typename cuemu::id<T>::type v) {
  return cuemu::rmw(p, [=](T o) { return o == c ? v : o; });
}
inline unsigned atomicInc(unsigned* p, unsigned m) {
  return cuemu::rmw(p, [=](unsigned o) { return o >= m ? 0u : o + 1; });
}
CUEMU_FN void __threadfence() {
  if (cuemu::W.cur) cuemu::W.cur->fenced = true;
}
inline void __threadfence_block() {
  __threadfence();
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline unsigned __float_as_uint(float f) {
  unsigned u;
  memcpy(&u, &f, 4);
  return u;
}
inline float __uint_as_float(unsigned u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline int __float_as_int(float f) {
  return (int)__float_as_uint(f);
}
inline float __int_as_float(int u) {
  return __uint_as_float((unsigned)u);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned((uint64_t)a * b >> 32);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __clz(int x) {
  return x ? __builtin_clz(x) : 32;
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float rsqrtf(float a) {
  return 1.0f / std::sqrt(a);
}
inline int __float2int_rn(float a) {
  return a != a               ? 0
         : a >= 2147483648.f  ? INT32_MAX
         : a <= -2147483648.f ? INT32_MIN
                              : (int)std::nearbyint(a);
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __uint2float_rn(unsigned a) {
  return static_cast<float>(a);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dsub_rn(double a, double b) {
  return a - b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline double __dsqrt_rn(double a) {
  return std::sqrt(a);
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float __double2float_rn(double a) {
  return static_cast<float>(a);
}
inline double __ll2double_rn(long long a) {
  return static_cast<double>(a);
}
inline long long __double_as_longlong(double a) {
  long long u;
  memcpy(&u, &a, sizeof u);
  return u;
}
inline double __longlong_as_double(long long u) {
  double a;
  memcpy(&a, &u, sizeof a);
  return a;
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return uint4{x, y, z, w};
}

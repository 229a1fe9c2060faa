// What the C++ that ptx_to_cpp.py writes is made of; blocks and warps are those of the emulation.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cfenv>

#include "emulated_intrinsics.h"

namespace ptx {

// A kernel that was translated.  At the end its name is written to the file that CUEMU_RAN names,
// where one of its threads was run.
class Kernel {
 public:
  explicit Kernel(const char* name) : name_(name) {}
  ~Kernel() {
    const char* const path = getenv("CUEMU_RAN");
    if (threads == 0 || path == nullptr) return;
    FILE* const file = fopen(path, "a");
    if (file == nullptr) return;
    fprintf(file, "%s\n", name_);
    fclose(file);
  }
  unsigned long long threads = 0;

 private:
  const char* name_;
};
CUEMU_FN void enter(Kernel& kernel) {
  kernel.threads++;
}
template <class T, class S>
inline T R(S s) {
  if constexpr (std::is_same_v<T, float>) {
    uint32_t u = (uint32_t)s;
    float f;
    memcpy(&f, &u, 4);
    return f;
  } else if constexpr (std::is_same_v<T, double>) {
    uint64_t u = (uint64_t)s;
    double f;
    memcpy(&f, &u, 8);
    return f;
  } else
    return (T)s;
}
template <class D, class T>
inline void W(D& d, T v) {
  if constexpr (std::is_same_v<T, float>) {
    uint32_t u;
    memcpy(&u, &v, 4);
    d = (D)u;
  } else if constexpr (std::is_same_v<T, double>) {
    uint64_t u;
    memcpy(&u, &v, 8);
    d = (D)u;
  } else
    d = (D)v;
}
template <class T>
inline T ftz(T x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T(0), x) : x;
}
template <class T>
inline T fmin_(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
inline T fmax_(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class D, class S>
inline D f2i(S x) { // saturating, NaN -> 0, x already rounded
  if (x != x) return 0;
  constexpr D lo = std::numeric_limits<D>::min(), hi = std::numeric_limits<D>::max();
  if (x <= (S)lo) return lo;
  if (x >= (S)hi) return hi;
  return (D)x;
}
template <class T>
inline T rnd(T x, char m) {
  return m == 'n'   ? std::nearbyint(x)
         : m == 'z' ? std::trunc(x)
         : m == 'm' ? std::floor(x)
                    : std::ceil(x);
}
inline uint16_t to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
inline float from_bf16(uint16_t h) {
  return R<float>((uint32_t)h << 16);
}
inline uint16_t to_f16(float f) {
  _Float16 h = (_Float16)f;
  uint16_t u;
  memcpy(&u, &h, 2);
  return f != f ? 0x7fff : u;
}
inline float from_f16(uint16_t u) {
  _Float16 h;
  memcpy(&h, &u, 2);
  return (float)h;
}
template <class T>
inline T shl_(T a, uint32_t n) {
  return n >= sizeof(T) * 8 ? 0 : (T)(a << n);
}
template <class T>
inline T shr_(T a, uint32_t n) {
  return n >= sizeof(T) * 8 ? (a < 0 ? (T)-1 : 0) : (T)(a >> n);
}
template <class T>
struct Carried {
  T value;
  bool carry;
};
template <class T>
inline Carried<T> add_carry(T a, T b, bool c) {
  T s = (T)(a + b);
  T r = (T)(s + (T)c);
  return {r, s < a || r < s};
}
// carry: a borrow
template <class T>
inline Carried<T> sub_carry(T a, T b, bool c) {
  T s = (T)(a - b);
  T r = (T)(s - (T)c);
  return {r, a < b || s < (T)c};
}
template <class T>
inline T mulhi(T a, T b) {
  if constexpr (sizeof(T) == 8)
    return (T)(((std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>)a * b) >> 64);
  else
    return (T)(((std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>)a * b) >>
               (sizeof(T) * 8));
}
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t c) {
  uint64_t v = (uint64_t)b << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t s = c >> 4 * i & 15, x = v >> 8 * (s & 7) & 255;
    if (s & 8) x = x & 128 ? 255 : 0;
    r |= x << 8 * i;
  }
  return r;
}
struct Smem {
  unsigned char* st;
  uint32_t n, dynbase;
};
template <class T>
inline T* sp(const Smem& s, uint64_t a, int line, int n = 1) {
  if (a % (sizeof(T) * n)) cuemu::die("PTX: misaligned shared access", line);
  if (a + sizeof(T) * n <= s.n) return (T*)(s.st + a);
  if (a >= s.dynbase && a - s.dynbase + sizeof(T) * n <= cuemu::W.smem)
    return (T*)(cuemu::W.dyn + (a - s.dynbase));
  cuemu::die("PTX: shared access out of bounds", line);
}
template <class T>
inline T* gp(uint64_t a, int line, int n = 1) {
  if (a % (sizeof(T) * n)) cuemu::die("PTX: misaligned global access", line);
  return (T*)a;
}
inline uint64_t generic(const Smem& s, uint64_t a) {
  return a < s.n ? (uint64_t)(s.st + a) : (uint64_t)(cuemu::W.dyn + (a - s.dynbase));
}
inline uint64_t to_shared(const Smem& s, uint64_t g) {
  uint64_t d = g - (uint64_t)s.st;
  return d < s.n ? d : g - (uint64_t)cuemu::W.dyn + s.dynbase;
}
inline uint32_t shfl(char mode, uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool& p,
                     int line) {
  const uint64_t* v = cuemu::exchange(mask, cuemu::kShfl, a, line);
  int lane = cuemu::W.cur->lin & 31, seg = c >> 8 & 31, cl = c & 31, j,
      mx = (lane & seg) | (cl & ~seg), mn = lane & seg;
  b &= 31;
  if (mode == 'u') {
    j = lane - (int)b;
    p = j >= mx;
  } else if (mode == 'd') {
    j = lane + (int)b;
    p = j <= mx;
  } else if (mode == 'b') {
    j = lane ^ (int)b;
    p = j <= mx;
  } else {
    j = mn | ((int)b & ~seg);
    p = j <= mx;
  }
  return (uint32_t)v[p ? j : lane];
}
} // namespace ptx

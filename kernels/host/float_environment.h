// Kernels compute in the default floating-point environment (round to nearest, denormals kept)
// whatever the host program has set: a library linked with -ffast-math is enough to make a thread
// flush denormals, and every thread it starts after that.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace zero::kernels {

#if defined(__x86_64__)
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(_mm_getcsr()) { set(kDefault); }
  ~FloatEnvironment() { set(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80; // all exceptions masked, nearest, no flushing
  // The fence keeps the compiler from moving the kernel's memory accesses, and so its work, across.
  static void set(unsigned value) {
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(value);
    __asm__ volatile("" ::: "memory");
  }
  unsigned saved_;
};
#else
class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};
#endif

// The table's form of a kernel: the same function inside the default environment.
template <auto kernel>
struct Guarded;
template <typename Result, typename... Arguments, Result (*kernel)(Arguments...)>
struct Guarded<kernel> {
  static Result run(Arguments... arguments) {
    const FloatEnvironment environment;
    return kernel(arguments...);
  }
};

} // namespace zero::kernels

// CUDA threads as fibers of one host thread: what the emulation knows about a running kernel, and
// how it goes from one fiber to the next.  x86-64.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "emulated_types.h"

#ifdef __has_feature // clang spells these differently
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
// On the emulated machine the compiler's calls for ThreadSanitizer are answered by
// access_checks.cc.
#if defined(__SANITIZE_THREAD__) && !defined(CUEMU_MACHINE)
#define CUEMU_TSAN 1
extern "C" {
void *__tsan_get_current_fiber(void), *__tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*), __tsan_switch_to_fiber(void*, unsigned), __tsan_acquire(void*),
    __tsan_release(void*);
}
#else
#define CUEMU_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void**, const void*, size_t);
extern "C" void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
#endif
#define CUEMU_FN __attribute__((no_sanitize("thread"), noinline)) inline

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace cuemu {
constexpr size_t kStack = CUEMU_TSAN ? 65536 : 131072;
constexpr unsigned kTsanPools = 2; // blocks b and b+2 share TSan identities (creating one costs ms)
enum Kind { kNone, kShfl, kBallot, kSyncwarp, kReduce };
struct WarpOp {
  unsigned mask, arrived, gen;
  int kind;
  uint64_t buf[2][32];
};
struct Warp {
  WarpOp op[8];
  int nops;
  unsigned live;
};
struct Fiber {
  void* sp;
  char* stack;
  void* fake;
  Fiber* next;
};
struct Thread {
  uint3 idx;
  unsigned lin;
  int state;
  Fiber* f;
  volatile unsigned* wait;
  unsigned wval;
  void* ts;
  int line;
  bool fenced;
};
struct World {
  Thread *thr = nullptr, *cur = nullptr;
  Warp* warp = nullptr;
  unsigned n = 0, next = 0, live = 0;
  unsigned* order = nullptr;
  void *main_sp = nullptr, *fake = nullptr, *main_ts = nullptr;
  const void* mstk = nullptr;
  size_t mlen = 0;
  unsigned bar_n = 0;
  volatile unsigned bar_gen = 0;
  int bar_site = 0;
  unsigned bar_acc[2][3] = {};
  char *sync = nullptr, done_sync = 0, start_sync = 0;
  unsigned char* dyn = nullptr;
  size_t smem = 0;
  uint64_t epoch = 0;
  char *bump = nullptr, *end = nullptr;
  Fiber *pool = nullptr, *curf = nullptr;
  void (*fn)(void*) = nullptr;
  void* ctx = nullptr;
};
inline constinit thread_local World W;
// The shared arrays of the kernels that ran on this thread.
struct SharedArray {
  const void* start;
  size_t bytes;
};
inline constinit thread_local SharedArray shared_arrays[64] = {};
inline constinit thread_local unsigned shared_array_count = 0;

[[noreturn]] CUEMU_FN void die(const char* what, int line = 0) {
  Thread* t = W.cur;
  fprintf(stderr, "cuemu: %s: block (%u,%u,%u) thread (%u,%u,%u) line %d\n", what, blockIdx.x,
          blockIdx.y, blockIdx.z, t ? t->idx.x : 0, t ? t->idx.y : 0, t ? t->idx.z : 0, line);
  for (unsigned i = 0, k = 0; W.thr && i < W.n && k < 8; i++)
    if (W.thr[i].state == 1) {
      k++;
      fprintf(stderr, "  thread %u waits at line %d\n", i, W.thr[i].line);
    }
  fflush(stderr);
  abort();
}
#if defined(__x86_64__)
__attribute__((naked, noinline)) static void swap_sp(void**, void*) { // (save, to)
  asm volatile(
      "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15; movq %rsp,(%rdi);"
      "movq %rsi,%rsp; popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret");
}
#else
#error "port swap_sp (or use ucontext) for this CPU"
#endif
CUEMU_FN void to_main(bool dead = false) {
  Fiber* f = W.curf;
  (void)dead;
#if CUEMU_TSAN
  __tsan_switch_to_fiber(W.main_ts, 1);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(dead ? nullptr : &f->fake, W.mstk, W.mlen);
#endif
  swap_sp(&f->sp, W.main_sp);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(f->fake, &W.mstk, &W.mlen);
#endif
}
CUEMU_FN void to_fiber(Fiber* f) {
  W.curf = f;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&W.fake, f->stack, kStack);
#endif
  swap_sp(&W.main_sp, f->sp);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(W.fake, nullptr, nullptr);
#endif
}
CUEMU_FN void enter(Thread* t) {
  W.cur = t;
  threadIdx = t->idx;
#if CUEMU_TSAN
  __tsan_switch_to_fiber(t->ts, 1); // 1 = no synchronisation implied by the switch
  if (t->state == 0) __tsan_acquire(&W.start_sync);
#endif
}
CUEMU_FN void wait_on(volatile unsigned* p, unsigned v, int line) {
  Thread* t = W.cur;
  t->wait = p;
  t->wval = v;
  t->line = line;
  t->state = 1;
  while (*p == v) to_main();
  t->state = 2;
}

} // namespace cuemu

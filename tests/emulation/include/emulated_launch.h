// Runs a grid, one block after the other.  CUEMU_ORDER=fwd|rev|rand[:seed] is the order of blocks,
// and of threads wherever there is a choice.  Shared memory starts as NaN.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "emulated_warps.h"

namespace cuemu {

CUEMU_FN void carrier() { // a fiber runs not-yet-started threads one after another until one blocks
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &W.mstk, &W.mlen);
#endif
  for (;;) {
    while (W.next < W.n) {
      Thread* t = &W.thr[W.order[W.next++]];
      Fiber* me = W.curf;
      t->f = me;
      enter(t);
      t->state = 2;
      W.fn(W.ctx);
      thread_exit(t);
#if CUEMU_TSAN
      break; // never reuse a stack inside a block: TSan would see the old owner's accesses
#endif
    }
    W.curf->fake = nullptr;
    W.curf->next = W.pool;
    W.pool = W.curf;
    to_main(true);
  }
}
CUEMU_FN Fiber* new_fiber() {
  Fiber* f = W.pool;
  if (f && !CUEMU_TSAN) {
    W.pool = f->next;
    return f;
  }
  char* m = W.bump;
  if (CUEMU_TSAN)
    W.bump += kStack;
  else
    m = (char*)mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  f = (Fiber*)(m + kStack - 64);
  f->stack = m;
  f->fake = nullptr;
  f->next = nullptr;
  void** s = (void**)f - 1;
  *s-- = nullptr;
  *s = (void*)carrier;
  for (int i = 0; i < 6; i++) *--s = nullptr;
  f->sp = s;
  return f;
}
template <class A, class Tag>
CUEMU_FN A& shm(Tag) {
  static thread_local A* p;
  static thread_local uint64_t epoch;
  if (epoch != W.epoch) {
    if (CUEMU_TSAN) {
      p = (A*)W.bump;
      W.bump += (sizeof(A) + 63) & ~size_t(63);
    } else if (!p) {
      p = (A*)aligned_alloc(16, (sizeof(A) + 15) & ~size_t(15));
      if (shared_array_count < 64) shared_arrays[shared_array_count++] = {p, sizeof(A)};
    }
    for (volatile unsigned char *b = (unsigned char*)p, *e = b + sizeof(A); b < e; b++)
      *b = 0xff; // poison (NaN)
    epoch = W.epoch;
  }
  return *p;
}
CUEMU_FN void run(dim3 g, dim3 b, size_t smem, void (*fn)(void*), void* ctx) {
  if (W.cur) die("nested launch");
  unsigned n = b.x * b.y * b.z;
  uint64_t nb = uint64_t(g.x) * g.y * g.z;
  if (!n || n > 1024 || !nb || g.y > 65535 || g.z > 65535 || smem > 232448)
    die("bad launch configuration");
  const char* o = getenv("CUEMU_ORDER");
  if (!o) o = "fwd";
  std::mt19937_64 rng(strlen(o) > 5 ? atoll(o + 5) : 1);
  char mode = o[1]; // w/e/a
  std::vector<Thread> thr(n);
  std::vector<Warp> warps((n + 31) / 32);
  std::vector<unsigned> ord(n);
  std::vector<unsigned char> dyn(smem + 16);
  std::vector<uint64_t> bo;
  if (mode == 'a') {
    bo.resize(nb);
    for (uint64_t i = 0; i < nb; i++) bo[i] = i;
    std::shuffle(bo.begin(), bo.end(), rng);
  }
  W.thr = thr.data();
  W.warp = warps.data();
  W.n = n;
  W.fn = fn;
  W.ctx = ctx;
  gridDim = g;
  blockDim = b;
  W.smem = smem;
  W.order = ord.data();
  W.dyn = (unsigned char*)(((uintptr_t)dyn.data() + 15) & ~uintptr_t(15));
  std::vector<std::pair<char*, size_t> > arenas;
  (void)arenas;
#if CUEMU_TSAN
  W.main_ts = __tsan_get_current_fiber();
  static thread_local std::vector<void*> ts;
  while (ts.size() < n * std::min<uint64_t>(nb, kTsanPools)) ts.push_back(__tsan_create_fiber(0));
  __tsan_release(&W.start_sync);
#endif
  for (unsigned i = 0; i < n; i++) ord[i] = mode == 'e' ? n - 1 - i : i;
  for (uint64_t q = 0; q < nb; q++) {
    uint64_t bi = mode == 'e' ? nb - 1 - q : mode == 'a' ? bo[q] : q;
    blockIdx = uint3{unsigned(bi % g.x), unsigned(bi / g.x % g.y), unsigned(bi / g.x / g.y)};
    W.epoch++;
    W.next = 0;
    W.live = n;
    W.bar_n = 0;
    for (auto& x : W.bar_acc) x[0] = x[1] = 0, x[2] = 1;
    if (CUEMU_TSAN) { // never-used addresses for each block's stacks and shared memory: no stale
                      // shadow state
      size_t sz = n * kStack + smem + 262144;
      W.bump = (char*)syscall(SYS_mmap, nullptr, sz, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      arenas.push_back({W.bump, sz});
      W.end = W.bump + sz;
      W.sync = W.bump;
      W.bump += 4096;
      W.dyn = (unsigned char*)W.bump;
      W.bump += (smem + 63) & ~size_t(63);
    }
    for (size_t i = 0; i < smem; i++) W.dyn[i] = 0xff;
    for (unsigned i = 0; i < n; i++) {
      thr[i] = Thread{uint3{i % b.x, i / b.x % b.y, i / b.x / b.y},
                      i,
                      0,
                      nullptr,
                      nullptr,
                      0,
                      nullptr,
                      0,
                      false};
#if CUEMU_TSAN
      thr[i].ts = ts[(bi % kTsanPools) * n + (i + bi * 5) % n];
#endif
    }
    for (unsigned w = 0; w < warps.size(); w++) {
      unsigned c = std::min(32u, n - w * 32);
      warps[w].nops = 0;
      warps[w].live = c == 32 ? ~0u : (1u << c) - 1;
      for (auto& x : warps[w].op) x.gen = 0, x.arrived = 0;
    }
    if (mode == 'a') std::shuffle(ord.begin(), ord.end(), rng);
    for (bool progress = true; W.live;) {
      if (W.next == n && !progress) die("deadlock: no thread can go on");
      progress = false;
      while (W.next < n) {
        progress = true;
        to_fiber(new_fiber());
      }
      if (mode == 'a') std::shuffle(ord.begin(), ord.end(), rng);
      for (unsigned i = 0; i < n; i++) {
        Thread* t = &thr[ord[i]];
        if (t->state == 1 && *t->wait != t->wval) {
          progress = true;
          enter(t);
          to_fiber(t->f);
        }
      }
    }
  }
#if CUEMU_TSAN
  __tsan_acquire(&W.done_sync);
  for (auto& x : arenas) munmap(x.first, x.second);
#endif
  W.cur = nullptr;
  W.thr = nullptr;
}
template <class... P, class... A>
cudaError_t launch(void (*k)(P...), dim3 g, dim3 b, size_t smem, cudaStream_t, A&&... a) {
  struct Ctx {
    void (*k)(P...);
    std::tuple<P...> t;
  } c{k, std::tuple<P...>(static_cast<P>(std::forward<A>(a))...)};
  run(
      g, b, smem,
      [](void* p) {
        auto* c = (Ctx*)p;
        std::apply(c->k, c->t);
      },
      &c);
  return cudaSuccess;
}

} // namespace cuemu

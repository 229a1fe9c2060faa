// Barriers of a block and exchanges between the lanes of a warp, each of which stops the program
// with block, thread and line where a GPU would hang or read what is not there.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "emulated_fibers.h"

namespace cuemu {

CUEMU_FN void bar_release() {
  W.bar_n = 0;
  W.bar_site = 0;
  unsigned* a = W.bar_acc[(W.bar_gen + 1) & 1];
  a[0] = a[1] = 0;
  a[2] = 1;
  W.bar_gen = W.bar_gen + 1;
}
CUEMU_FN int barrier(int line, unsigned pred, int k = 0) { // k: 0 count, 1 or, 2 and
  unsigned g = W.bar_gen, *a = W.bar_acc[g & 1];
  if (W.bar_n && W.bar_site != line)
    die("divergent __syncthreads (another thread of the block waits elsewhere)", line / 1000);
  if (W.live != W.n) die("__syncthreads after some threads of the block have exited", line / 1000);
  W.bar_site = line;
  a[0] += pred != 0;
  a[1] |= pred != 0;
  a[2] &= pred != 0;
#if CUEMU_TSAN
  __tsan_release(W.sync + (g & 1));
#endif
  if (++W.bar_n == W.live)
    bar_release();
  else
    wait_on(&W.bar_gen, g, line / 1000);
#if CUEMU_TSAN
  __tsan_acquire(W.sync + (g & 1));
#endif
  return (int)a[k];
}
CUEMU_FN void op_release(WarpOp& o) {
  for (int i = 0; i < 32; i++)
    if (!(o.arrived >> i & 1)) o.buf[o.gen & 1][i] = ~0ull; // poison
  o.arrived = 0;
  o.kind = kNone;
  o.gen++;
}
CUEMU_FN WarpOp& find_op(unsigned mask, int line) {
  Warp& w = W.warp[W.cur->lin >> 5];
  if (!(mask >> (W.cur->lin & 31) & 1))
    die("warp intrinsic: calling lane is not in its own mask", line);
  for (int k = 0; k < w.nops; k++)
    if (w.op[k].mask == mask) return w.op[k];
  int k = 0;
  while (k < w.nops && w.op[k].arrived) k++;
  if (k == 8) die("too many warp masks in use", line);
  if (k == w.nops) w.nops++;
  w.op[k].mask = mask;
  w.op[k].arrived = 0;
  w.op[k].kind = kNone;
  return w.op[k];
}
CUEMU_FN char* warp_sync(unsigned mask) {
  Warp& w = W.warp[W.cur->lin >> 5];
  WarpOp& o = find_op(mask, 0);
  return W.sync + 64 + (&w - W.warp) * 64 + (&o - w.op) * 2 + (o.gen & 1);
}
CUEMU_FN const uint64_t* exchange(unsigned mask, int kind, uint64_t v, int line) {
  unsigned lane = W.cur->lin & 31;
  Warp& w = W.warp[W.cur->lin >> 5];
  WarpOp& o = find_op(mask, line);
  unsigned g = o.gen;
  if (o.arrived && o.kind != kind) die("lanes of one mask are in different warp intrinsics", line);
  o.kind = kind;
  o.buf[g & 1][lane] = v;
  o.arrived |= 1u << lane;
  if (o.arrived == (mask & w.live))
    op_release(o);
  else
    wait_on(&o.gen, g, line);
  return o.buf[g & 1];
}
CUEMU_FN void thread_exit(Thread* t) {
  t->state = 3;
  W.live--;
#if CUEMU_TSAN
  __tsan_release(&W.done_sync);
#endif
  Warp& w = W.warp[t->lin >> 5];
  w.live &= ~(1u << (t->lin & 31));
  for (int k = 0; k < w.nops; k++)
    if (w.op[k].arrived && w.op[k].arrived == (w.op[k].mask & w.live)) op_release(w.op[k]);
  if (W.bar_n) die("a thread exited while others wait at __syncthreads", W.bar_site / 1000);
}

template <class T>
uint64_t bits(T v) {
  static_assert(sizeof(T) <= 8, "");
  uint64_t u = 0;
  memcpy(&u, &v, sizeof v);
  return u;
}
template <class T>
T unbits(uint64_t u) {
  T v;
  memcpy((void*)&v, &u, sizeof v);
  return v;
}
template <class T>
T shfl(unsigned m, T v, int src_rel, int mode, int w, int line) {
  const uint64_t* b = exchange(m, kShfl, bits(v), line);
  int l = W.cur->lin & 31, base = l & ~(w - 1), s;
  if (mode == 0)
    s = base + (src_rel & (w - 1));
  else if (mode == 1) {
    s = l - src_rel;
    if (s < base) s = l;
  } else if (mode == 2) {
    s = l + src_rel;
    if (s >= base + w) s = l;
  } else {
    s = l ^ src_rel;
    if (s >= base + w) s = l;
  }
  return unbits<T>(b[s]);
}
template <class T, class F>
T reduce(unsigned m, T v, F f, int line) {
  const uint64_t* b = exchange(m & W.warp[W.cur->lin >> 5].live, kReduce, bits(v), line);
  T r{};
  bool first = true;
  for (int i = 0; i < 32; i++)
    if (m & W.warp[W.cur->lin >> 5].live & 1u << i) {
      r = first ? unbits<T>(b[i]) : f(r, unbits<T>(b[i]));
      first = false;
    }
  return r;
}
inline unsigned ballot(unsigned m, bool p, int line) {
  const uint64_t* b = exchange(m, kBallot, p, line);
  unsigned r = 0;
  for (int i = 0; i < 32; i++)
    if ((m >> i & 1) && b[i] == 1) r |= 1u << i;
  return r;
}
CUEMU_FN bool fenced() {
  return W.cur && W.cur->fenced;
}
template <class T, class F>
T rmw(T* p, F f) { // any 4/8-byte type, by compare-and-swap
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  U o = __atomic_load_n((U*)p, __ATOMIC_RELAXED), n;
  do {
    n = (U)bits(f(unbits<T>(o)));
  } while (!(
      fenced()
          ? __atomic_compare_exchange_n((U*)p, &o, n, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
          : __atomic_compare_exchange_n((U*)p, &o, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)));
  return unbits<T>(o);
}
template <class T>
struct id {
  using type = T;
};

} // namespace cuemu

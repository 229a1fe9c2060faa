// Every load and store of a kernel: the compiler's calls for ThreadSanitizer, put to another use.
// An address must be of live device memory of the kernel's device, of pinned memory, or of the
// kernel's own: its stack, its shared memory, its arguments, constants of its module.
// SPDX-License-Identifier: BSD-3-Clause
#include <link.h>

#include <mutex>

#include "device_memory.h"
#include "emulated_fibers.h"

namespace cuemu {
namespace {

struct Module {
  uintptr_t first = 0, last = 0;
};

const Module& this_module() {
  static const Module found = [] {
    Module module;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
          Module range;
          for (int h = 0; h < info->dlpi_phnum; ++h) {
            const auto& header = info->dlpi_phdr[h];
            if (header.p_type != PT_LOAD) continue;
            const uintptr_t first = info->dlpi_addr + header.p_vaddr;
            if (range.last == 0) range.first = first;
            range.last = first + header.p_memsz;
          }
          const auto own = reinterpret_cast<uintptr_t>(&this_module);
          if (own < range.first || own >= range.last) return 0;
          *static_cast<Module*>(data) = range;
          return 1;
        },
        &module);
    return module;
  }();
  return found;
}

bool within(uintptr_t at, const void* start, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(start);
  return at >= first && at < first + bytes;
}

void check(void* address, uint64_t bytes, const char* what) {
  if (running_device < 0 || W.cur == nullptr || W.cur->state != 2 || W.curf == nullptr) return;
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (!within(here, W.curf->stack, kStack)) return; // the emulation's own, between threads
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (device_of(address) >= 0) return check_access(address, bytes, what);
  if (within(at, W.curf->stack, kStack)) return;
  // threadIdx and its like, and the emulation's own: the thread-local storage of this module
  if (within(at, reinterpret_cast<char*>(&W) - 4096, 8192 + sizeof W)) return;
  if (within(at, W.ctx, 4096) || within(at, W.dyn, W.smem)) return;
  if (within(at, W.warp, (W.n + 31) / 32 * sizeof(Warp)) || within(at, W.thr, W.n * sizeof(Thread)))
    return;
  for (unsigned k = 0; k < shared_array_count; ++k) {
    if (within(at, shared_arrays[k].start, shared_arrays[k].bytes)) return;
  }
  const Module& module = this_module();
  if (at >= module.first && at < module.last) return;
  check_access(address, bytes, what);
}

} // namespace
} // namespace cuemu

#define CHECKED(bytes)                                \
  void __tsan_read##bytes(void* address) {            \
    cuemu::check(address, bytes, "load");             \
  }                                                   \
  void __tsan_write##bytes(void* address) {           \
    cuemu::check(address, bytes, "store");            \
  }                                                   \
  void __tsan_unaligned_read##bytes(void* address) {  \
    cuemu::check(address, bytes, "load");             \
  }                                                   \
  void __tsan_unaligned_write##bytes(void* address) { \
    cuemu::check(address, bytes, "store");            \
  }

#define CHECKED_ATOMIC(bits, type)                                                                 \
  type __tsan_atomic##bits##_load(const volatile type* at, int) {                                  \
    cuemu::check(const_cast<type*>(at), bits / 8, "load");                                         \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile type* at, type value, int) {                           \
    cuemu::check(const_cast<type*>(at), bits / 8, "store");                                        \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                \
  type __tsan_atomic##bits##_fetch_add(volatile type* at, type value, int) {                       \
    cuemu::check(const_cast<type*>(at), bits / 8, "store");                                        \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile type* at, type* old, type value,     \
                                                     int, int) {                                   \
    cuemu::check(const_cast<type*>(at), bits / 8, "store");                                        \
    return __atomic_compare_exchange_n(at, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* at, type old, type value, int,    \
                                                  int) {                                           \
    __tsan_atomic##bits##_compare_exchange_strong(at, &old, value, 0, 0);                          \
    return old;                                                                                    \
  }

extern "C" {
#pragma GCC diagnostic ignored "-Wmissing-declarations"
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* address, size_t bytes) {
  cuemu::check(address, bytes, "load");
}
void __tsan_write_range(void* address, size_t bytes) {
  cuemu::check(address, bytes, "store");
}
CHECKED(1)
CHECKED(2)
CHECKED(4)
CHECKED(8)
CHECKED(16)
CHECKED_ATOMIC(8, uint8_t)
CHECKED_ATOMIC(32, uint32_t)
CHECKED_ATOMIC(64, uint64_t)
}

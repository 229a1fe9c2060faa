// This program's own malloc, mmap and the like, which stand before the C library's and count, on
// all threads, what is asked for between two marks.  For one file of a program, and before any
// other header: mmap must not be another name of mmap64. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#undef _FILE_OFFSET_BITS

#include <execinfo.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIBZERO_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LIBZERO_SANITIZED 1
#endif
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> counted{0};
void* first_trace[24];
std::atomic<int> first_depth{0};

[[maybe_unused]] void count() {
  if (!counting.load(std::memory_order_relaxed)) return;
  if (counted.fetch_add(1) == 0) first_depth.store(backtrace(first_trace, 24));
}

} // namespace

#ifndef LIBZERO_SANITIZED // which bring their own
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count();
  return __libc_calloc(items, bytes);
}
void* realloc(void* memory, size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  count();
  void* const made = __libc_memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *memory = made;
  return 0;
}
void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  count();
  const long result = syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
  return result == -1 ? MAP_FAILED : reinterpret_cast<void*>(result);
}
void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(address, bytes, protection, flags, fd, offset);
}
}
#endif

namespace {

int64_t end_count() {
  counting.store(false);
  const int64_t result = counted.exchange(0);
  if (result != 0) {
    std::fflush(nullptr);
    backtrace_symbols_fd(first_trace, first_depth.load(), 2);
  }
  return result;
}

} // namespace

// Exchanges, announcements and the step's small all-reduce leave the heap alone.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>

#include "local_ranks.h"

using namespace local_ranks;

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr bool kCounted = false; // the sanitizer has its own operator new
static std::atomic<uint64_t> allocations{0};
#else
constexpr bool kCounted = true;
// Every allocation of this program is counted.
static std::atomic<uint64_t> allocations{0};
void* operator new(size_t bytes) {
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif

namespace {

void exchanges_and_announcements_do_not_allocate(void**) {
  const std::string group = fresh_group();
  run_processes(2, [&](int32_t rank) {
    const auto comm = join(group, rank, 2);
    void* const memory = comm->allocate_shared(4096);
    const void* views[2];
    int64_t values[40] = {};
    const uint64_t before = allocations;
    EXPECT(before > 0);
    for (uint64_t i = 0; i < 1000; ++i) {
      if (i % 100 == 0 && rank == 1) usleep(1000); // the other one sleeps
      const auto stamp = stamp_of(i, Operation::kReduceScatter, 0, 8);
      comm->announce(stamp);
      comm->exchange_begin(Channel::kReduce, ExchangeKind::kScatter, stamp, memory, 8, views);
      comm->exchange_end(Channel::kReduce);
      comm->all_reduce_int64(Channel::kControl, stamp, values, 40);
      comm->check();
    }
    EXPECT(allocations == before);
  });
}

} // namespace

int main() {
  if (!kCounted) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(exchanges_and_announcements_do_not_allocate),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

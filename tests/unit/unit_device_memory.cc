// Memory and parallel ranges of the host device.
// SPDX-License-Identifier: BSD-3-Clause
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/device.h"

extern "C" {
#include <cmocka.h> // last: it has a macro named fail
}

namespace {

using zero::device::Device;
using zero::device::make_host_device;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = UINT64_C(2) << 20;

void memory_is_cleared_aligned_and_populated(void**) {
  const auto device = make_host_device(1);
  assert_int_equal(device->place(), ZERO_PLACE_HOST);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kPage, kPage + 1, kHugePage - 1, kHugePage,
                               kHugePage + 1, 5 * kHugePage + 12345}) {
    char* const memory = static_cast<char*>(device->allocate(bytes));
    assert_non_null(memory);
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
    assert_int_equal(address % kPage, 0);
    if (bytes >= kHugePage) assert_int_equal(address % kHugePage, 0);
    const uint64_t pages = (bytes + kPage - 1) / kPage;
    std::vector<unsigned char> resident(pages + 1);
    assert_int_equal(mincore(memory, pages * kPage, resident.data()), 0);
    for (uint64_t k = 0; k < pages; k++) assert_int_equal(resident[k] & 1, 1);
    for (uint64_t k = 0; k < bytes; k++) {
      if (memory[k] != 0) fail_msg("byte %llu is not 0", static_cast<unsigned long long>(k));
    }
    if (bytes != 0) std::memset(memory, 0xff, bytes);
    device->release(memory, bytes);
    // All of it is gone, the page-rounded end included.
    errno = 0;
    assert_int_equal(mincore(memory, kPage, resident.data()), -1);
    if (pages > 1) {
      assert_int_equal(mincore(memory + (pages - 1) * kPage, kPage, resident.data()), -1);
    }
  }
  device->release(nullptr, 100);
}

void two_allocations_do_not_overlap(void**) {
  const auto device = make_host_device(1);
  char* const a = static_cast<char*>(device->allocate(kHugePage + 5));
  char* const b = static_cast<char*>(device->allocate(kHugePage + 5));
  std::memset(a, 1, kHugePage + 5);
  std::memset(b, 2, kHugePage + 5);
  for (uint64_t k = 0; k < kHugePage + 5; k++) assert_int_equal(a[k], 1);
  device->release(a, kHugePage + 5);
  for (uint64_t k = 0; k < kHugePage + 5; k++) assert_int_equal(b[k], 2);
  device->release(b, kHugePage + 5);
}

void memory_that_cannot_be_had_is_an_error_that_says_how_much(void**) {
  const auto device = make_host_device(1);
  for (const uint64_t bytes : {UINT64_C(1) << 60, UINT64_MAX, UINT64_MAX - 4096}) {
    try {
      device->allocate(bytes);
      fail_msg("no error");
    } catch (const zero::Error& error) {
      assert_int_equal(error.status(), ZERO_ERR_OUT_OF_MEMORY);
      assert_non_null(std::strstr(error.what(), std::to_string(bytes).c_str()));
    }
  }
}

void a_device_needs_a_thread(void**) {
  for (const int32_t threads : {0, -1}) {
    try {
      make_host_device(threads);
      fail_msg("no error");
    } catch (const zero::Error& error) {
      assert_int_equal(error.status(), ZERO_ERR_INVALID_ARGUMENT);
      assert_non_null(std::strstr(error.what(), std::to_string(threads).c_str()));
    }
  }
}

struct Cover {
  std::vector<uint8_t> hits; // no lock: parts must not overlap
  std::vector<std::atomic<int>> running;
  uint64_t count, grain;
  std::atomic<bool> good{true};

  Cover(uint64_t elements, uint64_t multiple, int32_t width)
      : hits(elements), running(static_cast<size_t>(width)), count(elements), grain(multiple) {}

  static void part(void* context, uint64_t begin, uint64_t end, int32_t index) {
    Cover& c = *static_cast<Cover*>(context);
    if (index < 0 || static_cast<size_t>(index) >= c.running.size() || begin >= end ||
        end > c.count || begin % c.grain != 0 || (end % c.grain != 0 && end != c.count)) {
      c.good = false;
      return;
    }
    // An index belongs to one part at a time: it may name a thread's own sum.
    if (c.running[static_cast<size_t>(index)]++ != 0) c.good = false;
    for (uint64_t k = begin; k < end; k++) c.hits[k]++;
    c.running[static_cast<size_t>(index)]--;
  }

  bool exactly_once() const {
    for (const uint8_t hit : hits) {
      if (hit != 1) return false;
    }
    return good;
  }
};

void parallel_covers_each_element_exactly_once(void**) {
  for (const int32_t threads : {1, 2, 3, 7}) {
    const auto device = make_host_device(threads);
    assert_int_equal(device->parallel_width(), threads);
    for (const uint64_t grain : {1, 2, 3, 32, 100, 4096}) {
      for (uint64_t count = 0; count < 5000; count += count < 70 ? 1 : 509) {
        Cover cover(count, static_cast<uint64_t>(grain), threads);
        device->parallel(count, static_cast<uint64_t>(grain), Cover::part, &cover);
        if (!cover.exactly_once()) {
          fail_msg("threads %d, grain %d, count %d", static_cast<int>(threads),
                   static_cast<int>(grain), static_cast<int>(count));
        }
      }
    }
  }
}

void ranges_near_the_end_of_64_bits_do_not_wrap(void**) {
  const auto device = make_host_device(3);
  struct Ends {
    std::atomic<uint64_t> covered{0}, last{0};
    static void part(void* context, uint64_t begin, uint64_t end, int32_t) {
      Ends& ends = *static_cast<Ends*>(context);
      ends.covered += end - begin;
      uint64_t seen = ends.last;
      while (seen < end && !ends.last.compare_exchange_weak(seen, end)) {
      }
    }
  } ends;
  device->parallel(UINT64_MAX - 1, 32, Ends::part, &ends);
  assert_true(ends.covered == UINT64_MAX - 1);
  assert_true(ends.last == UINT64_MAX - 1);
}

// The helpers take part: two parts that wait for each other can only end on two threads.
void parts_run_on_more_than_one_thread(void**) {
  const auto device = make_host_device(2);
  std::atomic<int> inside{0};
  device->parallel(
      2, 1,
      [](void* context, uint64_t, uint64_t, int32_t) {
        std::atomic<int>& count = *static_cast<std::atomic<int>*>(context);
        count++;
        while (count != 2) std::this_thread::yield();
      },
      &inside);
  assert_int_equal(inside, 2);
}

void several_streams_may_run_parallel_at_once(void**) {
  const auto device = make_host_device(3);
  struct Job {
    Device* device;
    std::atomic<int> failures{0};
    static void run(void* context, uint64_t count, uint64_t grain) {
      Job& job = *static_cast<Job*>(context);
      Cover cover(count, grain, 3);
      job.device->parallel(count, grain, Cover::part, &cover);
      if (!cover.exactly_once()) job.failures++;
    }
  } job{device.get()};
  const auto a = device->create_stream(false), b = device->create_stream(false);
  for (uint64_t i = 0; i < 300; i++) {
    a->submit(Job::run, &job, 1000 + i, 32);
    b->submit(Job::run, &job, 500 + 3 * i, 7);
  }
  for (uint64_t i = 0; i < 300; i++) Job::run(&job, 100 + i, 1);
  a->drain();
  b->drain();
  assert_int_equal(job.failures, 0);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_cleared_aligned_and_populated),
      cmocka_unit_test(two_allocations_do_not_overlap),
      cmocka_unit_test(memory_that_cannot_be_had_is_an_error_that_says_how_much),
      cmocka_unit_test(a_device_needs_a_thread),
      cmocka_unit_test(parallel_covers_each_element_exactly_once),
      cmocka_unit_test(ranges_near_the_end_of_64_bits_do_not_wrap),
      cmocka_unit_test(parts_run_on_more_than_one_thread),
      cmocka_unit_test(several_streams_may_run_parallel_at_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

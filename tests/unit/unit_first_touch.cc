// The first touch of memory: huge pages unless small ones are much faster, and everything once.
// SPDX-License-Identifier: BSD-3-Clause
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include <cerrno>
#include <vector>

#include "base/first_touch.h"

extern "C" {
#include <cmocka.h> // last: it has a macro named fail
}

namespace {

constexpr uint64_t kMiB = UINT64_C(1) << 20;
constexpr uint64_t kStep = 4 * kMiB;

// What was touched, and what a byte of each kind of page costs on a clock that stands otherwise.
struct Machine {
  struct Touch {
    uint64_t at, bytes;
    bool huge;
  };
  std::vector<Touch> touches;
  int64_t now = 0;
  double huge_ns = 0.2, small_ns = 0.5;
  uint64_t fails_at = UINT64_MAX;
};
Machine machine;
char memory[1]; // never written to

int touch(char* begin, uint64_t bytes, bool huge) {
  const auto at = static_cast<uint64_t>(begin - memory);
  if (at == machine.fails_at) return ENOMEM;
  machine.touches.push_back({at, bytes, huge});
  machine.now += static_cast<int64_t>(static_cast<double>(bytes) *
                                      (huge ? machine.huge_ns : machine.small_ns));
  return 0;
}
int huge(char* begin, uint64_t bytes) {
  return touch(begin, bytes, true);
}
int small(char* begin, uint64_t bytes) {
  return touch(begin, bytes, false);
}
int64_t now() {
  return machine.now;
}

int run(uint64_t bytes, double huge_ns, double small_ns) {
  machine = Machine{};
  machine.huge_ns = huge_ns;
  machine.small_ns = small_ns;
  return zero::touch_in_steps(memory, bytes, &huge, &small, &now);
}

std::vector<bool> kinds() {
  std::vector<bool> found;
  for (const Machine::Touch& one : machine.touches) found.push_back(one.huge);
  return found;
}

void every_byte_is_touched_once_and_in_order(void**) {
  for (const double huge_ns : {0.2, 5.0}) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{4096}, kStep, 5 * kStep + 12288}) {
      assert_int_equal(run(bytes, huge_ns, 0.5), 0);
      uint64_t at = 0;
      for (const Machine::Touch& one : machine.touches) {
        assert_int_equal(one.at, at);
        at += one.bytes;
      }
      assert_int_equal(at, bytes);
    }
  }
}

void fast_huge_pages_are_all_there_is(void**) {
  assert_int_equal(run(4 * kStep, 0.2, 0.01), 0);
  assert_true(kinds() == std::vector<bool>({true, true, true, true}));
}

void small_pages_follow_slow_huge_ones_where_they_are_three_times_as_fast(void**) {
  assert_int_equal(run(4 * kStep, 5.0, 0.5), 0);
  assert_true(kinds() == std::vector<bool>({true, false, false, false}));
}

void slow_huge_pages_stay_where_small_ones_are_slow_too(void**) {
  assert_int_equal(run(4 * kStep, 5.0, 4.0), 0);
  assert_true(kinds() == std::vector<bool>({true, false, true, true}));
}

void a_failure_is_the_answer_and_the_end(void**) {
  machine = Machine{};
  machine.fails_at = kStep;
  assert_int_equal(zero::touch_in_steps(memory, 3 * kStep, &huge, &small, &now), ENOMEM);
  assert_int_equal(machine.touches.size(), 1);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_byte_is_touched_once_and_in_order),
      cmocka_unit_test(fast_huge_pages_are_all_there_is),
      cmocka_unit_test(small_pages_follow_slow_huge_ones_where_they_are_three_times_as_fast),
      cmocka_unit_test(slow_huge_pages_stay_where_small_ones_are_slow_too),
      cmocka_unit_test(a_failure_is_the_answer_and_the_end),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

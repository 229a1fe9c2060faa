// SPDX-License-Identifier: BSD-3-Clause
#include "base/first_touch.h"

#include <algorithm>
#include <ctime>

namespace zero {
namespace {

constexpr uint64_t kStep = UINT64_C(4) << 20;
constexpr double kSlowNsPerByte = 1.0; // 1 GB/s
constexpr double kWorthIt = 3.0; // times as fast as huge pages

} // namespace

int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

int touch_in_steps(char* memory, uint64_t bytes, TouchPages huge, TouchPages small,
                   TouchClock clock) {
  enum class Pages { kHuge, kSmallOnTrial, kSmall, kHugeForGood };
  Pages pages = Pages::kHuge;
  double huge_ns_per_byte = 0;
  for (uint64_t at = 0; at < bytes; at += kStep) {
    const uint64_t count = std::min(kStep, bytes - at);
    const bool with_small = pages == Pages::kSmallOnTrial || pages == Pages::kSmall;
    const int64_t start = clock();
    const int error = (with_small ? small : huge)(memory + at, count);
    if (error != 0) return error;
    const double ns_per_byte = static_cast<double>(clock() - start) / static_cast<double>(count);
    if (pages == Pages::kHuge && ns_per_byte > kSlowNsPerByte) {
      huge_ns_per_byte = ns_per_byte;
      pages = Pages::kSmallOnTrial;
    } else if (pages == Pages::kSmallOnTrial) {
      const bool faster = ns_per_byte * kWorthIt <= huge_ns_per_byte;
      pages = faster ? Pages::kSmall : Pages::kHugeForGood;
    }
  }
  return 0;
}

} // namespace zero

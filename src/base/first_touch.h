// The first touch of memory in steps, with huge pages where they come as fast as small ones.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero {

// Makes every page of a piece of memory be there: 0, or an errno.
using TouchPages = int (*)(char* memory, uint64_t bytes);
// Nanoseconds of a clock; steps are timed by it.
using TouchClock = int64_t (*)();

// The calling thread's processor time: what else runs on the machine does not show in it.
int64_t thread_cpu_ns();

// Touches memory, which starts on a huge page, in steps of a few huge pages.  A virtual machine may
// have given its large free blocks back to its host: then a huge page takes the host's faults, some
// ten times as long as small pages from what the machine still holds.  Such a step (slower than
// 1 GB/s) is followed by one of small pages, and these are kept for the rest if they are at least
// three times as fast; otherwise huge pages stay.  0, or the errno of the step that failed.
int touch_in_steps(char* memory, uint64_t bytes, TouchPages huge, TouchPages small,
                   TouchClock clock = &thread_cpu_ns);

} // namespace zero

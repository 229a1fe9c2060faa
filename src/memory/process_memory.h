// What the operating system says of this process's memory and of its limits.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::memory {

// 0: not known.
struct ProcessMemory {
  uint64_t private_bytes = 0; // resident, without memory shared with other processes
  uint64_t machine_bytes = 0; // the machine's
  uint64_t available_bytes = 0; // of it, without swapping
  uint64_t group_limit_bytes = 0; // of the control group this process is in, 0: none
  uint64_t group_available_bytes = 0; // of it, caches of files given up
  uint64_t address_limit_bytes = 0; // RLIMIT_AS, 0: none
};
ProcessMemory read_process_memory();

} // namespace zero::memory

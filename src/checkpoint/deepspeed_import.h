// A DeepSpeed checkpoint written again as one of libzero's.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "checkpoint/piece_writer.h"

namespace zero::checkpoint {

// Keys of the blobs that rank 0 gets, both JSON objects: what the host program saved with it, and
// DeepSpeed's own counters.
inline constexpr const char* kDeepSpeedClientState = "deepspeed.client_state";
inline constexpr const char* kDeepSpeedCounters = "deepspeed.counters";

// world_size 0: as many ranks as wrote it.  progress(done, total) in bytes.  Checks the CRC of
// everything before path is there.
void import_deepspeed(const std::string& folder, const std::string& path, int32_t world_size,
                      const std::function<void(uint64_t done, uint64_t total)>& progress);

} // namespace zero::checkpoint

// Checks and conversions that several sections of the interface share.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include "base/error.h"
#include "plan/parameter_table.h"

namespace zero::api {

plan::GroupValues group_values(const zero_group_options* options);

inline void check_rank(int32_t rank, int32_t ranks) {
  if (rank >= 0 && rank < ranks) return;
  fail(ZERO_ERR_INVALID_ARGUMENT, "rank is %d, expected 0 to %d", rank, ranks - 1);
}

inline void check_place_and_use(zero_place place, zero_memory_use use) {
  if (place < ZERO_PLACE_HOST || place > ZERO_PLACE_FILE) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "place is %d, expected 1 to 4", place);
  }
  if (use < ZERO_MEMORY_TOTAL || use > ZERO_MEMORY_HOST_PROGRAM) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "use is %d, expected 0 to %d", use, ZERO_MEMORY_HOST_PROGRAM);
  }
}

} // namespace zero::api

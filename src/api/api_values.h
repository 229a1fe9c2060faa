// Checks and conversions that several sections of the interface share.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include "base/error.h"
#include "plan/parameter_table.h"

namespace zero::api {

plan::GroupValues group_values(const zero_group_options* options);

inline void check_param(size_t count, zero_param_id param) {
  if (param >= 0 && static_cast<size_t>(param) < count) return;
  fail(ZERO_ERR_INVALID_ARGUMENT, "parameter %d does not exist, expected 0 to %d", param,
       static_cast<int32_t>(count) - 1);
}

// Of a plan::Parameter or a checkpoint::StoredParameter; name and shape are borrowed.
template <typename Parameter>
zero_param_info param_info(const Parameter& parameter) {
  zero_param_info out{};
  out.dtype = parameter.dtype;
  out.role = parameter.role;
  out.group = parameter.group;
  out.tied_to = parameter.tied_to;
  out.dimensions = static_cast<int32_t>(parameter.shape.size());
  out.elements = parameter.elements;
  out.name = parameter.name.c_str();
  out.shape = parameter.shape.data();
  return out;
}

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

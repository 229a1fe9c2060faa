// What a step must know of all gradients before it may use any: the exact norm, the first value
// that is not finite, which parameters came.  Filled where gradients are reduced, summed over ranks
// by the step record. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace zero::engine {

// The first in backward order, then by element; order is the parameter's place there.
struct NonFinite {
  int64_t order = -1; // -1: all values were finite
  zero_param_id param = -1;
  uint64_t element = 0;
  int32_t rank = -1; // one that brought it; -1: each contribution was finite, their sum was not
  bool found() const { return order >= 0; }
  bool before(const NonFinite& other) const {
    if (!found() || !other.found()) return found();
    return order != other.order ? order < other.order : element < other.element;
  }
};

struct GradientTotals {
  kernels::ExactSum sum; // of squares, of this rank's shards
  std::vector<kernels::ExactSum> param_sums; // by parameter; empty without param_norms
  NonFinite first;

  void clear();
};

} // namespace zero::engine

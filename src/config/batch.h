// The batch equation: train = micro x accumulation x ranks, exactly.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace zero::config {

// 0: unknown.
struct BatchTriple {
  int64_t train = 0;
  int64_t micro = 0;
  int64_t accumulation = 0;
};

struct BatchAnswer {
  BatchTriple triple; // as far as it is determined
  std::string error; // a sentence with all numbers, or ""
  bool nothing_given = false; // the error is that there is no batch size at all
};

// pre: nothing negative.  With an unknown world (0) only what needs no world is worked out.
BatchAnswer solve_batch(const BatchTriple& given, int64_t world);

} // namespace zero::config

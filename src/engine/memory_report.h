// The text of an allocation that did not fit: what was asked for, what holds what, and the cheapest
// changes that fit.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/context.h"

namespace zero::engine {

struct MemoryShortage {
  zero_place place = ZERO_PLACE_HOST;
  uint64_t failed_bytes = 0; // beside what is held; 0: it was the plan itself
  // The plan in use, or the one that does not fit; null: none, and so no advice.
  std::shared_ptr<const plan::Plan> plan;
  bool plan_is_held = true; // false: its bytes are not allocated
  uint64_t limit = 0; // what plan and host program may have together; 0: to be found here
};

// Everything but the opening sentence; the most important first.  Any thread.
std::vector<std::string> memory_report(const Context& context, const MemoryShortage& shortage);

// The error with the report behind it, for its text and as a line of the log.
Error with_memory_report(Context& context, const Error& error, const MemoryShortage& shortage);

} // namespace zero::engine

// Two checkpoints compared bit for bit, whatever number of ranks, stage or bucket size wrote them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "cli/checkpoint_handle.h"

namespace zero::cli {

struct CheckpointDifference {
  std::string what; // "param \"wte\"", "step"
  std::string how; // one sentence
};

// False where a range could not be read; the last error says why.
bool compare_checkpoints(const CheckpointHandle& one, const CheckpointHandle& other,
                         ProgressLine* progress, std::vector<CheckpointDifference>* differences);

} // namespace zero::cli

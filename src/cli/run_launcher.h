// The ranks of `zero run` as processes: start, signals, end.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cli/run.h"

namespace zero::cli {

// Starts the ranks and stays until the last has ended.  Returns 0, or the code of the rank that
// failed first: its exit code, 128 + the signal that ended it, 126 or 127 where the command could
// not be started, 124 when the time was up.
int launch_ranks(const RunOptions& options);

} // namespace zero::cli

// `zero checkpoint`: what a checkpoint holds, whether it is whole, and the same state in other
// forms. SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace zero::cli {

// Takes the words after `zero`, "checkpoint" first; returns the exit code: 0 done (verify: whole,
// diff: equal), 1 damaged or different, 2 it could not be done, 64 a wrong command line.
int checkpoint_command(int argc, char** argv);

} // namespace zero::cli

// `zero run`: starts the ranks of one machine and stands for them as one program.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace zero::cli {

struct RunOptions {
  int ranks = 1;
  double timeout_seconds = 0; // the whole run's; 0: none
  double grace_seconds = 10; // between SIGTERM and SIGKILL for ranks that are to end
  int tail_lines = 20; // of the failed rank, shown at the end
  std::string job; // LIBZERO_JOB; empty: a new unique name
  std::vector<std::string> variables; // NAME=value for every rank, in place of the caller's
  std::vector<std::string> command;
};

// argv[0] is "run".  Returns the exit code for main.
int run_command(int argc, char** argv);

} // namespace zero::cli

// Starting one rank: its environment and its process.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/run.h"

namespace zero::cli {

// The environment of every rank: the caller's, with RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE and LIBZERO_JOB set, and OMP_NUM_THREADS = cores / ranks where it is not.
class RankEnvironment {
 public:
  explicit RankEnvironment(const RunOptions& options);
  std::vector<std::string> of(int rank) const;

 private:
  std::vector<std::string> common_;
};

struct StartedRank {
  pid_t pid = -1;
  int out = -1; // read ends of its stdout and stderr, the receiver's to close
  int err = -1;
  int error = 0; // errno where it could not be started
};

// Only rank 0 reads the caller's standard input, and only where that is no terminal.
StartedRank start_rank(const std::vector<std::string>& command,
                       const std::vector<std::string>& environment, int rank,
                       const sigset_t& signals);

double now_seconds();

} // namespace zero::cli

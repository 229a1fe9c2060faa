// Which communicator, unless the config says: one rank - self; all ranks on this machine - local.
// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/local_comm.h"
#include "comm/user_comm.h"

namespace zero::comm {
namespace {

struct Candidate {
  const char* name;
  // "" or why it cannot serve these ranks.
  std::string (*refusal)(const RankEnvironment& environment);
  std::shared_ptr<Communicator> (*make)(const RankEnvironment& environment,
                                        const std::string& group, int64_t timeout_ns);
};

std::string ranks_by(const RankEnvironment& environment) {
  return environment.source.empty()
             ? std::string("the environment names no ranks")
             : environment.source + " says there are " + std::to_string(environment.size) +
                   " ranks, " + std::to_string(environment.local_size) + " of them on this machine";
}

std::string self_refusal(const RankEnvironment& environment) {
  if (environment.size == 1) return {};
  return "self serves one rank, but " + ranks_by(environment);
}

std::string local_refusal(const RankEnvironment& environment) {
  if (environment.local_size == environment.size) return {};
  return "local serves ranks of one machine, but " + ranks_by(environment);
}

std::shared_ptr<Communicator> make_self_of(const RankEnvironment&, const std::string&, int64_t) {
  return make_self();
}

std::shared_ptr<Communicator> make_local_of(const RankEnvironment& environment,
                                            const std::string& group, int64_t timeout_ns) {
  // Without a job's name the launcher's process tells two runs apart.
  std::string name = group;
  if (name.empty()) name = "world";
  if (group.empty() && environment.job.empty()) name += "-of-" + std::to_string(getppid());
  return make_local(name, environment.rank, environment.size, timeout_ns);
}

// In order of priority.
constexpr Candidate kCandidates[] = {
    {"self", self_refusal, make_self_of},
    {"local", local_refusal, make_local_of},
};

} // namespace

std::shared_ptr<Communicator> make_from_environment(const std::string& name,
                                                    const std::string& group, int64_t timeout_ns) {
  const RankEnvironment environment = read_rank_environment();
  if (name.empty() || name == "auto") {
    for (const Candidate& candidate : kCandidates) {
      if (candidate.refusal(environment).empty()) {
        return candidate.make(environment, group, timeout_ns);
      }
    }
    fail(ZERO_ERR_UNSUPPORTED,
         "%s: ranks of several machines need the gloo or nccl communicator, which this build lacks",
         ranks_by(environment).c_str());
  }
  for (const Candidate& candidate : kCandidates) {
    if (name != candidate.name) continue;
    const std::string refusal = candidate.refusal(environment);
    if (!refusal.empty()) fail(ZERO_ERR_CONFIG_CONFLICT, "communicator: %s", refusal.c_str());
    return candidate.make(environment, group, timeout_ns);
  }
  if (name == "gloo" || name == "nccl") {
    fail(ZERO_ERR_UNSUPPORTED, "communicator \"%s\": this build lacks it; it has self and local",
         name.c_str());
  }
  fail(ZERO_ERR_CONFIG_VALUE,
       "communicator \"%s\" is unknown, expected auto, self, local, gloo or nccl", name.c_str());
}

uint64_t staging_bytes_for(zero_comm_kind kind, int32_t size) {
  switch (kind) {
    case ZERO_COMM_LOCAL:
      return LocalComm::kStagingBytes;
    case ZERO_COMM_USER:
      return user_staging_bytes(size);
    default:
      return 0;
  }
}

} // namespace zero::comm

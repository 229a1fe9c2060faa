// Rank and size as launchers pass them: torchrun and `zero run`, Open MPI, PMI, SLURM.
// SPDX-License-Identifier: BSD-3-Clause
#include "comm/rank_environment.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "comm/communicator.h"

namespace zero::comm {
namespace {

// One launcher's variables.  The first that has its rank or its size set is taken.  local_size is
// null for SLURM, which has no such number.
struct Launcher {
  const char* source;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Launcher kLaunchers[] = {
    {"RANK/WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_*", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_*", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_*", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

// In order of priority.
constexpr const char* kJobs[] = {"LIBZERO_JOB",    "TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid",
                                 "PMIX_NAMESPACE", "PMI_JOBID",           "SLURM_JOB_ID"};

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

int32_t integer(const char* name, const char* value, long smallest) {
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(value, &end, 10);
  if (errno != 0 || *end != '\0' || number < smallest || number > INT32_MAX) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "environment: %s is \"%s\", expected an integer >= %ld", name,
         value, smallest);
  }
  return static_cast<int32_t>(number);
}

int32_t required(const char* name, const char* because, long smallest) {
  const char* const value = variable(name);
  if (value == nullptr) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "environment: %s is set but %s is not", because, name);
  }
  return integer(name, value, smallest);
}

[[noreturn]] void fail_task_list(const char* name, const char* value) {
  fail(ZERO_ERR_INVALID_ARGUMENT,
       "environment: %s is \"%s\", expected task counts like \"4\" or \"2(x3),1\"", name, value);
}

// The node's entry of a list like "2(x3),1": two tasks on each of three nodes, then one.
int32_t tasks_of_node(const char* name, const char* value, int32_t node) {
  int64_t first = 0; // the node that the next entry begins with
  for (const char* at = value; *at != '\0';) {
    char* end = nullptr;
    const long tasks = std::strtol(at, &end, 10);
    if (end == at || tasks < 1 || tasks > INT32_MAX) fail_task_list(name, value);
    long nodes = 1;
    if (end[0] == '(' && end[1] == 'x') {
      at = end + 2;
      nodes = std::strtol(at, &end, 10);
      if (end == at || *end != ')' || nodes < 1 || nodes > INT32_MAX) fail_task_list(name, value);
      ++end;
    }
    if (*end != ',' && *end != '\0') fail_task_list(name, value);
    first += nodes;
    if (node < first) return static_cast<int32_t>(tasks);
    at = *end == ',' ? end + 1 : end;
  }
  fail(ZERO_ERR_INVALID_ARGUMENT, "environment: %s is \"%s\", which has no node %d", name, value,
       node);
}

int32_t slurm_local_size(int32_t size) {
  int32_t tasks = size;
  const char* const node = variable("SLURM_NODEID");
  for (const char* const name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const char* const value = variable(name);
    if (value == nullptr || node == nullptr) continue;
    return std::min(size, tasks_of_node(name, value, integer("SLURM_NODEID", node, 0)));
  }
  // What was asked for, and so a most.
  if (const char* const value = variable("SLURM_NTASKS_PER_NODE")) {
    tasks = integer("SLURM_NTASKS_PER_NODE", value, 1);
  }
  return std::min(size, tasks);
}

} // namespace

std::string read_job_name() {
  for (const char* const name : kJobs) {
    const char* const value = variable(name);
    if (value == nullptr) continue;
    std::string job = std::string(name) + "=" + value;
    // torchrun's default run id is the word "none"; the port tells two such runs apart.
    const char* const port = variable("MASTER_PORT");
    if (std::string(name) == "TORCHELASTIC_RUN_ID" && port != nullptr)
      job += std::string(":") + port;
    // Several steps of one allocation may run side by side.
    const char* const step = variable("SLURM_STEP_ID");
    if (std::string(name) == "SLURM_JOB_ID" && step != nullptr) job += std::string(".") + step;
    return job;
  }
  return {};
}

RankEnvironment read_rank_environment() {
  RankEnvironment environment;
  environment.job = read_job_name();
  for (const Launcher& launcher : kLaunchers) {
    const bool has_rank = variable(launcher.rank) != nullptr;
    if (!has_rank && variable(launcher.size) == nullptr) continue;
    environment.source = launcher.source;
    environment.rank = required(launcher.rank, launcher.size, 0);
    environment.size = required(launcher.size, launcher.rank, 1);
    if (environment.rank >= environment.size) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "environment: %s is %d, expected less than %s, which is %d",
           launcher.rank, environment.rank, launcher.size, environment.size);
    }
    // Without them: as if all ranks were here.
    environment.local_rank = environment.rank;
    environment.local_size = environment.size;
    if (launcher.local_size == nullptr) {
      environment.local_size = slurm_local_size(environment.size);
    } else if (const char* const value = variable(launcher.local_size)) {
      environment.local_size = integer(launcher.local_size, value, 1);
      if (environment.local_size > environment.size) {
        fail(ZERO_ERR_INVALID_ARGUMENT, "environment: %s is %d, expected at most %s, which is %d",
             launcher.local_size, environment.local_size, launcher.size, environment.size);
      }
    }
    if (const char* const value = variable(launcher.local_rank)) {
      environment.local_rank = integer(launcher.local_rank, value, 0);
      if (environment.local_rank >= environment.local_size) {
        fail(ZERO_ERR_INVALID_ARGUMENT, "environment: %s is %d, expected less than %d local ranks",
             launcher.local_rank, environment.local_rank, environment.local_size);
      }
    }
    return environment;
  }
  return environment;
}

} // namespace zero::comm

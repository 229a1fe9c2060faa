// fork and exec, with a pipe that brings back the errno of an exec that failed.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace zero::cli {

namespace {

int cores_for_us() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string new_job_name() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) number = 0;
  char name[64];
  std::snprintf(name, sizeof name, "run-%d-%016llx", static_cast<int>(getpid()),
                static_cast<unsigned long long>(number));
  return name;
}

bool names(const std::string& entry, const std::string& variable) {
  const std::string start = variable + "=";
  return entry.compare(0, start.size(), start) == 0;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return true;
  }
  static void shut(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
};

// In the child; what it calls must be safe after fork.
[[noreturn]] void become(char** arguments, char** environment, int input, const Pipe& out,
                         const Pipe& err, int report, pid_t parent, const sigset_t& signals) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL); // ranks do not outlive a killed `zero run`
  if (getppid() != parent) _exit(1);
  dup2(input, STDIN_FILENO);
  dup2(out.write_end, STDOUT_FILENO);
  dup2(err.write_end, STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  execvpe(arguments[0], arguments, environment);
  const int error = errno;
  (void)!write(report, &error, sizeof error);
  _exit(127);
}

} // namespace

double now_seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

RankEnvironment::RankEnvironment(const RunOptions& options) {
  std::vector<std::string> own = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                  "LIBZERO_JOB"};
  for (const std::string& entry : options.variables)
    own.push_back(entry.substr(0, entry.find('=')));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto is_own = [&text](const std::string& variable) { return names(text, variable); };
    if (std::none_of(own.begin(), own.end(), is_own)) common_.push_back(text);
  }
  common_.insert(common_.end(), options.variables.begin(), options.variables.end());
  const std::string size = std::to_string(options.ranks);
  common_.push_back("WORLD_SIZE=" + size);
  common_.push_back("LOCAL_WORLD_SIZE=" + size);
  common_.push_back("LIBZERO_JOB=" + (options.job.empty() ? new_job_name() : options.job));
  if (getenv("OMP_NUM_THREADS") == nullptr) {
    common_.push_back("OMP_NUM_THREADS=" +
                      std::to_string(std::max(1, cores_for_us() / options.ranks)));
  }
}

std::vector<std::string> RankEnvironment::of(int rank) const {
  std::vector<std::string> environment = common_;
  environment.push_back("RANK=" + std::to_string(rank));
  environment.push_back("LOCAL_RANK=" + std::to_string(rank));
  return environment;
}

StartedRank start_rank(const std::vector<std::string>& command,
                       const std::vector<std::string>& environment, int rank,
                       const sigset_t& signals) {
  StartedRank started;
  Pipe out, err, report;
  int input = -1;
  const bool wants_input = rank == 0 && isatty(STDIN_FILENO) == 0;
  if (wants_input) input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  if (input < 0) input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<char*> arguments = pointers_to(command);
  std::vector<char*> variables = pointers_to(environment);
  const pid_t parent = getpid();

  if (input < 0 || !out.open() || !err.open() || !report.open() || (started.pid = fork()) < 0) {
    started.error = errno;
  } else if (started.pid == 0) {
    become(arguments.data(), variables.data(), input, out, err, report.write_end, parent, signals);
  } else {
    setpgid(started.pid, started.pid); // here too: a signal may be due before the child has run
    Pipe::shut(report.write_end);
    int error = 0;
    ssize_t got;
    do got = read(report.read_end, &error, sizeof error);
    while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof error)) {
      started.error = error;
      waitpid(started.pid, nullptr, 0);
    }
  }
  for (int* end : {&input, &out.write_end, &err.write_end, &report.read_end, &report.write_end}) {
    Pipe::shut(*end);
  }
  if (started.error != 0) {
    Pipe::shut(out.read_end);
    Pipe::shut(err.read_end);
  }
  started.out = out.read_end;
  started.err = err.read_end;
  return started;
}

} // namespace zero::cli

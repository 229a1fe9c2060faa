// Ranks for the communicator tests: forked processes with a time limit, or threads.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}
#undef fail // ours is a function

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/progress_watch.h"

namespace local_ranks {

using zero::comm::Channel;
using zero::comm::CollectiveStamp;
using zero::comm::Communicator;
using zero::comm::ExchangeKind;
using zero::comm::Operation;

constexpr int64_t kSecond = INT64_C(1000) * 1000 * 1000;
constexpr unsigned kLimitSeconds = 50; // a test that needs longer hangs
// The time-out of tests that wait for it; a busy machine may stop a rank for a second or two.
constexpr int64_t kShort = 3 * kSecond;

// A rank's work in a child must not longjmp into the child's copy of the runner, so checks there
// go through this: a sentence on stderr and exit code 1.
inline void expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "line %d: not so: %s\n", line, what);
  std::fflush(stderr);
  _exit(1);
}
#define EXPECT(condition) ::local_ranks::expect((condition), #condition, __LINE__)

inline std::string fresh_group() {
  static int count = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

// What a call threw.
struct Outcome {
  zero_status status = ZERO_OK;
  int32_t rank = -1;
  std::string text;
  std::string origin;
};
inline Outcome outcome_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const zero::Error& error) {
    return {error.status(), error.rank(), error.message(), error.origin()};
  }
  return {};
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline pid_t fork_rank(const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("CMOCKA_TEST_ABORT", "1", 1);
  alarm(kLimitSeconds);
  try {
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank ended by: %s\n", error.what());
    std::fflush(stderr);
    _exit(2);
  }
  _exit(0);
}

// The exit code, or 128 + signal.
inline int reap(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Every rank a process; all must end with 0.
inline void run_processes(int32_t size, const std::function<void(int32_t rank)>& work) {
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < size; ++rank) {
    children.push_back(fork_rank([&] { work(rank); }));
  }
  int worst = 0;
  for (const pid_t child : children) {
    const int code = reap(child);
    if (code != 0) worst = code;
  }
  assert_int_equal(worst, 0);
}

// Every rank a thread of one process.  Forked, so that a failure or a hang stays there; under
// ThreadSanitizer a report makes its exit code 66.
inline void run_threads(int32_t size, const std::function<void(int32_t rank)>& work) {
  const pid_t child = fork_rank([&] {
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&work, rank] {
        const Outcome outcome = outcome_of([&] { work(rank); });
        if (outcome.status != ZERO_OK) std::fprintf(stderr, "%s\n", outcome.text.c_str());
        EXPECT(outcome.status == ZERO_OK);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::exit(0); // not _exit: the sanitizers report at exit
  });
  assert_int_equal(reap(child), 0);
}

inline int count_descriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

inline CollectiveStamp stamp_of(uint64_t sequence, Operation operation, int32_t bucket,
                                uint64_t bytes) {
  CollectiveStamp stamp;
  stamp.sequence = sequence;
  stamp.operation = operation;
  stamp.bucket = bucket;
  stamp.bytes = bytes;
  return stamp;
}

// How a rank's run ended, told to the test through a pipe.
struct Report {
  int32_t rank;
  zero_status status;
  int32_t fault; // the rank that the error names
  int64_t when_ns;
  char text[1500];
};

// Ranks as processes that report how their work ended, whatever their exit code.
class ReportingRanks {
 public:
  ReportingRanks() { assert_int_equal(pipe2(pipe_, O_CLOEXEC), 0); }
  ~ReportingRanks() {
    close(pipe_[0]);
    close(pipe_[1]);
  }
  void start(int32_t rank, const std::function<void()>& work) {
    children_.push_back(fork_rank([&] {
      const Outcome outcome = outcome_of(work);
      Report report = {};
      report.rank = rank;
      report.status = outcome.status;
      report.fault = outcome.rank;
      report.when_ns = zero::now_ns();
      std::snprintf(report.text, sizeof(report.text), "%s", outcome.text.c_str());
      const ssize_t written = write(pipe_[1], &report, sizeof(report));
      _exit(written == sizeof(report) ? 0 : 3);
    }));
  }
  pid_t child(size_t index) const { return children_[index]; }
  // Waits for all; the reports of those that lived to make one.
  std::vector<Report> finish() {
    for (const pid_t child : children_) reap(child);
    children_.clear();
    fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    std::vector<Report> reports;
    Report report;
    while (read(pipe_[0], &report, sizeof(report)) == sizeof(report)) reports.push_back(report);
    return reports;
  }

 private:
  int pipe_[2];
  std::vector<pid_t> children_;
};

inline void assert_contains(const char* text, const std::string& part) {
  if (contains(text, part)) return;
  print_error("\"%s\" does not contain \"%s\"\n", text, part.c_str());
  assert_true(false);
}

inline std::shared_ptr<Communicator> join(const std::string& group, int32_t rank, int32_t size,
                                          int64_t timeout_ns = 30 * kSecond) {
  return zero::comm::make_local(group, rank, size, timeout_ns);
}

} // namespace local_ranks

// Ranks for the distributed tests: threads of this process, or forked processes with a time limit.
// Knows zero.h alone.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}
#undef fail // a name that C++ headers use

namespace ranks {

constexpr int64_t kSecond = INT64_C(1000000000);

inline bool full_tier() {
  const char* tier = std::getenv("LIBZERO_TEST_TIER");
  return tier != nullptr && std::strcmp(tier, "full") == 0;
}

inline std::string last_error() {
  zero_error_info info;
  zero_error_info_init(&info, sizeof(info));
  zero_last_error(&info);
  return info.message;
}

// A rank's checks end the process: an assertion of cmocka would go on in a child's copy of the
// runner.
inline void require_ok(zero_status status, const char* what, const char* file, int line) {
  if (status == ZERO_OK) return;
  std::fprintf(stderr, "%s:%d: %s is %s: %s\n", file, line, what, zero_status_name(status),
               last_error().c_str());
  std::fflush(stderr);
  std::abort();
}
#define OK(call) ::ranks::require_ok((call), #call, __FILE__, __LINE__)
#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::fflush(stderr);                                                         \
      std::abort();                                                                \
    }                                                                              \
  } while (0)

inline std::string fresh_group() {
  static int count = 0;
  return "distributed-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

// body(rank, group); threads see each other's memory.
inline void run_threads(int32_t size,
                        const std::function<void(int32_t, const std::string&)>& body) {
  const std::string group = fresh_group();
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank, group] { body(rank, group); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Memory that forked ranks write their results to.
template <typename T>
class SharedArray {
 public:
  explicit SharedArray(size_t count) : count_(count) {
    memory_ = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~SharedArray() { munmap(memory_, bytes()); }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;
  T* data() { return static_cast<T*>(memory_); }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return count_; }

 private:
  size_t bytes() const { return count_ == 0 ? 1 : count_ * sizeof(T); }
  size_t count_;
  void* memory_;
};

struct Ending {
  bool exited = false; // by itself, with code
  int code = 0; // exit code, or the signal
};

// Forks; every child must end within limit_seconds or is killed (SIGALRM).  pids: filled before
// body runs in the parent's view; may be null.
inline std::vector<Ending> run_processes(
    int32_t size, const std::function<void(int32_t, const std::string&)>& body,
    unsigned limit_seconds = 60,
    const std::function<void(const std::vector<pid_t>&)>& meanwhile = {}) {
  const std::string group = fresh_group();
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int32_t rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      signal(SIGALRM, SIG_DFL);
      alarm(limit_seconds);
      body(rank, group);
      std::fflush(nullptr);
      _exit(0);
    }
    pids.push_back(pid);
  }
  if (meanwhile) meanwhile(pids);
  std::vector<Ending> endings;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    endings.push_back(WIFEXITED(status) ? Ending{true, WEXITSTATUS(status)}
                                        : Ending{false, WTERMSIG(status)});
  }
  return endings;
}

inline void assert_all_ended_well(const std::vector<Ending>& endings) {
  for (size_t r = 0; r < endings.size(); ++r) {
    if (endings[r].exited && endings[r].code == 0) continue;
    print_message("rank %zu ended by %s %d\n", r, endings[r].exited ? "code" : "signal",
                  endings[r].code);
    assert_true(false);
  }
}

} // namespace ranks

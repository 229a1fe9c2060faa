// What the fault tests share: a folder of their own, and faults at one chosen call.
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

#include <sys/wait.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <tuple>

#include "base/error.h"
#include "watched_files.h"

namespace faults {

// A fresh folder, removed at the end; in memory where there is a place for that, since a test waits
// long for a disk.
class OwnFolder {
 public:
  OwnFolder() : OwnFolder(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : disk()) {}
  explicit OwnFolder(const std::string& where) {
    std::string pattern = where + "/libzero-faults-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::bad_alloc();
    path_ = pattern;
  }
  static std::string disk() {
    const char* const tmp = std::getenv("TMPDIR");
    return tmp != nullptr ? tmp : "/tmp";
  }
  ~OwnFolder() { std::filesystem::remove_all(path_); }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// One call of a run, so that another run of the same work can be made to fail there: what is done
// to which file, and for the how-manieth time.  Names that differ from run to run are made equal.
struct Point {
  Kind kind = Kind::kOpen;
  std::string path;
  int occurrence = 0;
  auto operator<=>(const Point&) const = default;
  std::string text() const {
    return std::string(name_of(kind)) + " of " + path + ", number " + std::to_string(occurrence);
  }
};

// Without the root, and with # for each word of eight or more hexadecimal digits.
inline std::string plain_path(const std::string& path, const std::string& root) {
  std::string plain = path.compare(0, root.size(), root) == 0 ? path.substr(root.size()) : path;
  std::string out;
  for (size_t at = 0; at < plain.size();) {
    size_t end = at;
    while (end < plain.size() && std::isxdigit(static_cast<unsigned char>(plain[end]))) ++end;
    if (end - at >= 8) {
      out += '#';
    } else {
      end = std::max(end, at + 1);
      out += plain.substr(at, end - at);
    }
    at = end;
  }
  return out;
}

// Counts calls as points.
class Points {
 public:
  explicit Points(std::string root) : root_(std::move(root)) {}
  Point next(const Call& call) {
    Point point{call.kind, plain_path(call.path, root_), 0};
    point.occurrence = seen_[point]++;
    return point;
  }

 private:
  std::string root_;
  std::map<Point, int> seen_;
};

// Runs work and lists its calls.
template <typename Work>
std::vector<Point> points_of(const std::string& root, const Work& work) {
  std::vector<Point> all;
  Points points(root);
  WatchedFiles files;
  files.judge = [&](const Call& call) {
    all.push_back(points.next(call));
    return Action::kPass;
  };
  zero::set_file_system(&files);
  work();
  zero::set_file_system(nullptr);
  return all;
}

// Runs work with an action at one call; whether the call came.
template <typename Work>
bool with_fault(const std::string& root, const Point& where, Action action, const Work& work) {
  bool came = false;
  Points points(root);
  WatchedFiles files;
  files.judge = [&](const Call& call) {
    if (points.next(call) != where) return Action::kPass;
    came = true;
    return action;
  };
  zero::set_file_system(&files);
  work();
  zero::set_file_system(nullptr);
  return came;
}

// Runs work and keeps what it did to the disk.
template <typename Work>
std::vector<Call> record(const Work& work) {
  std::vector<Call> calls;
  WatchedFiles files;
  files.note = [&](const Call& call) {
    if (changes_disk(call.kind)) calls.push_back(call);
  };
  zero::set_file_system(&files);
  work();
  zero::set_file_system(nullptr);
  return calls;
}

// In a child, so that an end there is no end here: its exit code, or 128 + signal.
template <typename Work>
int in_a_child(const Work& work, unsigned limit_seconds = 60) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(limit_seconds);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// What a call threw.
struct Thrown {
  zero_status status = ZERO_OK;
  int32_t native_code = 0;
  std::string text;
};
template <typename Work>
Thrown thrown_by(const Work& work) {
  try {
    work();
  } catch (const zero::Error& error) {
    return {error.status(), error.native_code(), error.message()};
  }
  return {};
}

inline void assert_contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return;
  print_error("\"%s\" does not contain \"%s\"\n", text.c_str(), part.c_str());
  assert_true(false);
}

} // namespace faults

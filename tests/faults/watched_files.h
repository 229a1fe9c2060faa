// A file system between libzero and the kernel that sees each call: it may fail it, cut it short,
// interrupt it or end the process there; or only note it down.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace faults {

enum class Kind {
  kOpen,
  kCreate, // an open that makes a file
  kClose,
  kRead,
  kWrite,
  kTruncate,
  kSync, // of bytes, or of a folder's names
  kSetFlags,
  kLock,
  kLook, // stat of any sort
  kRename,
  kExchange,
  kMakeFolder,
  kRemoveFile,
  kRemoveFolder,
  kList,
};

inline const char* name_of(Kind kind) {
  const char* const names[] = {
      "open", "create", "close",  "read",     "write", "truncate",    "sync",          "set flags",
      "lock", "look",   "rename", "exchange", "mkdir", "remove file", "remove folder", "list"};
  return names[static_cast<int>(kind)];
}

// Whether the call, when it succeeds, changes what is on the disk.
inline bool changes_disk(Kind kind) {
  return kind != Kind::kOpen && kind != Kind::kClose && kind != Kind::kRead &&
         kind != Kind::kSetFlags && kind != Kind::kLock && kind != Kind::kLook &&
         kind != Kind::kList;
}

struct Call {
  Kind kind = Kind::kOpen;
  std::string path; // of the file, also where the call has a descriptor
  std::string to; // rename, exchange
  uint64_t offset = 0; // write; truncate: the new size
  std::string data; // write: what was written
  int64_t result = 0;
};

enum class Action { kPass, kNoSpace, kIoError, kInterrupted, kShort, kDie };

class WatchedFiles final : public zero::FileSystem {
 public:
  // Asked before each call, one call at a time; the call's result is not known yet.
  std::function<Action(const Call&)> judge = [](const Call&) { return Action::kPass; };
  // Told after each call that was made, in the order in which they took effect.
  std::function<void(const Call&)> note = [](const Call&) {};
  // Called before each write to a file with its path, while others go on.
  std::function<void(const std::string&)> hold = [](const std::string&) {};

  ~WatchedFiles() override { zero::set_file_system(nullptr); }

  int open(const char* path, int flags, mode_t mode) override {
    Call call;
    call.kind = (flags & O_CREAT) != 0 ? Kind::kCreate : Kind::kOpen;
    call.path = path;
    const std::lock_guard<std::mutex> lock(mutex_);
    const int fd = static_cast<int>(made(call, [&] { return kernel_.open(path, flags, mode); }));
    if (fd >= 0) names_[fd] = path;
    return fd;
  }
  int close(int fd) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kClose);
    const Action action = judge(call);
    names_.erase(fd);
    const int result = kernel_.close(fd); // a failed close has closed as well
    return action == Action::kPass || action == Action::kShort ? result : failure(action);
  }
  ssize_t pread(int fd, void* memory, size_t bytes, uint64_t offset) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kRead);
    call.offset = offset;
    const Action action = judge(call);
    if (action == Action::kShort) bytes = (bytes + 1) / 2;
    if (action != Action::kPass && action != Action::kShort) return failure(action);
    call.result = kernel_.pread(fd, memory, bytes, offset);
    if (call.result > 0) note(call);
    return call.result;
  }
  ssize_t pwrite(int fd, const void* memory, size_t bytes, uint64_t offset) override {
    hold(path_of(fd));
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kWrite);
    call.offset = offset;
    const Action action = judge(call);
    if (action == Action::kShort) bytes = (bytes + 1) / 2;
    if (action != Action::kPass && action != Action::kShort) return failure(action);
    // Not past the cache: half a transfer would be refused, and is what is wanted here.
    if (bytes % 512 != 0) kernel_.set_flags(fd, 0);
    call.result = kernel_.pwrite(fd, memory, bytes, offset);
    if (call.result > 0) {
      call.data.assign(static_cast<const char*>(memory), static_cast<size_t>(call.result));
      note(call);
    }
    return call.result;
  }
  int truncate(int fd, uint64_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kTruncate);
    call.offset = bytes;
    return static_cast<int>(made(call, [&] { return kernel_.truncate(fd, bytes); }));
  }
  int fsync(int fd) override { return sync(fd); }
  int fdatasync(int fd) override { return sync(fd); }
  int set_flags(int fd, int flags) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kSetFlags);
    return static_cast<int>(made(call, [&] { return kernel_.set_flags(fd, flags); }));
  }
  int lock(int fd, int operation) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kLock);
    return static_cast<int>(made(call, [&] { return kernel_.lock(fd, operation); }));
  }
  int stat(int fd, struct stat* result) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kLook);
    return static_cast<int>(made(call, [&] { return kernel_.stat(fd, result); }));
  }
  int stat_path(const char* path, struct stat* result) override {
    return at(Kind::kLook, path, [&] { return kernel_.stat_path(path, result); });
  }
  int stat_link(const char* path, struct stat* result) override {
    return at(Kind::kLook, path, [&] { return kernel_.stat_link(path, result); });
  }
  int rename(const char* from, const char* to, unsigned flags) override {
    Call call;
    call.kind = (flags & 2) != 0 ? Kind::kExchange : Kind::kRename; // RENAME_EXCHANGE
    call.path = from;
    call.to = to;
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(made(call, [&] { return kernel_.rename(from, to, flags); }));
  }
  int make_folder(const char* path, mode_t mode) override {
    return at(Kind::kMakeFolder, path, [&] { return kernel_.make_folder(path, mode); });
  }
  int remove_file(const char* path) override {
    return at(Kind::kRemoveFile, path, [&] { return kernel_.remove_file(path); });
  }
  int remove_folder(const char* path) override {
    return at(Kind::kRemoveFolder, path, [&] { return kernel_.remove_folder(path); });
  }
  int list(const char* path, std::vector<std::string>* names) override {
    return at(Kind::kList, path, [&] { return kernel_.list(path, names); });
  }

 private:
  static int failure(Action action) {
    if (action == Action::kDie) _exit(kDeathCode);
    return action == Action::kNoSpace ? -ENOSPC : action == Action::kIoError ? -EIO : -EINTR;
  }
  template <typename Make>
  int64_t made(Call& call, const Make& make) {
    const Action action = judge(call);
    if (action != Action::kPass && action != Action::kShort) return failure(action);
    call.result = make();
    if (call.result >= 0) note(call);
    return call.result;
  }
  template <typename Make>
  int at(Kind kind, const char* path, const Make& make) {
    Call call;
    call.kind = kind;
    call.path = path;
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(made(call, make));
  }
  Call of(int fd, Kind kind) const {
    Call call;
    call.kind = kind;
    const auto name = names_.find(fd);
    if (name != names_.end()) call.path = name->second;
    return call;
  }
  std::string path_of(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return of(fd, Kind::kWrite).path;
  }
  int sync(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call call = of(fd, Kind::kSync);
    // Not made: nothing here ends by a power cut, and a disk takes long.
    return static_cast<int>(made(call, [] { return 0; }));
  }

 public:
  static constexpr int kDeathCode = 99;

 private:
  zero::FileSystem& kernel_ = zero::kernel_file_system();
  std::mutex mutex_;
  std::map<int, std::string> names_; // of open descriptors
};

} // namespace faults

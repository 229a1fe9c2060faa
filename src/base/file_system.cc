// SPDX-License-Identifier: BSD-3-Clause
#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace zero {
namespace {

template <typename Result>
Result or_errno(Result result) {
  return result < 0 ? static_cast<Result>(-errno) : result;
}

// Beyond RLIMIT_FSIZE the kernel does not only refuse (EFBIG): it sends SIGXFSZ to the thread,
// which would end a program that has not thought of it.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoSizeSignal() {
    const int error = errno;
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

class KernelFileSystem final : public FileSystem {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    return or_errno(::open(path, flags, mode));
  }
  int close(int fd) override { return or_errno(::close(fd)); }
  ssize_t pread(int fd, void* memory, size_t bytes, uint64_t offset) override {
    return or_errno(::pread(fd, memory, bytes, static_cast<off_t>(offset)));
  }
  ssize_t pwrite(int fd, const void* memory, size_t bytes, uint64_t offset) override {
    const NoSizeSignal quiet;
    return or_errno(::pwrite(fd, memory, bytes, static_cast<off_t>(offset)));
  }
  int truncate(int fd, uint64_t bytes) override {
    const NoSizeSignal quiet;
    return or_errno(::ftruncate(fd, static_cast<off_t>(bytes)));
  }
  int fsync(int fd) override { return or_errno(::fsync(fd)); }
  int fdatasync(int fd) override { return or_errno(::fdatasync(fd)); }
  int set_flags(int fd, int flags) override { return or_errno(::fcntl(fd, F_SETFL, flags)); }
  int lock(int fd, int operation) override { return or_errno(::flock(fd, operation)); }
  int stat(int fd, struct stat* result) override { return or_errno(::fstat(fd, result)); }
  int stat_path(const char* path, struct stat* result) override {
    return or_errno(::stat(path, result));
  }
  int stat_link(const char* path, struct stat* result) override {
    return or_errno(::lstat(path, result));
  }
  int rename(const char* from, const char* to, unsigned flags) override {
    return or_errno(flags == 0 ? ::rename(from, to)
                               : ::renameat2(AT_FDCWD, from, AT_FDCWD, to, flags));
  }
  int make_folder(const char* path, mode_t mode) override { return or_errno(::mkdir(path, mode)); }
  int remove_file(const char* path) override { return or_errno(::unlink(path)); }
  int remove_folder(const char* path) override { return or_errno(::rmdir(path)); }
  int list(const char* path, std::vector<std::string>* names) override {
    names->clear();
    DIR* const folder = ::opendir(path);
    if (folder == nullptr) return -errno;
    errno = 0;
    while (const dirent* entry = ::readdir(folder)) {
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
        names->emplace_back(entry->d_name);
      }
      errno = 0;
    }
    const int error = errno;
    ::closedir(folder);
    return -error;
  }
};

std::atomic<FileSystem*> g_replacement{nullptr};

} // namespace

FileSystem& kernel_file_system() {
  static KernelFileSystem kernel;
  return kernel;
}

FileSystem& file_system() {
  FileSystem* const replacement = g_replacement.load(std::memory_order_acquire);
  return replacement != nullptr ? *replacement : kernel_file_system();
}

void set_file_system(FileSystem* replacement) {
  g_replacement.store(replacement, std::memory_order_release);
}

} // namespace zero

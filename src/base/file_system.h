// The system calls that file work is made of, as one table.  A test puts another table in its place
// and sees, changes, fails or ends at every call; nothing else in the library touches files.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zero {

// Each call answers as the kernel does: a result >= 0, or -errno; no signal comes of it.  It may be
// interrupted (-EINTR) and may move fewer bytes than asked; src/base/file deals with both.  Any
// thread.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  virtual int open(const char* path, int flags, mode_t mode) = 0;
  virtual int close(int fd) = 0;
  virtual ssize_t pread(int fd, void* memory, size_t bytes, uint64_t offset) = 0;
  virtual ssize_t pwrite(int fd, const void* memory, size_t bytes, uint64_t offset) = 0;
  virtual int truncate(int fd, uint64_t bytes) = 0;
  virtual int fsync(int fd) = 0; // of a file or of a folder
  virtual int fdatasync(int fd) = 0;
  virtual int set_flags(int fd, int flags) = 0; // F_SETFL
  virtual int lock(int fd, int operation) = 0; // flock
  virtual int stat(int fd, struct stat* result) = 0;
  virtual int stat_path(const char* path, struct stat* result) = 0; // of what a link points to
  virtual int stat_link(const char* path, struct stat* result) = 0; // of a link itself
  virtual int rename(const char* from, const char* to, unsigned flags) = 0; // flags: of renameat2
  virtual int make_folder(const char* path, mode_t mode) = 0;
  virtual int remove_file(const char* path) = 0;
  virtual int remove_folder(const char* path) = 0;
  virtual int list(const char* path, std::vector<std::string>* names) = 0; // unsorted, no dots
};

// The kernel's own.
FileSystem& kernel_file_system();

// The one in use: the kernel's, unless a test has put another in its place.
FileSystem& file_system();

// For tests, while no other thread is at file work; null: the kernel's again.  The caller keeps it
// alive.
void set_file_system(FileSystem* replacement);

} // namespace zero

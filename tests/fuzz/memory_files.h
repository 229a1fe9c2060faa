// Files in memory beneath src/base/file, for fuzz targets.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace fuzz {

// One flat name space: folders are there when a file lies in them.  Descriptors are never reused.
class MemoryFiles final : public zero::FileSystem {
 public:
  std::map<std::string, std::string> files;

  int open(const char* path, int flags, mode_t) override {
    if ((flags & O_CREAT) != 0) files[path];
    if (files.count(path) == 0) return is_folder(path) ? next(path) : -ENOENT;
    return next(path);
  }
  int close(int fd) override {
    names_.erase(fd);
    return 0;
  }
  ssize_t pread(int fd, void* memory, size_t bytes, uint64_t offset) override {
    const std::string& file = files[names_[fd]];
    if (offset >= file.size()) return 0;
    const size_t count = std::min<size_t>(bytes, file.size() - offset);
    std::memcpy(memory, file.data() + offset, count);
    return static_cast<ssize_t>(count);
  }
  ssize_t pwrite(int fd, const void* memory, size_t bytes, uint64_t offset) override {
    std::string& file = files[names_[fd]];
    if (file.size() < offset + bytes) file.resize(offset + bytes);
    std::memcpy(file.data() + offset, memory, bytes);
    return static_cast<ssize_t>(bytes);
  }
  int truncate(int fd, uint64_t bytes) override {
    files[names_[fd]].resize(bytes);
    return 0;
  }
  int fsync(int) override { return 0; }
  int fdatasync(int) override { return 0; }
  int set_flags(int, int) override { return -EINVAL; }
  int lock(int, int) override { return -ENOTSUP; }
  int stat(int fd, struct stat* result) override { return look(names_[fd], result); }
  int stat_path(const char* path, struct stat* result) override { return look(path, result); }
  int stat_link(const char* path, struct stat* result) override { return look(path, result); }
  int rename(const char* from, const char* to, unsigned) override {
    files[to] = files[from];
    files.erase(from);
    return 0;
  }
  int make_folder(const char*, mode_t) override { return 0; }
  int remove_file(const char* path) override { return files.erase(path) == 1 ? 0 : -ENOENT; }
  int remove_folder(const char*) override { return 0; }
  int list(const char*, std::vector<std::string>* names) override {
    names->clear();
    return 0;
  }

 private:
  int next(const std::string& path) {
    names_[++last_] = path;
    return last_;
  }
  bool is_folder(const std::string& path) const {
    const auto first = files.lower_bound(path + "/");
    return first != files.end() && first->first.compare(0, path.size() + 1, path + "/") == 0;
  }
  int look(const std::string& path, struct stat* result) const {
    std::memset(result, 0, sizeof(*result));
    const auto file = files.find(path);
    if (file == files.end() && !is_folder(path)) return -ENOENT;
    result->st_mode = file == files.end() ? S_IFDIR : S_IFREG;
    if (file != files.end()) result->st_size = static_cast<off_t>(file->second.size());
    return 0;
  }

  std::map<int, std::string> names_;
  int last_ = 0;
};

} // namespace fuzz

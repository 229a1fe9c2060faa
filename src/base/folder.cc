// What file.h says of folders and paths.
// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <stdio.h> // RENAME_NOREPLACE, RENAME_EXCHANGE
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "base/file_retry.h"
#include "base/file_system.h"

namespace zero {
namespace {

constexpr mode_t kFolderMode = 0777;

// renameat2 with a flag that the file system does not know.
bool is_no_such_rename(int result) {
  return result == -EINVAL || result == -ENOSYS || result == -ENOTSUP;
}

int rename_with(const std::string& from, const std::string& to, unsigned flags) {
  return uninterrupted([&] { return file_system().rename(from.c_str(), to.c_str(), flags); });
}

PathInfo info_of(const std::string& path, bool follow) {
  struct stat status;
  const int result = uninterrupted([&] {
    return follow ? file_system().stat_path(path.c_str(), &status)
                  : file_system().stat_link(path.c_str(), &status);
  });
  PathInfo info;
  if (result == -ENOENT || result == -ENOTDIR) return info;
  if (result < 0) fail_os(-result, "look at \"%s\"", path.c_str());
  info.kind = S_ISREG(status.st_mode)   ? PathKind::kFile
              : S_ISDIR(status.st_mode) ? PathKind::kFolder
                                        : PathKind::kOther;
  info.bytes = static_cast<uint64_t>(status.st_size);
  info.modified_ns =
      static_cast<int64_t>(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec;
  return info;
}

} // namespace

PathInfo path_info(const std::string& path) {
  return info_of(path, /*follow=*/true);
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> names;
  const int result = uninterrupted([&] { return file_system().list(path.c_str(), &names); });
  if (result < 0) fail_os(-result, "list folder \"%s\"", path.c_str());
  std::sort(names.begin(), names.end());
  return names;
}

void make_folder(const std::string& path) {
  const int result =
      uninterrupted([&] { return file_system().make_folder(path.c_str(), kFolderMode); });
  if (result < 0) fail_os(-result, "make folder \"%s\", which must be new", path.c_str());
}

void make_folders(const std::string& path) {
  if (path_info(path).kind == PathKind::kFolder) return;
  const std::string parent = parent_folder(path);
  if (parent != path) make_folders(parent);
  const int result =
      uninterrupted([&] { return file_system().make_folder(path.c_str(), kFolderMode); });
  if (result == -EEXIST && path_info(path).kind == PathKind::kFolder) return;
  if (result < 0) fail_os(-result, "make folder \"%s\"", path.c_str());
  sync_folder(parent);
}

void rename_path(const std::string& from, const std::string& to) {
  const int result = rename_with(from, to, 0);
  if (result < 0) fail_os(-result, "rename \"%s\" to \"%s\"", from.c_str(), to.c_str());
}

bool rename_to_new(const std::string& from, const std::string& to) {
  int result = rename_with(from, to, RENAME_NOREPLACE);
  if (is_no_such_rename(result)) {
    if (info_of(to, /*follow=*/false).kind != PathKind::kAbsent) return false;
    result = rename_with(from, to, 0); // still refuses a folder that is not empty
  }
  if (result == -EEXIST || result == -ENOTEMPTY) return false;
  if (result < 0) fail_os(-result, "rename \"%s\" to \"%s\"", from.c_str(), to.c_str());
  return true;
}

bool exchange_paths(const std::string& one, const std::string& other) {
  const int result = rename_with(one, other, RENAME_EXCHANGE);
  if (is_no_such_rename(result)) return false;
  if (result < 0) fail_os(-result, "exchange \"%s\" and \"%s\"", one.c_str(), other.c_str());
  return true;
}

void remove_file(const std::string& path) {
  const int result = uninterrupted([&] { return file_system().remove_file(path.c_str()); });
  if (result < 0 && result != -ENOENT) fail_os(-result, "remove \"%s\"", path.c_str());
}

void remove_tree(const std::string& path) {
  if (info_of(path, /*follow=*/false).kind != PathKind::kFolder) return remove_file(path);
  std::vector<std::string> names;
  const int listed = uninterrupted([&] { return file_system().list(path.c_str(), &names); });
  if (listed == -ENOENT) return; // another one removes it too
  if (listed < 0) fail_os(-listed, "list folder \"%s\"", path.c_str());
  for (const std::string& name : names) remove_tree(join_path(path, name));
  const int result = uninterrupted([&] { return file_system().remove_folder(path.c_str()); });
  if (result < 0 && result != -ENOENT) fail_os(-result, "remove folder \"%s\"", path.c_str());
}

void sync_folder(const std::string& path) {
  const int fd = uninterrupted(
      [&] { return file_system().open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); });
  if (fd < 0) fail_os(-fd, "open folder \"%s\" to sync it", path.c_str());
  const int result = uninterrupted([&] { return file_system().fsync(fd); });
  file_system().close(fd);
  // Some file systems have no sync of folders: there is nothing to wait for.
  if (result < 0 && result != -EINVAL && result != -ENOTSUP) {
    fail_os(-result, "sync folder \"%s\"", path.c_str());
  }
}

std::string parent_folder(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  const size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

std::string base_name(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return {};
  const size_t slash = path.find_last_of('/', end);
  return path.substr(slash == std::string::npos ? 0 : slash + 1,
                     slash == std::string::npos ? end + 1 : end - slash);
}

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

} // namespace zero

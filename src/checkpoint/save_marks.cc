// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/save_marks.h"

#include <cinttypes>
#include <cstdio>

#include "base/file.h"

namespace zero::checkpoint {
namespace {

constexpr uint64_t kLargestMark = 64 * 1024;

std::string rank_name(int32_t rank, const char* what) {
  return format("rank-%05d.%s", rank, what);
}

} // namespace

// "checksum status rank native origin\nmessage"
void SaveMarks::put(const std::string& name, const SaveMark& mark) const {
  std::string text;
  if (mark.error) {
    const Error& error = *mark.error;
    text = format("%016" PRIx64 " %d %d %d %s\n", uint64_t{0}, error.status(), error.rank(),
                  error.native_code(), error.origin().c_str());
    text += error.message().substr(0, kLargestMark / 2);
  } else {
    text = format("%016" PRIx64 " 0 -1 0 libzero\n", mark.table_checksum);
  }
  const std::string path = join_path(folder_, name);
  write_file(path + ".new", text);
  rename_path(path + ".new", path);
}

std::optional<SaveMark> SaveMarks::get(const std::string& name) const {
  const std::string path = join_path(folder_, name);
  if (path_info(path).kind != PathKind::kFile) return std::nullopt;
  const std::string text = read_file(path, kLargestMark);
  SaveMark mark;
  int status = 0, rank = 0, native = 0, used = 0;
  char origin[32] = "";
  if (std::sscanf(text.c_str(), "%" SCNx64 " %d %d %d %31s%n", &mark.table_checksum, &status, &rank,
                  &native, origin, &used) != 5) {
    fail(ZERO_ERR_FILE_CORRUPT, "\"%s\" is not what a rank that saves writes", path.c_str());
  }
  if (status != ZERO_OK) {
    const size_t message = std::min(text.size(), static_cast<size_t>(used) + 1);
    mark.error = Error(status, text.substr(message), rank, native, origin);
  }
  return mark;
}

void SaveMarks::put_piece(int32_t rank, const SaveMark& mark) const {
  put(rank_name(rank, "piece"), mark);
}
void SaveMarks::put_verdict(const SaveMark& mark) const {
  put("verdict", mark);
}
void SaveMarks::put_seen(int32_t rank) const {
  put(rank_name(rank, "seen"), {});
}
std::optional<SaveMark> SaveMarks::piece(int32_t rank) const {
  return get(rank_name(rank, "piece"));
}
std::optional<SaveMark> SaveMarks::verdict() const {
  return get("verdict");
}
bool SaveMarks::seen(int32_t rank) const {
  return path_info(join_path(folder_, rank_name(rank, "seen"))).kind == PathKind::kFile;
}
bool SaveMarks::folder_is_there() const {
  return path_info(folder_).kind == PathKind::kFolder;
}

} // namespace zero::checkpoint

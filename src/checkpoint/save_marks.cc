// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/save_marks.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

namespace zero::checkpoint {
namespace {

// A mark is 16 digits, the checksum of what follows; then
// "checksum status rank native origin\nmessage" and zeros.  Torn or empty, it says nothing.  Its
// last byte says whether its writer holds a lock.
constexpr size_t kMarkBytes = 4096;
constexpr size_t kDigits = 16;
constexpr size_t kLongestMessage = 3000;
constexpr int kTries = 3;
constexpr char kLocked = 'L';

std::string digits(uint64_t value) {
  return format("%016" PRIx64, value);
}

std::string read_mark(const File& file) {
  std::string text(kMarkBytes, '\0');
  file.read(0, text.data(), text.size());
  return text;
}

// False: torn, or empty.
bool parse(const std::string& text, SaveMark* mark) {
  const std::string said = text.substr(kDigits);
  if (text.compare(0, kDigits, digits(XXH3_64bits(said.data(), said.size()))) != 0) return false;
  int status = 0, at_fault = 0, native = 0, used = 0;
  char origin[32] = "";
  mark->error.reset();
  if (std::sscanf(said.c_str(), "%" SCNx64 " %d %d %d %31s%n", &mark->table_checksum, &status,
                  &at_fault, &native, origin, &used) != 5) {
    return false;
  }
  if (status != ZERO_OK) {
    const std::string message = said.c_str() + used;
    mark->error = Error(status, message.substr(std::min<size_t>(1, message.size())), at_fault,
                        native, origin);
  }
  return true;
}

} // namespace

std::string SaveMarks::text_of(const SaveMark& mark) const {
  std::string text = digits(mark.table_checksum) + " 0 -1 0 libzero\n";
  if (mark.error) {
    const Error& error = *mark.error;
    text = format("%016" PRIx64 " %d %d %d %.30s\n", uint64_t{0}, error.status(), error.rank(),
                  error.native_code(), error.origin().c_str());
    text += error.message().substr(0, kLongestMessage);
  }
  text.resize(kMarkBytes - kDigits, '\0');
  if (locked_) text.back() = kLocked;
  return digits(XXH3_64bits(text.data(), text.size())) + text;
}

SaveMarks::SaveMarks(std::string staging_folder, int32_t rank)
    : folder_(std::move(staging_folder)), rank_(rank) {}

std::string SaveMarks::path_of(int32_t rank) const {
  return join_path(folder_, format("rank-%05d.mark", rank));
}

void SaveMarks::prepare() {
  mine_ = File::create(path_of(rank_));
  locked_ = mine_.try_lock(File::Lock::kExclusive) == File::Locked::kYes;
  std::string empty(kMarkBytes, '\0');
  if (locked_) empty.back() = kLocked;
  mine_.write(0, empty.data(), empty.size());
}

void SaveMarks::look_for_locks(int32_t other) noexcept {
  try {
    const File file = File::open(path_of(other));
    sees_locks_ = file.try_lock(File::Lock::kShared) == File::Locked::kTaken;
  } catch (...) {
    // Then not.
  }
}

bool SaveMarks::put(const SaveMark& mark) noexcept {
  for (int i = 0; i < kTries; ++i) {
    try {
      const std::string text = text_of(mark);
      mine_.write(0, text.data(), text.size());
      mine_.sync_data(); // another machine sees it then
      return true;
    } catch (...) {
      // Once more.
    }
  }
  withdraw();
  return false;
}

void SaveMarks::withdraw() noexcept {
  for (int i = 0; i < kTries; ++i) {
    try {
      remove_file(path_of(rank_));
      break;
    } catch (...) {
      // Once more.
    }
  }
  mine_.unlock();
}

SaveMarks::State SaveMarks::read(int32_t rank, SaveMark* mark) const {
  File file;
  try {
    file = File::open(path_of(rank));
  } catch (const Error& error) {
    if (error.native_code() == ENOENT) return State::kWithdrawn;
    throw;
  }
  const std::string text = read_mark(file);
  if (parse(text, mark)) return State::kSaid;
  if (!sees_locks_ || text.back() != kLocked) return State::kSilent;
  if (file.try_lock(File::Lock::kShared) != File::Locked::kYes) return State::kSilent;
  // It may have spoken, or withdrawn, and ended since.
  if (parse(read_mark(file), mark)) return State::kSaid;
  return path_info(path_of(rank)).kind == PathKind::kAbsent ? State::kWithdrawn : State::kEnded;
}

} // namespace zero::checkpoint

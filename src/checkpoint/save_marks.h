// How ranks that save in the background tell each other where they are: each by one small file in
// the staging folder, which they share anyway, so that nothing of it meets the training's
// collectives.  Its room is taken before the save begins, its removal is a word of its own, and so
// is that its lock is gone: neither a full disk nor a broken one keeps the others waiting, nor does
// the end of a process. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace zero::checkpoint {

// What a rank says: its piece is written, with that checksum of its table; or what went wrong.
// Rank 0's word is the verdict on the whole.
struct SaveMark {
  uint64_t table_checksum = 0;
  std::optional<Error> error;
};

class SaveMarks {
 public:
  SaveMarks(std::string staging_folder, int32_t rank);

  void prepare(); // before the others look: a mark that says nothing yet
  // When all are prepared and nobody has spoken: whether locks of others are to be seen at all.
  // Some mounts keep them to one machine, so `other` had better be of another one.
  void look_for_locks(int32_t other) noexcept;
  // Says it; false: it cannot be written, and is withdrawn.
  bool put(const SaveMark& mark) noexcept;
  // Nothing more is to be heard from this rank: it has read the verdict, or could not speak.
  void withdraw() noexcept;

  // kEnded: it is silent and will be; where the file system has no locks that is never found out.
  enum class State { kSilent, kSaid, kWithdrawn, kEnded };
  State read(int32_t rank, SaveMark* mark) const;

 private:
  std::string path_of(int32_t rank) const;
  std::string text_of(const SaveMark& mark) const;
  std::string folder_;
  int32_t rank_;
  File mine_;
  bool locked_ = false; // for as long as there may be something to be heard
  bool sees_locks_ = false;
};

} // namespace zero::checkpoint

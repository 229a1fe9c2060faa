// How ranks that save in the background tell each other where they are: each by one small file in
// the staging folder, which they share anyway, so that nothing of it meets the training's
// collectives.  Its room is taken before the save begins, and its removal is a word of its own, so
// that a full disk keeps nobody from speaking.
// SPDX-License-Identifier: BSD-3-Clause
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
  // Says it; false: it cannot be written, and is withdrawn.
  bool put(const SaveMark& mark) noexcept;
  // Nothing more is to be heard from this rank: it has read the verdict, or could not speak.
  void withdraw() noexcept;

  enum class State { kSilent, kSaid, kWithdrawn };
  State read(int32_t rank, SaveMark* mark) const;

 private:
  std::string path_of(int32_t rank) const;
  std::string folder_;
  int32_t rank_;
  File mine_;
};

} // namespace zero::checkpoint

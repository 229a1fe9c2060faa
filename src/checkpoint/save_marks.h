// How ranks that save in the background tell each other where they are: by small files in the
// staging folder, which they share anyway, so that nothing of it meets the training's collectives.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace zero::checkpoint {

// What a rank says: its piece is written, with that checksum of its table; or what went wrong.
struct SaveMark {
  uint64_t table_checksum = 0;
  std::optional<Error> error;
};

class SaveMarks {
 public:
  explicit SaveMarks(std::string staging_folder) : folder_(std::move(staging_folder)) {}

  // Whole or not there, for whoever looks.
  void put_piece(int32_t rank, const SaveMark& mark) const;
  void put_verdict(const SaveMark& mark) const; // rank 0, of the whole
  void put_seen(int32_t rank) const; // the verdict was read
  std::optional<SaveMark> piece(int32_t rank) const;
  std::optional<SaveMark> verdict() const;
  bool seen(int32_t rank) const;
  bool folder_is_there() const;

 private:
  void put(const std::string& name, const SaveMark& mark) const;
  std::optional<SaveMark> get(const std::string& name) const;
  std::string folder_;
};

} // namespace zero::checkpoint

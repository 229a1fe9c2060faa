// The folder that a checkpoint is: the one it is written in, how it becomes whole in one rename,
// the file that names the latest, and which old ones go. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace zero::checkpoint {

// Where a checkpoint lies: path itself, or, where it is a file, what that says, or what "latest" in
// it says.  A folder that a crash left half exchanged is found under the name beside it.  Throws
// NOT_FOUND naming what was looked for.
std::string resolve_checkpoint(const std::string& path);

// The manifest alone, checked; and that every piece is there with its size.
Manifest read_manifest(const std::string& folder, uint64_t* bytes = nullptr);

// ".NAME.saving-ID" beside path: the folder "new" in it becomes path.
class Staging {
 public:
  Staging(const std::string& path, uint64_t id);

  // One rank: makes missing folders above, the staging folder and the token, and removes what an
  // earlier save of `run` to path left when it died.  replace false: path must not exist
  // (INVALID_ARGUMENT).
  void create(bool replace, uint64_t run) const;
  // Every other rank: IO where the token of `create` is not to be seen.
  void check_token(int32_t rank) const;
  std::string piece(int32_t number) const; // path to write it to
  // One rank, when all pieces are written and synced: writes the manifest, syncs, renames.  From
  // then on path is the new one.
  void commit(const Manifest& manifest, bool replace) const;
  // Whether path is this one, whole.
  bool is_whole() const;
  // One rank: what is left of it; nothing fails.
  void remove() const noexcept;
  const std::string& folder() const { return folder_; }

 private:
  std::string path_;
  std::string folder_;
  uint64_t id_;
  // Whether it is unknown which name the disk has; shared by copies.
  std::shared_ptr<std::atomic<bool>> unsure_ = std::make_shared<std::atomic<bool>>(false);
};

// The file `name` in path's folder then says path's own name.
void point_latest(const std::string& path, const std::string& name);

// Which of them may go; pure.
struct Kept {
  std::string name;
  int64_t step = 0;
  int64_t saved_ns = 0;
};
std::vector<std::string> superseded(std::vector<Kept> all, int32_t keep_last, int32_t keep_every,
                                    const std::string& newest, const std::string& latest);
// Deletes superseded checkpoints of `run` beside path.  Only whole ones count as kept.
void apply_retention(const std::string& path, uint64_t run, int32_t keep_last, int32_t keep_every,
                     const std::string& latest);

uint64_t random_id(); // never 0

} // namespace zero::checkpoint

// A save that goes on while training does: this rank's copy is written by a thread of its own, and
// rank 0's thread makes the checkpoint whole when all pieces are there.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/piece_writer.h"
#include "checkpoint/save_marks.h"

namespace zero::engine {

class BackgroundSave {
 public:
  struct Job {
    checkpoint::Staging staging;
    checkpoint::SaveMarks marks; // prepared
    checkpoint::Manifest manifest; // laid out
    int32_t rank = 0;
    checkpoint::Source source; // from memory that nobody else writes
    // Rank 0's: the pieces are there, their checksums known.
    std::function<void(const checkpoint::Manifest&)> publish;
  };
  explicit BackgroundSave(Job job);
  ~BackgroundSave(); // gives up what is not done; never waits for a peer

  // Any thread.  ended: as far as this rank knows, with error() then.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  std::optional<Error> error() const;

  // For a collective end: this rank's piece is written or not (blocks); then rank 0, if all are,
  // waits for the checkpoint to be whole, and the others are told by it.
  std::optional<Error> wait_for_piece();
  uint64_t table_checksum() const { return table_checksum_; } // after it
  void give_checksums(std::vector<uint64_t> checksums); // rank 0: all pieces are written
  std::optional<Error> wait_for_end(); // rank 0
  void give_up(); // the rest is not waited for; rank 0 removes what is there

 private:
  void run();
  void write_piece();
  void collect(std::optional<Error>* failed);
  void lead();
  void follow();
  // Tries until it is true; false: given up.  A try that fails is repeated, not for ever.
  bool poll(const std::function<bool()>& done);
  void end(std::optional<Error> error);

  Job job_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool given_up_ = false;
  bool piece_done_ = false;
  std::optional<Error> piece_error_;
  uint64_t table_checksum_ = 0;
  std::vector<uint64_t> checksums_; // of all ranks, where they were given
  std::optional<Error> error_;
  std::thread thread_;
};

} // namespace zero::engine

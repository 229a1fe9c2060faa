// What memory held before it was written, so that a load that fails on any rank can be taken back.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/context.h"

namespace zero::engine {

// Fills memory that it is lent; then takes more beside the plan, under the ledger (STAGING) and the
// budget, as it is needed, and gives it back when it ends.  Where there were zeros, as in the
// states of a run that has not stepped, nothing is copied.
class UndoLog {
 public:
  explicit UndoLog(Context& context) : context_(context) {}
  ~UndoLog() { clear(); }
  UndoLog(const UndoLog&) = delete;
  UndoLog& operator=(const UndoLog&) = delete;

  // Nobody else uses it until clear, which leaves zeros where it has been written (cleared) or
  // anything.
  void lend(std::byte* memory, uint64_t bytes, bool cleared);
  // This memory will be noted, which most likely is zeros where it begins with zeros.
  void expect(const std::byte* memory, uint64_t bytes);
  // Whether there is room for what is expected, as far as one can tell, at a price below that of
  // reading it all once more.
  bool begin();
  // These bytes are about to be written.  False: there is no memory to keep them in, or it is too
  // dear; what was noted before stays so.  Any thread; nobody else writes these bytes meanwhile.
  bool note(std::byte* memory, uint64_t bytes);
  // Everything is as it was when it was noted; the log is empty.
  void roll_back();
  void clear();

 private:
  struct Entry {
    std::byte* memory;
    uint64_t bytes;
    const std::byte* copy; // null: zeros
  };
  enum class Kind { kTaken, kLent, kLentCleared };
  struct Block {
    std::byte* memory;
    uint64_t bytes;
    Kind kind;
    uint64_t used = 0;
  };
  bool take_block(uint64_t bytes);
  std::byte* room(uint64_t bytes, uint64_t* got);
  void add(std::byte* memory, uint64_t bytes, const std::byte* copy);

  Context& context_;
  std::mutex mutex_; // guards what follows while several note
  uint64_t most_ = 0; // bytes that are noted in all
  std::vector<Entry> entries_;
  std::vector<Block> blocks_;
  size_t filling_ = 0; // the block that is being filled
  uint64_t noted_bytes_ = 0;
  uint64_t expected_bytes_ = 0;
};

} // namespace zero::engine

// What memory held before it was written, so that a load that fails on any rank can be taken back.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/context.h"

namespace zero::engine {

// Takes memory beside the plan, under the ledger (STAGING) and the budget, as it is needed, and
// gives it back when it ends.  Where there were zeros, as in the states of a run that has not
// stepped, nothing is copied.
class UndoLog {
 public:
  // most: bytes that note will be told of in all.
  UndoLog(Context& context, uint64_t most) : context_(context), most_(most) {}
  ~UndoLog() { clear(); }
  UndoLog(const UndoLog&) = delete;
  UndoLog& operator=(const UndoLog&) = delete;

  // These bytes are about to be written.  False: there is no memory to keep them in; nothing is
  // noted.  Of memory of a device always.
  bool note(std::byte* memory, uint64_t bytes);
  // Everything is as it was when it was noted; the log is empty.
  void roll_back();
  void clear();
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  struct Entry {
    std::byte* memory;
    uint64_t bytes;
    const std::byte* copy; // null: zeros
  };
  struct Block {
    std::byte* memory;
    uint64_t bytes;
  };
  bool add_block(uint64_t bytes);
  void add(std::byte* memory, uint64_t bytes, const std::byte* copy);

  Context& context_;
  const uint64_t most_;
  std::vector<Entry> entries_;
  std::vector<Block> blocks_;
  uint64_t left_ = 0; // of the last block
  uint64_t noted_bytes_ = 0;
  uint64_t held_bytes_ = 0;
};

} // namespace zero::engine

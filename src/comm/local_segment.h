// Shared memory without a name: a memfd, mapped once in a process however many of its ranks use
// it (ThreadSanitizer recognises a race between thread ranks only at one address).
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

#include "comm/descriptor.h"

namespace zero::comm {

// Parts of at least this size begin at a multiple of it, so that huge pages can hold them.
constexpr uint64_t kHugePage = UINT64_C(2) << 20;

// A mapping; unmapped with its last owner.  A forked child does not inherit it.
class LocalSegment {
 public:
  LocalSegment(char* base, uint64_t bytes, uint64_t device, uint64_t inode, int owner);
  ~LocalSegment();
  LocalSegment(const LocalSegment&) = delete;
  LocalSegment& operator=(const LocalSegment&) = delete;

  char* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

 private:
  char* const base_;
  const uint64_t bytes_;
  const uint64_t device_, inode_;
  const int owner_; // the process that mapped it
};

// A fresh zero-filled memfd, sealed against shrinking.  Throws OUT_OF_MEMORY.
Descriptor create_shared_memory(uint64_t bytes);

// This process's mapping of the memfd, new or the one that another of its ranks holds.
// Throws OUT_OF_MEMORY.
std::shared_ptr<LocalSegment> map_shared_memory(int fd, uint64_t bytes);

// Makes fresh pages of [memory, memory + bytes) present, huge ones where the kernel can; they stay
// zero.  Nobody else writes there yet.  Returns 0 or an errno.
int populate_shared_memory(void* memory, uint64_t bytes);

} // namespace zero::comm

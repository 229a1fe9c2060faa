// Reads one piece: any range of bytes, always through the checksums of the sections it lies in.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"

namespace zero::checkpoint {

// Bytes of a piece that somebody wants.
struct Want {
  uint64_t position = 0;
  uint64_t bytes = 0;
  uint64_t tag = 0; // the asker's own
};

class PieceReader {
 public:
  // Opens the file; checks its length, its header (whose piece it is) and its table.  Throws IO,
  // FILE_INCOMPLETE, FILE_CORRUPT, FILE_MISMATCH (another checkpoint's or another rank's piece).
  PieceReader(const std::string& path, const Manifest& manifest, int32_t piece);

  // Gives `deliver` every byte of wants, in order, maybe cut into several calls (never inside an
  // element).  wants: by position, without overlaps.  deliver empty: only checks.  FILE_CORRUPT
  // names file and offset.
  using Deliver =
      std::function<void(const Want& want, uint64_t offset, uint64_t bytes, const std::byte* data)>;
  void read(const std::vector<Want>& wants, const Deliver& deliver) const;

  // The checked bytes of the section that holds a position, at out (section_bytes of it); its first
  // byte and its end.
  struct Section {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  Section read_section(uint64_t position, std::byte* out) const;

  // All sections; damaged(first byte, end) is told of each that is wrong and goes on.
  // progress(bytes) is told what has been read.
  void verify(const std::function<void(uint64_t begin, uint64_t end)>& damaged,
              const std::function<void(uint64_t bytes)>& progress) const;

 private:
  // Sections [first, last).
  struct SectionRun {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  // Where one is in a list of wants: `done` bytes of the next one are dealt with.
  struct Cursor {
    size_t next = 0;
    uint64_t done = 0;
  };
  bool next_run(const std::vector<Want>& wants, uint64_t most, Cursor* at, SectionRun* run) const;
  uint64_t sections() const;
  [[noreturn]] void refuse(uint64_t section) const;
  uint64_t section_begin(uint64_t section) const;
  uint64_t section_end(uint64_t section) const;
  uint64_t first_bad(uint64_t first, uint64_t last, const uint8_t* buffer) const; // or last

  File file_; // single sections
  File bulk_; // the same, past the page cache: many
  uint64_t section_bytes_;
  uint64_t table_position_;
  std::vector<uint64_t> table_;
};

} // namespace zero::checkpoint

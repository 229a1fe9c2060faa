// An opened checkpoint: its manifest, and any range of any part of it.  Knows no engine.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/piece_reader.h"
#include "checkpoint/piece_writer.h"

namespace zero::checkpoint {

// Where something is wrong.
struct Damage {
  std::string file;
  uint64_t begin = 0, end = 0; // bytes of the file
  std::string what; // which parameters lie there, or what is wrong with the file as a whole
};

class CheckpointReader {
 public:
  // path: see zero_checkpoint_open.  Throws NOT_FOUND, IO, FILE_...
  explicit CheckpointReader(const std::string& path);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const NameIndex& names() const { return names_; }
  uint64_t bytes() const { return bytes_; } // of all files

  // Elements [offset, offset + count) of a stored part (of the parameter's root), in its own dtype,
  // checked.  Any thread.
  void read(int32_t parameter, int32_t part, uint64_t offset, uint64_t count, std::byte* out) const;
  std::string read_blob(int32_t blob) const;
  // -1: none.
  int32_t find_blob(int32_t rank, std::string_view key) const;

  // Many ranges at once, each piece read once from its start to its end.
  struct PartRange {
    int32_t parameter = 0;
    int32_t part = 0;
    uint64_t offset = 0;
    uint64_t count = 0;
    uint64_t tag = 0; // the asker's own
  };
  // deliver(range, elements from its offset, elements, data); empty: only checks.
  using DeliverPart = std::function<void(const PartRange& range, uint64_t offset, uint64_t count,
                                         const std::byte* data)>;
  void read_all(const std::vector<PartRange>& ranges, const DeliverPart& deliver) const;

  // Every byte; never throws for damage.
  std::vector<Damage> verify(const Progress& progress) const;

 private:
  const PieceReader& piece(int32_t number) const;
  void read_bytes(int32_t piece, uint64_t position, uint64_t bytes, std::byte* out) const;

  std::string folder_;
  uint64_t bytes_ = 0;
  Manifest manifest_;
  NameIndex names_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<PieceReader>> pieces_;
  // The section read last by read(): who asks for many small things in a row reads it once.
  mutable std::mutex section_mutex_;
  mutable std::vector<std::byte> section_;
  mutable int32_t section_piece_ = -1;
  mutable PieceReader::Section section_at_;
};

} // namespace zero::checkpoint

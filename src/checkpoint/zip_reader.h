// The zip archives that torch.save writes: stored entries, zip64 where they are large.  Every bound
// is checked; what is compressed or encrypted is refused.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/byte_source.h"

namespace zero::checkpoint {

struct ZipEntry {
  std::string name;
  uint64_t bytes = 0;
  uint64_t header_offset = 0; // of the local header; its data lies behind
  uint32_t crc32 = 0;
};

class ZipReader {
 public:
  // Reads the central directory.  Throws FILE_FORMAT, UNSUPPORTED naming file, entry and offset.
  explicit ZipReader(std::unique_ptr<ByteSource> source);

  const std::string& file() const { return source_->name(); }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(const std::string& name) const; // null: none
  // Where the entry's bytes start in the file.
  uint64_t data_offset(const ZipEntry& entry) const;
  // The whole entry, at most `limit` bytes, its CRC checked: FILE_CORRUPT where it differs.
  std::string read_all(const ZipEntry& entry, uint64_t limit) const;
  void read(uint64_t file_offset, void* out, uint64_t count) const {
    source_->read(file_offset, out, count);
  }
  // Reads every byte of the entry and compares its CRC.
  void verify(const ZipEntry& entry) const;

 private:
  void read_directory(uint64_t offset, uint64_t bytes, uint64_t count);

  std::unique_ptr<ByteSource> source_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string, size_t> by_name_;
};

// The CRC of zip and gzip; `start` is the CRC of what came before.
uint32_t crc32(uint32_t start, const void* data, uint64_t count);

} // namespace zero::checkpoint

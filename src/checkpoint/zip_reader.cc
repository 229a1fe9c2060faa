// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/zip_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace zero::checkpoint {
namespace {

using Number = unsigned long long;

constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kLongestComment = 65535;
constexpr uint64_t kLocatorBytes = 20;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kLargestDirectory = uint64_t{1} << 28;

uint64_t little(const char* at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(at[i]);
  return value;
}

using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0xedb88320u : 0u);
    tables[0][i] = value;
  }
  for (size_t t = 1; t < 8; ++t) {
    for (size_t i = 0; i < 256; ++i) {
      tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
    }
  }
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

[[noreturn]] void refuse(const std::string& file, uint64_t offset, const std::string& what) {
  fail(ZERO_ERR_FILE_FORMAT, "file \"%s\", offset %llu: %s", file.c_str(),
       static_cast<Number>(offset), what.c_str());
}

} // namespace

// Eight bytes at once, one table for each.
uint32_t crc32(uint32_t start, const void* data, uint64_t count) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint32_t crc = ~start;
  for (; count >= 8; count -= 8, at += 8) {
    const uint32_t low =
        crc ^ (static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8 |
               static_cast<uint32_t>(at[2]) << 16 | static_cast<uint32_t>(at[3]) << 24);
    crc = kCrcTables[7][low & 255] ^ kCrcTables[6][low >> 8 & 255] ^
          kCrcTables[5][low >> 16 & 255] ^ kCrcTables[4][low >> 24] ^ kCrcTables[3][at[4]] ^
          kCrcTables[2][at[5]] ^ kCrcTables[1][at[6]] ^ kCrcTables[0][at[7]];
  }
  for (; count > 0; --count, ++at) crc = crc >> 8 ^ kCrcTables[0][(crc ^ *at) & 255];
  return ~crc;
}

ZipReader::ZipReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {
  const uint64_t size = source_->bytes();
  if (size < kEndBytes) {
    refuse(file(), 0,
           format("it has %llu bytes, expected a zip archive as torch.save writes it",
                  static_cast<Number>(size)));
  }
  const uint64_t tail_bytes = std::min(size, kEndBytes + kLongestComment);
  std::string tail(tail_bytes, '\0');
  source_->read(size - tail_bytes, tail.data(), tail_bytes);
  uint64_t at = tail_bytes - kEndBytes;
  while (std::memcmp(tail.data() + at, "PK\5\6", 4) != 0 ||
         little(tail.data() + at + 20, 2) != tail_bytes - at - kEndBytes) {
    if (at == 0) {
      refuse(file(), size,
             "no end of a zip archive: it is cut off, or no file that torch.save wrote");
    }
    --at;
  }
  const char* end = tail.data() + at;
  uint64_t count = little(end + 10, 2);
  uint64_t bytes = little(end + 12, 4);
  uint64_t offset = little(end + 16, 4);
  const uint64_t end_offset = size - tail_bytes + at;
  uint64_t directory_limit = end_offset;
  if (end_offset >= kLocatorBytes + kEnd64Bytes) {
    char locator[kLocatorBytes];
    source_->read(end_offset - kLocatorBytes, locator, sizeof(locator));
    if (std::memcmp(locator, "PK\6\7", 4) == 0) {
      const uint64_t end64 = little(locator + 8, 8);
      if (end64 > end_offset - kLocatorBytes - kEnd64Bytes) {
        refuse(file(), end_offset - kLocatorBytes, "its zip64 directory lies outside the file");
      }
      char record[kEnd64Bytes];
      source_->read(end64, record, sizeof(record));
      if (std::memcmp(record, "PK\6\6", 4) != 0) {
        refuse(file(), end64, "expected the end of a zip64 directory");
      }
      count = little(record + 32, 8);
      bytes = little(record + 40, 8);
      offset = little(record + 48, 8);
      directory_limit = end64;
    }
  }
  if (offset > directory_limit || bytes > directory_limit - offset) {
    refuse(file(), end_offset,
           format("its directory lies at %llu with %llu bytes, expected it to "
                  "end at or before %llu",
                  static_cast<Number>(offset), static_cast<Number>(bytes),
                  static_cast<Number>(directory_limit)));
  }
  if (bytes > kLargestDirectory || count > bytes / kCentralBytes) {
    refuse(file(), end_offset,
           format("its directory has %llu entries in %llu bytes", static_cast<Number>(count),
                  static_cast<Number>(bytes)));
  }
  read_directory(offset, bytes, count);
}

void ZipReader::read_directory(uint64_t offset, uint64_t bytes, uint64_t count) {
  std::string directory(bytes, '\0');
  source_->read(offset, directory.data(), bytes);
  entries_.reserve(count);
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const char* record = directory.data() + at;
    if (bytes - at < kCentralBytes || std::memcmp(record, "PK\1\2", 4) != 0) {
      refuse(file(), offset + at,
             format("expected entry %llu of %llu in its directory", static_cast<Number>(i),
                    static_cast<Number>(count)));
    }
    const uint64_t name_bytes = little(record + 28, 2);
    const uint64_t extra_bytes = little(record + 30, 2);
    const uint64_t whole = kCentralBytes + name_bytes + extra_bytes + little(record + 32, 2);
    if (whole > bytes - at) {
      refuse(file(), offset + at, "an entry is longer than its directory");
    }
    ZipEntry entry;
    entry.name.assign(record + kCentralBytes, name_bytes);
    entry.crc32 = static_cast<uint32_t>(little(record + 16, 4));
    uint64_t stored = little(record + 20, 4);
    entry.bytes = little(record + 24, 4);
    entry.header_offset = little(record + 42, 4);
    // zip64: the fields that are all ones stand in the extra block, in this order.
    const char* extra = record + kCentralBytes + name_bytes;
    for (uint64_t e = 0; e + 4 <= extra_bytes;) {
      const uint64_t id = little(extra + e, 2);
      const uint64_t length = little(extra + e + 2, 2);
      if (length > extra_bytes - e - 4) break;
      if (id == 1) {
        uint64_t used = 0;
        for (uint64_t* field : {&entry.bytes, &stored, &entry.header_offset}) {
          if (*field != 0xffffffffu || used + 8 > length) continue;
          *field = little(extra + e + 4 + used, 8);
          used += 8;
        }
      }
      e += 4 + length;
    }
    if (little(record + 10, 2) != 0 || stored != entry.bytes || (little(record + 8, 2) & 1) != 0) {
      fail(ZERO_ERR_UNSUPPORTED,
           "file \"%s\", offset %llu: entry \"%s\" is compressed or encrypted, expected it stored "
           "as torch.save does",
           file().c_str(), static_cast<Number>(offset + at), entry.name.c_str());
    }
    if (entry.header_offset > offset || offset - entry.header_offset < kLocalBytes ||
        entry.bytes > offset - entry.header_offset - kLocalBytes) {
      refuse(file(), offset + at,
             format("entry \"%s\" lies at %llu with %llu bytes, expected it "
                    "before the directory",
                    entry.name.c_str(), static_cast<Number>(entry.header_offset),
                    static_cast<Number>(entry.bytes)));
    }
    if (!by_name_.emplace(entry.name, entries_.size()).second) {
      refuse(file(), offset + at, format("entry \"%s\" is there twice", entry.name.c_str()));
    }
    entries_.push_back(std::move(entry));
    at += whole;
  }
}

const ZipEntry* ZipReader::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

uint64_t ZipReader::data_offset(const ZipEntry& entry) const {
  char local[kLocalBytes];
  source_->read(entry.header_offset, local, sizeof(local));
  const uint64_t start =
      entry.header_offset + kLocalBytes + little(local + 26, 2) + little(local + 28, 2);
  if (std::memcmp(local, "PK\3\4", 4) != 0 || start > source_->bytes() ||
      entry.bytes > source_->bytes() - start) {
    refuse(file(), entry.header_offset,
           format("expected the header of entry \"%s\" and its %llu bytes", entry.name.c_str(),
                  static_cast<Number>(entry.bytes)));
  }
  return start;
}

std::string ZipReader::read_all(const ZipEntry& entry, uint64_t limit) const {
  if (entry.bytes > limit) {
    refuse(file(), entry.header_offset,
           format("entry \"%s\" has %llu bytes, expected at most %llu", entry.name.c_str(),
                  static_cast<Number>(entry.bytes), static_cast<Number>(limit)));
  }
  const uint64_t start = data_offset(entry);
  std::string bytes(entry.bytes, '\0');
  source_->read(start, bytes.data(), bytes.size());
  if (crc32(0, bytes.data(), bytes.size()) != entry.crc32) {
    fail(ZERO_ERR_FILE_CORRUPT,
         "file \"%s\", offset %llu: the %llu bytes of entry \"%s\" do not have the CRC that its "
         "directory says",
         file().c_str(), static_cast<Number>(start), static_cast<Number>(entry.bytes),
         entry.name.c_str());
  }
  return bytes;
}

void ZipReader::verify(const ZipEntry& entry) const {
  const uint64_t start = data_offset(entry);
  std::vector<char> piece(std::min<uint64_t>(entry.bytes, uint64_t{1} << 20));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < entry.bytes; at += piece.size()) {
    const uint64_t count = std::min<uint64_t>(piece.size(), entry.bytes - at);
    source_->read(start + at, piece.data(), count);
    crc = crc32(crc, piece.data(), count);
  }
  if (crc == entry.crc32) return;
  fail(ZERO_ERR_FILE_CORRUPT,
       "file \"%s\", offset %llu: the %llu bytes of entry \"%s\" do not have the CRC that its "
       "directory says",
       file().c_str(), static_cast<Number>(start), static_cast<Number>(entry.bytes),
       entry.name.c_str());
}

} // namespace zero::checkpoint

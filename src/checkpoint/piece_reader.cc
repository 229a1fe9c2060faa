// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/piece_reader.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "checkpoint/piece_file.h"
#include "checkpoint/read_ahead.h"

namespace zero::checkpoint {
namespace {

using Number = unsigned long long;
// Smaller transfers cost the disk more; more buffers go cold before they are used again.  Two
// threads keep the disk busy while one of them compares checksums, two more where they wait for a
// processor.
constexpr uint64_t kReadBytes = uint64_t{4} << 20;
constexpr int32_t kReadBuffers = 5;
constexpr int32_t kReadThreads = 4;

} // namespace

PieceReader::PieceReader(const std::string& path, const Manifest& manifest, int32_t piece)
    : section_bytes_(manifest.section_bytes),
      table_position_(manifest.pieces[static_cast<size_t>(piece)].table_position) {
  const StoredPiece& stored = manifest.pieces[static_cast<size_t>(piece)];
  file_ = File::open(path);
  bulk_ = File::open(path, Caching::kDirect);
  const uint64_t bytes = file_.size();
  if (bytes != stored.bytes) {
    fail(bytes < stored.bytes ? ZERO_ERR_FILE_INCOMPLETE : ZERO_ERR_FILE_CORRUPT,
         "\"%s\", the piece of rank %d, has %llu bytes, expected %llu", path.c_str(), piece,
         static_cast<Number>(bytes), static_cast<Number>(stored.bytes));
  }
  std::vector<std::byte> header(kPieceHeaderBytes);
  file_.read(0, header.data(), header.size());
  check_piece_header(manifest, piece, header.data(), path);
  table_.resize((stored.bytes - stored.table_position) / sizeof(uint64_t));
  file_.read(stored.table_position, table_.data(), table_.size() * sizeof(uint64_t));
  if (XXH3_64bits(table_.data(), table_.size() * sizeof(uint64_t)) != stored.table_checksum) {
    fail(ZERO_ERR_FILE_CORRUPT,
         "\"%s\" is damaged: the %zu bytes from offset %llu, its checksums, do not have theirs",
         path.c_str(), table_.size() * sizeof(uint64_t), static_cast<Number>(table_position_));
  }
}

uint64_t PieceReader::sections() const {
  return section_count(table_position_, section_bytes_);
}
uint64_t PieceReader::section_begin(uint64_t section) const {
  return kPieceHeaderBytes + section * section_bytes_;
}
uint64_t PieceReader::section_end(uint64_t section) const {
  return std::min(section_begin(section) + section_bytes_, table_position_);
}

// The sections [first, last) that a buffer holds, from its start.
uint64_t PieceReader::first_bad(uint64_t first, uint64_t last, const uint8_t* buffer) const {
  for (uint64_t section = first; section < last; ++section) {
    const uint64_t begin = section_begin(section) - section_begin(first);
    const uint64_t bytes = section_end(section) - section_begin(section);
    if (XXH3_64bits(buffer + begin, bytes) != table_[section]) return section;
  }
  return last;
}

void PieceReader::refuse(uint64_t section) const {
  fail(ZERO_ERR_FILE_CORRUPT,
       "\"%s\" is damaged: the bytes [%llu, %llu) do not have their checksum", file_.path().c_str(),
       static_cast<Number>(section_begin(section)), static_cast<Number>(section_end(section)));
}

PieceReader::Section PieceReader::read_section(uint64_t position, std::byte* out) const {
  const uint64_t section = (position - kPieceHeaderBytes) / section_bytes_;
  const Section at{section_begin(section), section_end(section)};
  file_.read(at.begin, out, at.end - at.begin);
  if (first_bad(section, section + 1, reinterpret_cast<const uint8_t*>(out)) == section) {
    refuse(section);
  }
  return at;
}

// The next sections in a row that are wanted, at most `most`; the cursor moves behind them.  False:
// no more.
bool PieceReader::next_run(const std::vector<Want>& wants, uint64_t most, Cursor* at,
                           SectionRun* run) const {
  while (at->next < wants.size() && wants[at->next].bytes == at->done) {
    ++at->next;
    at->done = 0;
  }
  if (at->next == wants.size()) return false;
  const uint64_t first = (wants[at->next].position + at->done - kPieceHeaderBytes) / section_bytes_;
  uint64_t last = first + 1;
  for (size_t w = at->next; w < wants.size() && last < first + most; ++w) {
    const uint64_t begin = std::max(wants[w].position, section_begin(first));
    const uint64_t end = wants[w].position + wants[w].bytes;
    if (wants[w].bytes == 0) continue;
    if (begin > section_begin(last)) break;
    const uint64_t needed = (end - 1 - kPieceHeaderBytes) / section_bytes_ + 1;
    last = std::max(last, std::min(needed, first + most));
  }
  *run = {first, last};
  const uint64_t end = section_end(last - 1);
  while (at->next < wants.size()) {
    const Want& want = wants[at->next];
    if (want.bytes > at->done) {
      const uint64_t from = want.position + at->done;
      if (from >= end) break;
      at->done += std::min(want.bytes - at->done, end - from);
      if (at->done < want.bytes) break;
    }
    ++at->next;
    at->done = 0;
  }
  return true;
}

void PieceReader::read(const std::vector<Want>& wants, const Deliver& deliver) const {
  if (wants.empty()) return;
  const uint64_t at_once = std::max(uint64_t{1}, kReadBytes / section_bytes_);
  const uint64_t buffer_sections = std::min(at_once, sections());
  Cursor ahead;
  const auto next_part = [&](ReadAhead::Part* part) {
    SectionRun run;
    if (!next_run(wants, buffer_sections, &ahead, &run)) return false;
    const uint64_t begin = section_begin(run.first);
    *part = {begin, section_end(run.last - 1) - begin};
    return true;
  };
  const auto check = [&](const ReadAhead::Part& part, const uint8_t* bytes) {
    const uint64_t first = (part.offset - kPieceHeaderBytes) / section_bytes_;
    const uint64_t last = first + (part.bytes + section_bytes_ - 1) / section_bytes_;
    const uint64_t bad = first_bad(first, last, bytes);
    if (bad != last) refuse(bad);
  };
  ReadAhead reader(bulk_, {buffer_sections * section_bytes_, kReadBuffers, kReadThreads}, next_part,
                   check);
  size_t next = 0;
  uint64_t done = 0; // bytes of wants[next] that are delivered
  ReadAhead::Part part;
  while (const uint8_t* const bytes_read = reader.take(&part)) {
    const uint64_t begin = part.offset, end = part.offset + part.bytes;
    while (next < wants.size()) {
      const Want& want = wants[next];
      const uint64_t from = want.position + done;
      if (want.bytes > done) {
        if (from >= end || from < begin) break;
        const uint64_t bytes = std::min(want.bytes - done, end - from);
        if (deliver) {
          deliver(want, done, bytes,
                  reinterpret_cast<const std::byte*>(bytes_read) + (from - begin));
        }
        done += bytes;
        if (done < want.bytes) break;
      }
      ++next;
      done = 0;
    }
  }
}

void PieceReader::verify(const std::function<void(uint64_t, uint64_t)>& damaged,
                         const std::function<void(uint64_t)>& progress) const {
  const AlignedBuffer buffer(section_bytes_);
  for (uint64_t section = 0; section < sections(); ++section) {
    const uint64_t begin = section_begin(section), end = section_end(section);
    file_.read(begin, buffer.data(), end - begin);
    if (first_bad(section, section + 1, buffer.data()) == section) damaged(begin, end);
    if (progress) progress(end - begin);
  }
}

} // namespace zero::checkpoint

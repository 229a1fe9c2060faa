// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"

namespace zero::checkpoint {
namespace {

// A piece of a PartRange, as it lies in one piece.
struct Slice {
  size_t range; // which of those asked for
  uint64_t offset; // elements from its offset
};

// "param "a" MASTER, param "b" MASTER and 3 more", of what lies in [begin, end).
std::string names_in(const Manifest& manifest, const std::vector<PieceItem>& items, uint64_t begin,
                     uint64_t end) {
  std::string names;
  int32_t more = 0;
  std::string last;
  for (const PieceItem& item : items) {
    if (item.position + item.bytes <= begin || item.position >= end) continue;
    std::string name;
    if (item.parameter < 0) {
      const StoredBlob& blob = manifest.blobs[static_cast<size_t>(item.part)];
      name = format("blob \"%s\" of rank %d", blob.key.c_str(), blob.rank);
    } else {
      const StoredParameter& parameter = manifest.parameters[static_cast<size_t>(item.parameter)];
      const StoredPart& part = parameter.parts[static_cast<size_t>(item.part)];
      const char* kind = part.kind == ZERO_PART_VALUE ? "value"
                         : part.kind == ZERO_PART_MASTER
                             ? "master"
                             : manifest.state_names[static_cast<size_t>(part.index)].c_str();
      name = format("param \"%s\" (%s)", parameter.name.c_str(), kind);
    }
    if (names.size() > 300) {
      ++more;
    } else {
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  if (names.empty()) return "padding";
  return more == 0 ? names : names + format(" and %d more", more);
}

} // namespace

CheckpointReader::CheckpointReader(const std::string& path)
    : folder_(resolve_checkpoint(path)),
      manifest_(read_manifest(folder_, &bytes_)),
      names_(manifest_),
      pieces_(manifest_.pieces.size()) {}

const PieceReader& CheckpointReader::piece(int32_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<PieceReader>& place = pieces_[static_cast<size_t>(number)];
  if (!place) {
    const std::string& file = manifest_.pieces[static_cast<size_t>(number)].file;
    place = std::make_unique<PieceReader>(join_path(folder_, file), manifest_, number);
  }
  return *place;
}

void CheckpointReader::read_all(const std::vector<PartRange>& ranges,
                                const DeliverPart& deliver) const {
  std::vector<std::vector<Want>> wants(manifest_.pieces.size());
  std::vector<Slice> slices;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const PartRange& asked = ranges[r];
    const int32_t root = manifest_.root_of(asked.parameter);
    const StoredPart& part =
        manifest_.parameters[static_cast<size_t>(root)].parts[static_cast<size_t>(asked.part)];
    const uint64_t size = dtype_bytes(part.dtype);
    const uint64_t end = asked.offset + asked.count;
    auto at = std::partition_point(part.ranges.begin(), part.ranges.end(), [&](const Range& range) {
      return range.offset + range.count <= asked.offset;
    });
    for (; at != part.ranges.end() && at->offset < end; ++at) {
      const uint64_t first = std::max(at->offset, asked.offset);
      const uint64_t last = std::min(at->offset + at->count, end);
      wants[static_cast<size_t>(at->piece)].push_back(
          {at->position + (first - at->offset) * size, (last - first) * size, slices.size()});
      slices.push_back({r, first - asked.offset});
    }
  }
  for (size_t p = 0; p < wants.size(); ++p) {
    if (wants[p].empty()) continue;
    std::sort(wants[p].begin(), wants[p].end(),
              [](const Want& a, const Want& b) { return a.position < b.position; });
    const PieceReader& reader = piece(static_cast<int32_t>(p));
    if (!deliver) {
      reader.read(wants[p], {});
      continue;
    }
    reader.read(wants[p],
                [&](const Want& want, uint64_t offset, uint64_t bytes, const std::byte* data) {
                  const Slice& slice = slices[want.tag];
                  const PartRange& asked = ranges[slice.range];
                  const int32_t root = manifest_.root_of(asked.parameter);
                  const uint64_t size = dtype_bytes(manifest_.parameters[static_cast<size_t>(root)]
                                                        .parts[static_cast<size_t>(asked.part)]
                                                        .dtype);
                  deliver(asked, slice.offset + offset / size, bytes / size, data);
                });
  }
}

void CheckpointReader::read(int32_t parameter, int32_t part, uint64_t offset, uint64_t count,
                            std::byte* out) const {
  const StoredParameter& root =
      manifest_.parameters[static_cast<size_t>(manifest_.root_of(parameter))];
  const uint64_t size = dtype_bytes(root.parts[static_cast<size_t>(part)].dtype);
  if (offset > root.elements || count > root.elements - offset) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": elements [%llu, +%llu) asked for, expected at most %llu", root.name.c_str(),
         static_cast<unsigned long long>(offset), static_cast<unsigned long long>(count),
         static_cast<unsigned long long>(root.elements));
  }
  const std::vector<Range>& ranges = root.parts[static_cast<size_t>(part)].ranges;
  const uint64_t end = offset + count;
  auto at = std::partition_point(ranges.begin(), ranges.end(), [&](const Range& range) {
    return range.offset + range.count <= offset;
  });
  for (; at != ranges.end() && at->offset < end; ++at) {
    const uint64_t first = std::max(at->offset, offset);
    const uint64_t last = std::min(at->offset + at->count, end);
    read_bytes(at->piece, at->position + (first - at->offset) * size, (last - first) * size,
               out + (first - offset) * size);
  }
}

void CheckpointReader::read_bytes(int32_t number, uint64_t position, uint64_t bytes,
                                  std::byte* out) const {
  if (bytes == 0) return;
  const PieceReader& reader = piece(number);
  if (bytes > manifest_.section_bytes) {
    reader.read({{position, bytes, 0}},
                [&](const Want&, uint64_t offset, uint64_t count, const std::byte* data) {
                  std::memcpy(out + offset, data, count);
                });
    return;
  }
  const std::lock_guard<std::mutex> lock(section_mutex_);
  while (bytes > 0) {
    if (number != section_piece_ || position < section_at_.begin || position >= section_at_.end) {
      section_.resize(manifest_.section_bytes);
      section_piece_ = -1;
      section_at_ = reader.read_section(position, section_.data());
      section_piece_ = number;
    }
    const uint64_t now = std::min(bytes, section_at_.end - position);
    std::memcpy(out, section_.data() + (position - section_at_.begin), now);
    position += now;
    out += now;
    bytes -= now;
  }
}

int32_t CheckpointReader::find_blob(int32_t rank, std::string_view key) const {
  for (size_t b = 0; b < manifest_.blobs.size(); ++b) {
    const StoredBlob& blob = manifest_.blobs[b];
    if (blob.rank == rank && blob.key == key) return static_cast<int32_t>(b);
  }
  return -1;
}

std::string CheckpointReader::read_blob(int32_t number) const {
  const StoredBlob& blob = manifest_.blobs[static_cast<size_t>(number)];
  std::string bytes(blob.bytes, '\0');
  read_bytes(blob.piece, blob.position, blob.bytes, reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

std::vector<Damage> CheckpointReader::verify(const Progress& progress) const {
  std::vector<Damage> found;
  for (size_t p = 0; p < manifest_.pieces.size(); ++p) {
    const StoredPiece& stored = manifest_.pieces[p];
    const std::string path = join_path(folder_, stored.file);
    const auto number = static_cast<int32_t>(p);
    const std::vector<PieceItem> items = piece_items(manifest_, number);
    try {
      // Opened anew: what was sound before need not be so now.
      const PieceReader reader(path, manifest_, number);
      reader.verify(
          [&](uint64_t begin, uint64_t end) {
            found.push_back({path, begin, end, names_in(manifest_, items, begin, end)});
          },
          progress);
    } catch (const Error& error) {
      if (error.status() < ZERO_ERR_FILE_FORMAT && error.status() != ZERO_ERR_IO) throw;
      found.push_back({path, 0, stored.bytes, error.message()});
    }
  }
  return found;
}

} // namespace zero::checkpoint

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/manifest_check.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/piece_layout.h"

namespace zero::checkpoint {
namespace {

using Number = unsigned long long;

struct Interval {
  uint64_t begin, end;
  bool operator<(const Interval& other) const { return begin < other.begin; }
};

class Checker {
 public:
  Checker(const Manifest& manifest, const std::string& file)
      : manifest_(manifest), file_(file), used_(manifest.pieces.size()) {}

  void check() {
    check_scalars();
    check_pieces();
    check_groups();
    check_names();
    for (size_t p = 0; p < manifest_.parameters.size(); ++p) check_parameter(p);
    check_blobs();
    check_overlaps();
  }

 private:
  template <typename... Values>
  [[noreturn]] void refuse(const char* pattern, Values... values) const {
    const std::string said = format(pattern, values...);
    fail(ZERO_ERR_FILE_FORMAT, "checkpoint manifest \"%s\": %s", file_.c_str(), said.c_str());
  }

  void check_names() const {
    std::unordered_set<std::string_view> names;
    for (const StoredParameter& parameter : manifest_.parameters) {
      if (names.insert(parameter.name).second) continue;
      refuse("param \"%s\" is there twice", parameter.name.c_str());
    }
  }

  void check_scalars() const {
    if (manifest_.format_version != kFormatVersion) {
      refuse("format_version is %u, its header says %u", manifest_.format_version, kFormatVersion);
    }
    if (manifest_.world_size < 1 ||
        static_cast<size_t>(manifest_.world_size) != manifest_.pieces.size()) {
      refuse("world_size is %d with %zu pieces, expected one piece a rank", manifest_.world_size,
             manifest_.pieces.size());
    }
    const uint64_t section = manifest_.section_bytes;
    if (section == 0 || section % kPieceAlignment != 0 || section > (uint64_t{1} << 30)) {
      refuse("section_bytes is %llu, expected a multiple of 4096 up to 2^30",
             static_cast<Number>(section));
    }
    if (manifest_.step < 0 || manifest_.skipped_total < 0) {
      refuse("step is %lld and skipped_total %lld, expected no negative number",
             static_cast<long long>(manifest_.step),
             static_cast<long long>(manifest_.skipped_total));
    }
  }

  void check_pieces() const {
    for (size_t i = 0; i < manifest_.pieces.size(); ++i) {
      const StoredPiece& piece = manifest_.pieces[i];
      const std::string expected = piece_name(static_cast<int32_t>(i));
      if (piece.file != expected) {
        refuse("piece %zu is called \"%s\", expected \"%s\"", i, piece.file.c_str(),
               expected.c_str());
      }
      if (piece.table_position < kPieceHeaderBytes || piece.table_position % kPieceAlignment != 0 ||
          piece.table_position > UINT64_MAX / 2 ||
          piece.bytes != piece_bytes(piece.table_position, manifest_.section_bytes)) {
        refuse("piece %zu has %llu bytes and its table at %llu, which do not belong together", i,
               static_cast<Number>(piece.bytes), static_cast<Number>(piece.table_position));
      }
    }
  }

  void check_groups() const {
    if (manifest_.groups.empty())
      refuse("it has %zu parameter groups, expected at least one", manifest_.groups.size());
    for (size_t g = 0; g < manifest_.groups.size(); ++g) {
      if (manifest_.groups[g].name.empty()) refuse("group %zu has no name", g);
    }
  }

  void check_shape(const StoredParameter& parameter) const {
    uint64_t elements = 1, bytes = 0;
    for (const int64_t size : parameter.shape) {
      const bool negative = size < 0;
      if (negative || __builtin_mul_overflow(elements, static_cast<uint64_t>(size), &elements)) {
        refuse("param \"%s\": a dimension is %lld, expected a shape of at most 2^64 elements",
               parameter.name.c_str(), static_cast<long long>(size));
      }
    }
    if (elements != parameter.elements || __builtin_mul_overflow(elements, uint64_t{8}, &bytes)) {
      refuse("param \"%s\": too many elements", parameter.name.c_str());
    }
  }

  void check_parameter(size_t index) {
    const StoredParameter& parameter = manifest_.parameters[index];
    const char* name = parameter.name.c_str();
    if (parameter.name.empty()) refuse("parameter %zu has no name", index);
    if (parameter.name.find('\0') != std::string::npos) {
      refuse("the name of parameter %zu holds a NUL", index);
    }
    if (dtype_bytes(parameter.dtype) == 0) {
      refuse("param \"%s\": dtype is %d, expected one of zero.h", name, parameter.dtype);
    }
    if (parameter.role < ZERO_PARAM_TRAINED || parameter.role > ZERO_PARAM_BUFFER) {
      refuse("param \"%s\": role is %d, expected 0 to 2", name, parameter.role);
    }
    if (parameter.group < 0 || static_cast<size_t>(parameter.group) >= manifest_.groups.size()) {
      refuse("param \"%s\": group is %d of %zu", name, parameter.group, manifest_.groups.size());
    }
    if (parameter.steps < 0) {
      refuse("param \"%s\": steps is %lld", name, static_cast<long long>(parameter.steps));
    }
    check_shape(parameter);
    if (parameter.tied_to != -1) return check_alias(index);
    check_parts(parameter);
  }

  void check_alias(size_t index) const {
    const StoredParameter& parameter = manifest_.parameters[index];
    const char* name = parameter.name.c_str();
    if (parameter.tied_to < 0 || static_cast<size_t>(parameter.tied_to) >= index) {
      refuse("param \"%s\" is tied to row %d, expected an earlier one", name, parameter.tied_to);
    }
    const StoredParameter& target = manifest_.parameters[static_cast<size_t>(parameter.tied_to)];
    if (target.shape != parameter.shape || target.dtype != parameter.dtype) {
      refuse("param \"%s\" is tied to \"%s\" of another shape or dtype", name, target.name.c_str());
    }
    if (!parameter.parts.empty()) refuse("param \"%s\" is an alias with parts of its own", name);
  }

  void check_parts(const StoredParameter& parameter) {
    const char* name = parameter.name.c_str();
    const bool state = parameter.role == ZERO_PARAM_TRAINED && !manifest_.weights_only;
    const size_t expected = state ? 1 + manifest_.state_names.size() : 1;
    if (parameter.parts.size() != expected) {
      refuse("param \"%s\" has %zu parts, expected %zu", name, parameter.parts.size(), expected);
    }
    for (size_t i = 0; i < parameter.parts.size(); ++i) {
      const StoredPart& part = parameter.parts[i];
      const zero_part kind = !state ? ZERO_PART_VALUE : i == 0 ? ZERO_PART_MASTER : ZERO_PART_STATE;
      const int32_t index = i == 0 ? 0 : static_cast<int32_t>(i) - 1;
      if (part.kind != kind || part.index != index) {
        refuse("param \"%s\": part %zu is kind %d index %d, expected %d and %d", name, i, part.kind,
               part.index, kind, index);
      }
      const bool own = part.dtype == parameter.dtype;
      const bool wide = kind != ZERO_PART_VALUE && part.dtype == ZERO_DTYPE_FP32;
      const bool narrow = kind == ZERO_PART_STATE && is_16_bit_float(part.dtype);
      if (!own && !wide && !narrow) {
        refuse("param \"%s\": part %zu has dtype %d", name, i, part.dtype);
      }
      check_ranges(parameter, part);
    }
  }

  void check_ranges(const StoredParameter& parameter, const StoredPart& part) {
    const char* name = parameter.name.c_str();
    const uint64_t size = dtype_bytes(part.dtype);
    uint64_t at = 0;
    for (const Range& range : part.ranges) {
      if (range.offset != at || range.count == 0 || range.count > parameter.elements - at) {
        refuse("param \"%s\": a range is [%llu, +%llu), expected it to go on at %llu of %llu", name,
               static_cast<Number>(range.offset), static_cast<Number>(range.count),
               static_cast<Number>(at), static_cast<Number>(parameter.elements));
      }
      at += range.count;
      use(range.piece, range.position, range.count * size, name);
    }
    if (at != parameter.elements) {
      refuse("param \"%s\": its ranges hold %llu elements, expected %llu", name,
             static_cast<Number>(at), static_cast<Number>(parameter.elements));
    }
  }

  void check_blobs() {
    std::set<std::pair<int32_t, std::string_view>> seen;
    for (const StoredBlob& blob : manifest_.blobs) {
      if (blob.rank < 0 || blob.key.empty()) {
        refuse("blob \"%s\" is of rank %d, expected a key and a rank", blob.key.c_str(), blob.rank);
      }
      if (!seen.emplace(blob.rank, blob.key).second) {
        refuse("blob \"%s\" of rank %d is there twice", blob.key.c_str(), blob.rank);
      }
      use(blob.piece, blob.position, blob.bytes, blob.key.c_str());
    }
  }

  void use(int32_t piece, uint64_t position, uint64_t bytes, const char* name) {
    if (piece < 0 || static_cast<size_t>(piece) >= manifest_.pieces.size()) {
      refuse("\"%s\" lies in piece %d of %zu", name, piece, manifest_.pieces.size());
    }
    const uint64_t end = manifest_.pieces[static_cast<size_t>(piece)].table_position;
    if (position % kRangeAlignment != 0 || position < kPieceHeaderBytes || position > end ||
        bytes > end - position) {
      refuse("\"%s\" lies at byte %llu, %llu bytes, in a piece whose data is [4096, %llu)", name,
             static_cast<Number>(position), static_cast<Number>(bytes), static_cast<Number>(end));
    }
    if (bytes > 0) used_[static_cast<size_t>(piece)].push_back({position, position + bytes});
  }

  void check_overlaps() {
    for (size_t i = 0; i < used_.size(); ++i) {
      std::sort(used_[i].begin(), used_[i].end());
      for (size_t k = 1; k < used_[i].size(); ++k) {
        if (used_[i][k - 1].end <= used_[i][k].begin) continue;
        refuse("two ranges of piece %zu share byte %llu", i,
               static_cast<Number>(used_[i][k].begin));
      }
    }
  }

  const Manifest& manifest_;
  const std::string& file_;
  std::vector<std::vector<Interval>> used_;
};

} // namespace

void check_manifest(const Manifest& manifest, const std::string& file) {
  Checker(manifest, file).check();
}

} // namespace zero::checkpoint

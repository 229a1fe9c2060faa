// What a checkpoint holds, as plain values: the manifest of manifest.fbs in memory, its bytes, and
// every rule that a sound one keeps.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace zero::checkpoint {

constexpr uint32_t kFormatVersion = 1;
constexpr uint64_t kRangeAlignment = 64; // bytes; where a range may start in a piece
constexpr uint64_t kPieceAlignment = 4096; // bytes; of sections, parts, and a piece's length
constexpr uint64_t kSectionBytes = uint64_t{128} << 10; // what one checksum covers

// Elements [offset, offset + count) of a part, at byte `position` of a piece.
struct Range {
  uint64_t offset = 0;
  uint64_t count = 0;
  uint64_t position = 0;
  int32_t piece = 0;
};

struct StoredPart {
  zero_part kind = ZERO_PART_VALUE; // VALUE, MASTER or STATE
  int32_t index = 0; // of a STATE
  zero_dtype dtype = ZERO_DTYPE_FP32;
  std::vector<Range> ranges; // by offset, together the whole; filled by a layout
};

// One for each registered name.  An alias (tied_to >= 0) has no parts: see root_of.
// Trained: MASTER and the states; weights_only, frozen and buffers: VALUE.
struct StoredParameter {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t elements = 1; // of shape
  zero_dtype dtype = ZERO_DTYPE_FP32; // of the value
  zero_param_role role = ZERO_PARAM_TRAINED;
  zero_group_id group = 0;
  int32_t tied_to = -1; // always an earlier row
  int64_t steps = 0;
  std::vector<StoredPart> parts;
};

struct StoredGroup {
  std::string name;
  bool frozen = false;
  // NaN: the config's.
  double lr = 0, lr_scale = 1, weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0, momentum = 0;
};

struct StoredLossScale {
  double scale = 1;
  int64_t credits = 1;
  int64_t iteration = 0;
  int64_t last_overflow = -1;
};

struct StoredBlob {
  std::string key;
  int32_t rank = 0;
  int32_t piece = 0;
  uint64_t position = 0;
  uint64_t bytes = 0;
};

struct StoredPiece {
  std::string file; // piece_name(its number)
  uint64_t bytes = 0;
  uint64_t table_position = 0;
  uint64_t table_checksum = 0; // known when the piece is written
};

struct Manifest {
  uint32_t format_version = kFormatVersion;
  uint64_t id = 0;
  uint64_t run = 0;
  std::string writer;
  int64_t step = 0;
  int64_t skipped_total = 0;
  int32_t world_size = 1; // also the number of pieces
  int32_t stage = 0;
  bool weights_only = false;
  std::string optimizer; // "adam", "sgd", ...; "" for weights alone
  std::vector<std::string> state_names;
  bool has_loss_scale = false; // of a run in fp16
  StoredLossScale loss_scale;
  std::string config;
  std::vector<StoredGroup> groups; // at least one
  std::vector<StoredParameter> parameters;
  std::vector<StoredBlob> blobs;
  uint64_t section_bytes = kSectionBytes;
  std::vector<StoredPiece> pieces;

  int32_t root_of(int32_t parameter) const;
  // Index into the root's parts; -1: there is none.
  int32_t find_part(int32_t parameter, zero_part kind, int32_t index) const;
};

// Names to rows; a manifest's parameters do not move while one lives.
class NameIndex {
 public:
  explicit NameIndex(const Manifest& manifest);
  int32_t find(std::string_view name) const; // -1: none

 private:
  std::unordered_map<std::string_view, int32_t> rows_;
};

std::string piece_name(int32_t piece); // "piece-00000.zero"
inline constexpr const char* kManifestName = "manifest.zero";

// The file's bytes: 64 of header (magic, version, length, checksums), then the FlatBuffer.
std::string encode_manifest(const Manifest& manifest);
// Checks everything: checksums, bounds, that names are unique, that ranges lie inside their pieces,
// cover their parts and overlap nowhere.  Throws FILE_FORMAT, FILE_VERSION, FILE_CORRUPT,
// FILE_INCOMPLETE, naming file and what was expected.
Manifest decode_manifest(std::string_view bytes, const std::string& file);

} // namespace zero::checkpoint

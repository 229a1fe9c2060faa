// The manifest's bytes: 64 of header, then the FlatBuffer of manifest.fbs.
// SPDX-License-Identifier: BSD-3-Clause
#include <xxhash.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_check.h"
#include "checkpoint/manifest_generated.h"

// With sanitizers g++ 12 takes the vectors' first element for the whole of them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif

namespace zero::checkpoint {
namespace {

using Number = unsigned long long;

constexpr char kMagic[8] = {'Z', 'E', 'R', 'O', 'C', 'K', 'P', 'T'};
constexpr uint64_t kLargestBuffer = (uint64_t{1} << 31) - 64; // what a FlatBuffer can hold

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t bytes; // of the FlatBuffer behind
  uint64_t checksum; // of it, XXH3-64
  uint64_t zeros[3];
  uint64_t header_checksum; // of the 56 bytes before
};
static_assert(sizeof(Header) == 64);

// An upper bound is not needed, only to refuse before the builder would end the process.
uint64_t estimated_bytes(const Manifest& manifest) {
  uint64_t bytes = manifest.config.size() + 4096;
  for (const StoredParameter& parameter : manifest.parameters) {
    bytes += 128 + parameter.name.size() + 8 * parameter.shape.size();
    for (const StoredPart& part : parameter.parts) bytes += 64 + 32 * part.ranges.size();
  }
  for (const StoredGroup& group : manifest.groups) bytes += 128 + group.name.size();
  for (const StoredBlob& blob : manifest.blobs) bytes += 96 + blob.key.size();
  return bytes + 96 * manifest.pieces.size();
}

flatbuffers::Offset<stored::Parameter> add_parameter(flatbuffers::FlatBufferBuilder& builder,
                                                     const StoredParameter& parameter) {
  std::vector<flatbuffers::Offset<stored::Part>> parts;
  for (const StoredPart& part : parameter.parts) {
    std::vector<stored::Range> ranges;
    ranges.reserve(part.ranges.size());
    for (const Range& range : part.ranges) {
      ranges.emplace_back(range.offset, range.count, range.position,
                          static_cast<uint32_t>(range.piece));
    }
    parts.push_back(stored::CreatePart(builder, part.kind, part.index, part.dtype,
                                       builder.CreateVectorOfStructs(ranges)));
  }
  const auto name = builder.CreateString(parameter.name);
  const auto shape = builder.CreateVector(parameter.shape);
  const auto list = builder.CreateVector(parts);
  return stored::CreateParameter(builder, name, shape, parameter.dtype, parameter.role,
                                 parameter.group, parameter.tied_to, parameter.steps, list);
}

// Offsets may point at one thing many times over: what is read out is never more than the file.
class Budget {
 public:
  Budget(uint64_t bytes, const std::string& file) : left_(bytes), file_(file) {}
  void spend(uint64_t bytes) {
    if (bytes > left_) {
      fail(ZERO_ERR_FILE_FORMAT, "checkpoint manifest \"%s\" says more than its bytes hold",
           file_.c_str());
    }
    left_ -= bytes;
  }
  std::string text(const flatbuffers::String* text) {
    if (text == nullptr) return {};
    spend(text->size() + sizeof(uint32_t));
    return text->str();
  }

 private:
  uint64_t left_;
  const std::string& file_;
};

// Nor at where structs start.
template <typename Struct>
Struct aligned(const void* from) {
  Struct to;
  std::memcpy(&to, from, sizeof(to));
  return to;
}

StoredParameter parameter_of(const stored::Parameter& from, Budget& budget) {
  StoredParameter to;
  to.name = budget.text(from.name());
  if (from.shape() != nullptr) {
    budget.spend(from.shape()->size() * sizeof(int64_t));
    to.shape.resize(from.shape()->size());
    // Not by elements: the verifier does not look at where those of a vector start.
    if (!to.shape.empty())
      std::memcpy(to.shape.data(), from.shape()->Data(), to.shape.size() * sizeof(int64_t));
  }
  for (const int64_t size : to.shape) { // a wrap is found by check_manifest
    to.elements *= static_cast<uint64_t>(size);
  }
  to.dtype = from.dtype();
  to.role = from.role();
  to.group = from.group();
  to.tied_to = from.tied_to();
  to.steps = from.steps();
  if (from.parts() == nullptr) return to;
  for (const stored::Part* part : *from.parts()) {
    StoredPart kept;
    kept.kind = part->kind();
    kept.index = part->index();
    kept.dtype = part->dtype();
    budget.spend(sizeof(uint32_t));
    if (part->ranges() != nullptr) {
      budget.spend(part->ranges()->size() * sizeof(stored::Range));
      kept.ranges.reserve(part->ranges()->size());
      for (uint64_t i = 0; i < part->ranges()->size(); ++i) {
        const auto range =
            aligned<stored::Range>(part->ranges()->Data() + i * sizeof(stored::Range));
        kept.ranges.push_back(
            {range.offset(), range.count(), range.position(), static_cast<int32_t>(range.piece())});
      }
    }
    to.parts.push_back(std::move(kept));
  }
  return to;
}

Manifest manifest_of(const stored::Manifest& from, Budget& budget) {
  Manifest to;
  to.format_version = from.format_version();
  to.id = from.id();
  to.run = from.run();
  to.writer = budget.text(from.writer());
  to.step = from.step();
  to.skipped_total = from.skipped_total();
  to.world_size = from.world_size();
  to.stage = from.stage();
  to.weights_only = from.weights_only();
  to.optimizer = budget.text(from.optimizer());
  if (from.state_names() != nullptr) {
    for (const flatbuffers::String* name : *from.state_names()) {
      to.state_names.push_back(budget.text(name));
    }
  }
  if (from.loss_scale() != nullptr) {
    const auto scale = aligned<stored::LossScale>(from.loss_scale());
    to.has_loss_scale = true;
    to.loss_scale = {scale.scale(), scale.credits(), scale.iteration(), scale.last_overflow()};
  }
  to.config = budget.text(from.config());
  if (from.groups() != nullptr) {
    for (const stored::Group* group : *from.groups()) {
      to.groups.push_back({budget.text(group->name()), group->frozen(), group->lr(),
                           group->lr_scale(), group->weight_decay(), group->beta1(), group->beta2(),
                           group->epsilon(), group->momentum()});
    }
  }
  if (from.parameters() != nullptr) {
    to.parameters.reserve(from.parameters()->size());
    for (const stored::Parameter* parameter : *from.parameters()) {
      to.parameters.push_back(parameter_of(*parameter, budget));
    }
  }
  if (from.blobs() != nullptr) {
    for (const stored::Blob* blob : *from.blobs()) {
      to.blobs.push_back({budget.text(blob->key()), static_cast<int32_t>(blob->rank()),
                          static_cast<int32_t>(blob->piece()), blob->position(), blob->bytes()});
    }
  }
  to.section_bytes = from.section_bytes();
  if (from.pieces() != nullptr) {
    for (const stored::Piece* piece : *from.pieces()) {
      to.pieces.push_back({budget.text(piece->file()), piece->bytes(), piece->table_position(),
                           piece->table_checksum()});
    }
  }
  return to;
}

uint64_t header_checksum(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, header_checksum));
}

Header check_header(std::string_view bytes, const char* file) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    fail(ZERO_ERR_FILE_INCOMPLETE,
         "checkpoint manifest \"%s\" has %zu bytes, expected at least %zu", file, bytes.size(),
         sizeof(header));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    fail(ZERO_ERR_FILE_FORMAT,
         "\"%s\" does not start with \"ZEROCKPT\": it is no checkpoint manifest, or damaged at "
         "offset 0",
         file);
  }
  if (header.header_checksum != header_checksum(header)) {
    fail(ZERO_ERR_FILE_CORRUPT,
         "checkpoint manifest \"%s\" is damaged: its first 64 bytes do not have their checksum",
         file);
  }
  if (header.version != kFormatVersion) {
    fail(ZERO_ERR_FILE_VERSION,
         "checkpoint manifest \"%s\" has format version %u, this library reads %u", file,
         header.version, kFormatVersion);
  }
  if (header.bytes != bytes.size() - sizeof(header)) {
    fail(bytes.size() - sizeof(header) < header.bytes ? ZERO_ERR_FILE_INCOMPLETE
                                                      : ZERO_ERR_FILE_CORRUPT,
         "checkpoint manifest \"%s\" has %zu bytes, expected %llu", file, bytes.size(),
         static_cast<Number>(header.bytes) + sizeof(header));
  }
  return header;
}

} // namespace

std::string encode_manifest(const Manifest& manifest) {
  const uint64_t estimate = estimated_bytes(manifest);
  if (estimate > kLargestBuffer) {
    fail(
        ZERO_ERR_UNSUPPORTED,
        "the manifest would take some %llu bytes, expected at most 2^31: too many parameters times "
        "ranks",
        static_cast<Number>(estimate));
  }
  flatbuffers::FlatBufferBuilder builder(estimate);
  std::vector<flatbuffers::Offset<stored::Parameter>> parameters;
  parameters.reserve(manifest.parameters.size());
  for (const StoredParameter& parameter : manifest.parameters) {
    parameters.push_back(add_parameter(builder, parameter));
  }
  std::vector<flatbuffers::Offset<stored::Group>> groups;
  for (const StoredGroup& g : manifest.groups) {
    groups.push_back(stored::CreateGroup(builder, builder.CreateString(g.name), g.frozen, g.lr,
                                         g.lr_scale, g.weight_decay, g.beta1, g.beta2, g.epsilon,
                                         g.momentum));
  }
  std::vector<flatbuffers::Offset<stored::Blob>> blobs;
  for (const StoredBlob& blob : manifest.blobs) {
    blobs.push_back(stored::CreateBlob(
        builder, builder.CreateString(blob.key), static_cast<uint32_t>(blob.rank),
        static_cast<uint32_t>(blob.piece), blob.position, blob.bytes));
  }
  std::vector<flatbuffers::Offset<stored::Piece>> pieces;
  for (const StoredPiece& piece : manifest.pieces) {
    pieces.push_back(stored::CreatePiece(builder, builder.CreateString(piece.file), piece.bytes,
                                         piece.table_position, piece.table_checksum));
  }
  const stored::LossScale scale(manifest.loss_scale.scale, manifest.loss_scale.credits,
                                manifest.loss_scale.iteration, manifest.loss_scale.last_overflow);
  const auto writer = builder.CreateString(manifest.writer);
  const auto optimizer = builder.CreateString(manifest.optimizer);
  const auto state_names = builder.CreateVectorOfStrings(manifest.state_names);
  const auto config = builder.CreateString(manifest.config);
  const auto group_list = builder.CreateVector(groups);
  const auto parameter_list = builder.CreateVector(parameters);
  const auto blob_list = builder.CreateVector(blobs);
  const auto piece_list = builder.CreateVector(pieces);
  stored::FinishManifestBuffer(
      builder,
      stored::CreateManifest(
          builder, manifest.format_version, manifest.id, manifest.run, writer, manifest.step,
          manifest.skipped_total, manifest.world_size, manifest.stage, manifest.weights_only,
          optimizer, state_names, manifest.has_loss_scale ? &scale : nullptr, config, group_list,
          parameter_list, blob_list, static_cast<uint32_t>(manifest.section_bytes), piece_list));
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = manifest.format_version;
  header.bytes = builder.GetSize();
  header.checksum = XXH3_64bits(builder.GetBufferPointer(), builder.GetSize());
  header.header_checksum = header_checksum(header);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize());
  return bytes;
}

Manifest decode_manifest(std::string_view bytes, const std::string& file) {
  const Header header = check_header(bytes, file.c_str());
  const char* buffer = bytes.data() + sizeof(header);
  if (XXH3_64bits(buffer, header.bytes) != header.checksum) {
    fail(ZERO_ERR_FILE_CORRUPT,
         "checkpoint manifest \"%s\" is damaged: the bytes from offset 64 do not have their "
         "checksum",
         file.c_str());
  }
  // Reads are made in place: at 8 bytes, as the verifier expects.
  std::vector<uint64_t> moved;
  if (reinterpret_cast<uintptr_t>(buffer) % alignof(uint64_t) != 0) {
    moved.resize(header.bytes / sizeof(uint64_t) + 1);
    std::memcpy(moved.data(), buffer, header.bytes);
    buffer = reinterpret_cast<const char*>(moved.data());
  }
  const auto* start = reinterpret_cast<const uint8_t*>(buffer);
  const bool fits = header.bytes >= 16 && header.bytes <= kLargestBuffer;
  const auto most_tables = static_cast<flatbuffers::uoffset_t>(header.bytes / 4);
  if (fits) {
    flatbuffers::Verifier verifier(start, header.bytes, /*max_depth=*/16, most_tables);
    if (stored::VerifyManifestBuffer(verifier)) {
      Budget budget(header.bytes, file);
      Manifest manifest = manifest_of(*stored::GetManifest(start), budget);
      check_manifest(manifest, file);
      return manifest;
    }
  }
  fail(ZERO_ERR_FILE_FORMAT, "checkpoint manifest \"%s\": its %llu bytes are no sound FlatBuffer",
       file.c_str(), static_cast<Number>(header.bytes));
}

} // namespace zero::checkpoint

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/safetensors_writer.h"

#include <json/value.h>
#include <json/writer.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"

namespace zero::checkpoint {
namespace {

constexpr uint64_t kBufferBytes = uint64_t{1} << 20;
constexpr uint64_t kLengthBytes = 8;

const char* safetensors_dtype(zero_dtype dtype) {
  switch (dtype) {
    case ZERO_DTYPE_FP32:
      return "F32";
    case ZERO_DTYPE_FP16:
      return "F16";
    case ZERO_DTYPE_BF16:
      return "BF16";
    case ZERO_DTYPE_FP64:
      return "F64";
    case ZERO_DTYPE_INT64:
      return "I64";
    case ZERO_DTYPE_INT32:
      return "I32";
    default:
      return "U8";
  }
}

std::string json_text(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["emitUTF8"] = true;
  return Json::writeString(builder, value);
}

// Well-formed, so that a header is JSON for every reader.
bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length == 0 || length > text.size() - i) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    if ((length == 3 && code < 0x800) || (length == 4 && (code < 0x10000 || code > 0x10ffff)) ||
        (code >= 0xd800 && code < 0xe000)) {
      return false;
    }
    i += length;
  }
  return true;
}

void check_name(const std::string& name) {
  if (name == "__metadata__" || !is_utf8(name)) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": its name cannot stand in a safetensors header, expected UTF-8 and not "
         "\"__metadata__\"",
         name.c_str());
  }
}

std::string entry_text(const SafetensorsTensor& tensor, uint64_t begin) {
  std::string text = json_text(tensor.name) + ":{\"dtype\":\"" + safetensors_dtype(tensor.dtype) +
                     "\",\"shape\":[";
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
  }
  text += "],\"data_offsets\":[" + std::to_string(begin) + "," +
          std::to_string(begin + tensor.bytes) + "]}";
  return text;
}

// An upper bound of what a tensor adds to its header.
uint64_t entry_bound(const SafetensorsTensor& tensor) {
  return entry_text(tensor, UINT64_MAX - tensor.bytes).size() + 1;
}

std::string header_of(const std::vector<SafetensorsTensor>& tensors, SafetensorsFile* file,
                      const std::vector<SafetensorsAlias>& aliases) {
  Json::Value metadata(Json::objectValue);
  metadata["format"] = "pt";
  for (const SafetensorsAlias& alias : aliases) metadata[alias.name] = alias.owner;
  std::string text = "{\"__metadata__\":" + json_text(metadata);
  for (const size_t t : file->tensors) {
    text += "," + entry_text(tensors[t], file->data_bytes);
    file->data_bytes += tensors[t].bytes;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' '); // the data starts at a multiple of 8
  std::string length(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

// Beside path and of this export alone, also where a process died before.
std::string staging_name(const std::string& path) {
  return join_path(parent_folder(path),
                   "." + base_name(path) +
                       format(".saving-%016llx", static_cast<unsigned long long>(random_id())));
}

} // namespace

std::string safetensors_name(size_t number, size_t count) {
  if (count == 1) return "model.safetensors";
  return format("model-%05zu-of-%05zu.safetensors", number, count);
}

SafetensorsLayout lay_out_safetensors(const std::vector<SafetensorsTensor>& tensors,
                                      const std::vector<SafetensorsAlias>& aliases,
                                      uint64_t max_file_bytes) {
  std::map<std::string, std::vector<SafetensorsAlias>> aliases_of;
  for (const SafetensorsAlias& alias : aliases) {
    check_name(alias.name);
    aliases_of[alias.owner].push_back(alias);
  }
  std::vector<std::vector<SafetensorsAlias>> file_aliases;
  SafetensorsLayout layout;
  constexpr uint64_t kFrame = 64; // length, braces, metadata, padding
  uint64_t bytes = kFrame;
  uint64_t total = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    check_name(tensors[t].name);
    const std::vector<SafetensorsAlias>& mine = aliases_of[tensors[t].name];
    uint64_t more = tensors[t].bytes + entry_bound(tensors[t]);
    for (const SafetensorsAlias& alias : mine) {
      more += json_text(alias.name).size() + json_text(alias.owner).size() + 2;
    }
    const bool is_full = max_file_bytes != 0 && !layout.files.empty() &&
                         !layout.files.back().tensors.empty() && bytes + more > max_file_bytes;
    if (layout.files.empty() || is_full) {
      layout.files.emplace_back();
      file_aliases.emplace_back();
      bytes = kFrame;
    }
    layout.files.back().tensors.push_back(t);
    file_aliases.back().insert(file_aliases.back().end(), mine.begin(), mine.end());
    bytes += more;
    total += tensors[t].bytes;
  }
  if (layout.files.empty()) { // a model without parameters
    layout.files.emplace_back();
    file_aliases.emplace_back();
  }
  Json::Value map(Json::objectValue);
  for (size_t f = 0; f < layout.files.size(); ++f) {
    SafetensorsFile& file = layout.files[f];
    file.name = safetensors_name(f + 1, layout.files.size());
    // Large elements first: then every tensor starts at a multiple of its element.
    std::stable_sort(file.tensors.begin(), file.tensors.end(), [&](size_t a, size_t b) {
      return dtype_bytes(tensors[a].dtype) > dtype_bytes(tensors[b].dtype);
    });
    file.header = header_of(tensors, &file, file_aliases[f]);
    for (const size_t t : file.tensors) map[tensors[t].name] = file.name;
  }
  if (layout.files.size() > 1) {
    Json::Value root(Json::objectValue);
    root["metadata"]["total_size"] = Json::UInt64{total};
    root["weight_map"] = map;
    Json::StreamWriterBuilder builder;
    builder["indentation"] = "  ";
    builder["emitUTF8"] = true;
    layout.index = Json::writeString(builder, root) + "\n";
  }
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout,
                                     bool as_folder)
    : path_(path), layout_(layout), as_folder_(as_folder), staging_(staging_name(path)) {
  const PathKind kind = path_info(path).kind;
  if (as_folder && kind != PathKind::kAbsent) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "folder \"%s\" exists, expected a new one for the export",
         path.c_str());
  }
  if (!as_folder && kind != PathKind::kAbsent && kind != PathKind::kFile) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "\"%s\" exists and is no file, expected the name of a safetensors file", path.c_str());
  }
  make_folders(parent_folder(path));
  buffer_.reserve(kBufferBytes);
  try {
    if (as_folder) make_folder(staging_);
    open_next();
  } catch (...) {
    current_ = File();
    try {
      remove_tree(staging_);
    } catch (const Error&) {
      // The first error is the one that is told.
    }
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (finished_) return;
  try {
    current_ = File();
    remove_tree(staging_);
  } catch (const Error&) {
    // What is left has a name that no reader takes for weights.
  }
}

void SafetensorsWriter::open_next() {
  const SafetensorsFile& file = layout_.files[file_];
  current_ = File::create(as_folder_ ? join_path(staging_, file.name) : staging_);
  current_.write(0, file.header.data(), file.header.size());
  position_ = file.header.size();
  written_ = 0;
}

void SafetensorsWriter::flush() {
  current_.write(position_, buffer_.data(), buffer_.size());
  position_ += buffer_.size();
  buffer_.clear();
}

void SafetensorsWriter::close_current() {
  flush();
  current_.sync();
  current_.close();
  ++file_;
}

void SafetensorsWriter::append(const void* bytes, uint64_t count) {
  const auto* at = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    while (written_ == layout_.files[file_].data_bytes) {
      close_current();
      open_next();
    }
    const uint64_t room =
        std::min(kBufferBytes - buffer_.size(), layout_.files[file_].data_bytes - written_);
    const uint64_t now = std::min(count, room);
    if (buffer_.empty() && now == kBufferBytes) {
      current_.write(position_, at, now);
      position_ += now;
    } else {
      buffer_.insert(buffer_.end(), at, at + now);
      if (buffer_.size() == kBufferBytes) flush();
    }
    written_ += now;
    at += now;
    count -= now;
  }
}

void SafetensorsWriter::finish() {
  for (;;) { // files that hold only empty tensors may be left
    close_current();
    if (file_ == layout_.files.size()) break;
    open_next();
  }
  if (as_folder_) {
    if (!layout_.index.empty()) write_file(join_path(staging_, kSafetensorsIndex), layout_.index);
    sync_folder(staging_);
    if (!rename_to_new(staging_, path_)) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "folder \"%s\" exists, expected a new one for the export",
           path_.c_str());
    }
  } else {
    rename_path(staging_, path_);
  }
  finished_ = true;
  sync_folder(parent_folder(path_));
}

} // namespace zero::checkpoint

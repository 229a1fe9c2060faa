// SPDX-License-Identifier: BSD-3-Clause
#include "plan/safetensors_header.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "plan/checked_json.h"

namespace zero::plan {
namespace {

using Number = unsigned long long;
constexpr uint64_t kLengthBytes = 8;

// What the sentences about one entry start with.
struct Where {
  const std::string& file;
  const std::string& tensor;
  uint64_t offset; // in the file
};

[[noreturn]] void refuse(const Where& where, const std::string& what) {
  fail(ZERO_ERR_FILE_FORMAT, "file \"%s\", offset %llu: tensor \"%s\": %s", where.file.c_str(),
       static_cast<Number>(where.offset), where.tensor.c_str(), what.c_str());
}

bool is_integer(const Json::Value& value) {
  return value.type() == Json::uintValue || (value.type() == Json::intValue && value >= 0);
}

zero_dtype read_dtype(const Json::Value& entry, const Where& where) {
  static const std::pair<const char*, zero_dtype> known[] = {
      {"F32", ZERO_DTYPE_FP32}, {"F16", ZERO_DTYPE_FP16},  {"BF16", ZERO_DTYPE_BF16},
      {"F64", ZERO_DTYPE_FP64}, {"I64", ZERO_DTYPE_INT64}, {"I32", ZERO_DTYPE_INT32},
      {"U8", ZERO_DTYPE_UINT8}, {"BOOL", ZERO_DTYPE_UINT8}};
  if (!entry.isMember("dtype") || !entry["dtype"].isString()) {
    refuse(where, "expected a dtype, a text such as \"F32\"");
  }
  const std::string name = entry["dtype"].asString();
  for (const auto& [text, dtype] : known) {
    if (name == text) return dtype;
  }
  fail(ZERO_ERR_UNSUPPORTED,
       "file \"%s\", offset %llu: tensor \"%s\": dtype is \"%s\", expected F32, F16, BF16, F64, "
       "I64, I32, U8 or BOOL",
       where.file.c_str(), static_cast<Number>(where.offset), where.tensor.c_str(), name.c_str());
}

std::vector<int64_t> read_shape(const Json::Value& entry, const Where& where) {
  if (!entry.isMember("shape") || !entry["shape"].isArray()) {
    refuse(where, "expected a shape, a list of sizes");
  }
  std::vector<int64_t> shape;
  for (const Json::Value& extent : entry["shape"]) {
    if (!is_integer(extent) || extent.asUInt64() > static_cast<uint64_t>(INT64_MAX)) {
      refuse(where, format("shape[%zu] is not an integer from 0 to 2^63-1", shape.size()));
    }
    shape.push_back(static_cast<int64_t>(extent.asUInt64()));
  }
  return shape;
}

uint64_t size_in_bytes(const TensorEntry& tensor, const Where& where) {
  uint64_t bytes = dtype_bytes(tensor.dtype);
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      refuse(where, "its shape has more bytes than 64 bits count");
    }
  }
  return bytes;
}

TensorEntry read_entry(const std::string& name, const Json::Value& entry, uint64_t data_bytes,
                       const Where& where) {
  if (!entry.isObject()) refuse(where, "expected an object with dtype, shape and data_offsets");
  TensorEntry tensor;
  tensor.name = name;
  tensor.dtype = read_dtype(entry, where);
  tensor.shape = read_shape(entry, where);
  if (!entry.isMember("data_offsets") || !entry["data_offsets"].isArray() ||
      entry["data_offsets"].size() != 2 || !is_integer(entry["data_offsets"][0]) ||
      !is_integer(entry["data_offsets"][1])) {
    refuse(where, "expected data_offsets, a list of two integers");
  }
  tensor.begin = entry["data_offsets"][0].asUInt64();
  tensor.end = entry["data_offsets"][1].asUInt64();
  const uint64_t bytes = size_in_bytes(tensor, where);
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    refuse(where, format("data_offsets are [%llu, %llu], expected begin <= end <= %llu, the bytes "
                         "behind the header",
                         static_cast<Number>(tensor.begin), static_cast<Number>(tensor.end),
                         static_cast<Number>(data_bytes)));
  }
  if (tensor.end - tensor.begin != bytes) {
    refuse(where,
           format("data_offsets hold %llu bytes, but shape and dtype need %llu",
                  static_cast<Number>(tensor.end - tensor.begin), static_cast<Number>(bytes)));
  }
  return tensor;
}

// Whatever is no text says nothing here.
void read_metadata(const Json::Value& entry, SafetensorsHeader* header) {
  if (!entry.isObject()) return;
  for (auto text = entry.begin(); text != entry.end(); ++text) {
    if (text->isString()) header->metadata.emplace_back(text.name(), text->asString());
  }
}

// Sorted by their data, tensors must follow one another without a gap, up to the file's end.
void check_cover(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& file) {
  uint64_t end = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != end) {
      refuse(Where{file, tensor.name, header.data_offset + tensor.begin},
             format("its data %s the tensor before it: begins at %llu, expected %llu",
                    tensor.begin < end ? "overlaps" : "leaves a hole behind",
                    static_cast<Number>(tensor.begin), static_cast<Number>(end)));
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    fail(ZERO_ERR_FILE_FORMAT,
         "file \"%s\", offset %llu: %llu bytes belong to no tensor, expected the file to end there",
         file.c_str(), static_cast<Number>(header.data_offset + end),
         static_cast<Number>(data_bytes - end));
  }
}

} // namespace

uint64_t safetensors_header_bytes(std::string_view first_8_bytes, uint64_t file_bytes,
                                  const std::string& file) {
  if (first_8_bytes.size() < kLengthBytes || file_bytes < kLengthBytes) {
    fail(ZERO_ERR_FILE_FORMAT,
         "file \"%s\": it has %llu bytes, expected at least the 8 that say the header's length",
         file.c_str(), static_cast<Number>(file_bytes));
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(first_8_bytes[i]);
  }
  const uint64_t most = std::min(file_bytes - kLengthBytes, kLargestSafetensorsHeader);
  if (length > most) {
    fail(ZERO_ERR_FILE_FORMAT,
         "file \"%s\", offset 0: the header's length is %llu, expected at most %llu (the file has "
         "%llu bytes)",
         file.c_str(), static_cast<Number>(length), static_cast<Number>(most),
         static_cast<Number>(file_bytes));
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& file) {
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + json.size();
  if (header.data_offset > file_bytes) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": the header ends at %llu, but the file has %llu bytes",
         file.c_str(), static_cast<Number>(header.data_offset), static_cast<Number>(file_bytes));
  }
  const uint64_t data_bytes = file_bytes - header.data_offset;
  const Json::Value root = parse_checked_json(json, file, kLengthBytes);
  if (!root.isObject()) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\", offset 8: the header is no JSON object", file.c_str());
  }
  for (auto entry = root.begin(); entry != root.end(); ++entry) {
    const std::string name = entry.name();
    if (name == "__metadata__") {
      read_metadata(*entry, &header);
      continue;
    }
    const Where where{file, name, kLengthBytes + static_cast<uint64_t>(entry->getOffsetStart())};
    header.tensors.push_back(read_entry(name, *entry, data_bytes, where));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  check_cover(header, data_bytes, file);
  return header;
}

SafetensorsHeader read_safetensors_header(const std::string& path) {
  std::error_code code;
  const uint64_t file_bytes = std::filesystem::file_size(path, code);
  if (code) fail_os(code.value(), "file \"%s\": its size cannot be read", path.c_str());
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_os(errno, "file \"%s\" cannot be opened", path.c_str());
  std::string text(kLengthBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  const uint64_t length = safetensors_header_bytes(text, file_bytes, path);
  std::string json(length, '\0');
  in.read(json.data(), static_cast<std::streamsize>(length));
  if (static_cast<uint64_t>(in.gcount()) != length) {
    fail(ZERO_ERR_IO, "file \"%s\": %llu of the header's %llu bytes could be read", path.c_str(),
         static_cast<Number>(in.gcount()), static_cast<Number>(length));
  }
  return parse_safetensors_header(json, file_bytes, path);
}

} // namespace zero::plan

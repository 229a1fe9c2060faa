// A model from files: a list, a safetensors file, an index of several, or a folder of them.
// SPDX-License-Identifier: BSD-3-Clause
#include <json/value.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <system_error>

#include "base/dtype.h"
#include "base/error.h"
#include "plan/checked_json.h"
#include "plan/model_list.h"
#include "plan/parameter_table.h"
#include "plan/safetensors_header.h"

namespace zero::plan {
namespace {

namespace fs = std::filesystem;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr uint64_t kLargestText = uint64_t{1} << 30;

std::string read_text(const std::string& path) {
  std::error_code code;
  const uint64_t bytes = fs::file_size(path, code);
  if (code) fail_os(code.value(), "file \"%s\": its size cannot be read", path.c_str());
  if (bytes > kLargestText) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": it has %llu bytes, expected a text of at most %llu",
         path.c_str(), static_cast<unsigned long long>(bytes),
         static_cast<unsigned long long>(kLargestText));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_os(errno, "file \"%s\" cannot be opened", path.c_str());
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) fail(ZERO_ERR_IO, "file \"%s\" cannot be read", path.c_str());
  return text;
}

// Floating-point tensors are trained; what cannot be (fp64, integers) are buffers.
void add_tensor(ParameterTable& table, const TensorEntry& tensor, const std::string& file) {
  Parameter parameter;
  parameter.name = tensor.name;
  parameter.shape = tensor.shape;
  parameter.dtype = tensor.dtype;
  const bool trainable = tensor.dtype == ZERO_DTYPE_FP32 || is_16_bit_float(tensor.dtype);
  parameter.role = trainable ? ZERO_PARAM_TRAINED : ZERO_PARAM_BUFFER;
  try {
    table.add(std::move(parameter));
  } catch (const Error& error) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": %s", file.c_str(), error.message().c_str());
  }
}

void add_file(ParameterTable& table, const std::string& path) {
  for (const TensorEntry& tensor : read_safetensors_header(path).tensors) {
    add_tensor(table, tensor, path);
  }
}

// "weight_map": which file has which tensor.
ParameterTable load_index(const std::string& path) {
  const Json::Value root = parse_checked_json(read_text(path), path, 0);
  if (!root.isObject() || !root.isMember("weight_map") || !root["weight_map"].isObject()) {
    fail(ZERO_ERR_FILE_FORMAT,
         "file \"%s\": expected an object with \"weight_map\", an object of file names",
         path.c_str());
  }
  const Json::Value& map = root["weight_map"];
  std::map<std::string, std::set<std::string>> names_by_file;
  for (auto entry = map.begin(); entry != map.end(); ++entry) {
    const std::string name = entry.name();
    const std::string file = entry->isString() ? entry->asString() : "";
    if (file.empty() || file == "." || file == ".." ||
        file.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\", offset %lld: weight_map of \"%s\" is \"%s\", expected the name of a file "
           "in the same folder",
           path.c_str(), static_cast<long long>(entry->getOffsetStart()), name.c_str(),
           file.c_str());
    }
    names_by_file[file].insert(name);
  }
  ParameterTable table;
  for (auto& [file, names] : names_by_file) {
    const std::string piece = (fs::path(path).parent_path() / file).string();
    for (const TensorEntry& tensor : read_safetensors_header(piece).tensors) {
      if (names.erase(tensor.name) == 1) add_tensor(table, tensor, piece);
    }
    if (!names.empty()) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": weight_map says that \"%s\" is in \"%s\", but it is not", path.c_str(),
           names.begin()->c_str(), piece.c_str());
    }
  }
  return table;
}

ParameterTable load_folder(const std::string& path) {
  const std::string index = (fs::path(path) / kIndexName).string();
  if (fs::exists(index)) return load_index(index);
  std::vector<std::string> files;
  std::error_code code;
  for (fs::directory_iterator it(path, code), end; !code && it != end; it.increment(code)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path().string());
  }
  if (code) fail_os(code.value(), "folder \"%s\" cannot be read", path.c_str());
  if (files.empty()) {
    fail(ZERO_ERR_NOT_FOUND, "folder \"%s\": expected %s or a file that ends in .safetensors",
         path.c_str(), kIndexName);
  }
  std::sort(files.begin(), files.end());
  ParameterTable table;
  for (const std::string& file : files) add_file(table, file);
  return table;
}

} // namespace

ParameterTable load_parameter_table(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found) {
    fail(ZERO_ERR_NOT_FOUND, "model \"%s\": there is no such file or folder", path.c_str());
  }
  if (code) fail_os(code.value(), "model \"%s\" cannot be read", path.c_str());
  if (fs::is_directory(status)) return load_folder(path);
  if (!fs::is_regular_file(status)) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "model \"%s\": expected a file or a folder", path.c_str());
  }
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".safetensors") {
    ParameterTable table;
    add_file(table, path);
    return table;
  }
  if (extension == ".json") return load_index(path);
  return parse_model_list(read_text(path), path);
}

} // namespace zero::plan

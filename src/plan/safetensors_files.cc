// SPDX-License-Identifier: BSD-3-Clause
#include "plan/safetensors_files.h"

#include <json/value.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <unordered_map>

#include "base/error.h"
#include "plan/checked_json.h"

namespace zero::plan {
namespace {

namespace fs = std::filesystem;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr uint64_t kLargestText = uint64_t{1} << 30;

class Collector {
 public:
  void add_file(const std::string& path, std::set<std::string>* named) {
    SafetensorsHeader header = read_safetensors_header(path);
    SafetensorsFiles::File file;
    file.path = path;
    file.data_offset = header.data_offset;
    for (TensorEntry& tensor : header.tensors) {
      if (named != nullptr && named->erase(tensor.name) == 0) continue;
      if (!names_.insert(tensor.name).second) {
        fail(ZERO_ERR_FILE_FORMAT,
             "file \"%s\": tensor \"%s\": its name is taken by one of another file", path.c_str(),
             tensor.name.c_str());
      }
      file.tensors.push_back(std::move(tensor));
    }
    for (auto& text : header.metadata) metadata_.insert(std::move(text));
    result_.files.push_back(std::move(file));
  }

  // Chains end at a tensor.
  SafetensorsFiles take() {
    for (const auto& [alias, said] : metadata_) {
      std::string owner = said;
      for (size_t hops = 0; names_.count(owner) == 0 && hops < 8; ++hops) {
        const auto next = metadata_.find(owner);
        if (next == metadata_.end()) break;
        owner = next->second;
      }
      if (names_.count(alias) == 0 && names_.count(owner) != 0) {
        result_.aliases.emplace_back(alias, owner);
      }
    }
    return std::move(result_);
  }

 private:
  SafetensorsFiles result_;
  std::set<std::string> names_;
  std::map<std::string, std::string> metadata_;
};

// "weight_map": which file has which tensor.
void add_index(Collector* collector, const std::string& path) {
  const Json::Value root = parse_checked_json(read_model_text(path), path, 0);
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
  for (auto& [file, names] : names_by_file) {
    const std::string piece = (fs::path(path).parent_path() / file).string();
    collector->add_file(piece, &names);
    if (!names.empty()) {
      fail(ZERO_ERR_FILE_FORMAT,
           "file \"%s\": weight_map says that \"%s\" is in \"%s\", but it is not", path.c_str(),
           names.begin()->c_str(), piece.c_str());
    }
  }
}

void add_folder(Collector* collector, const std::string& path) {
  const std::string index = (fs::path(path) / kIndexName).string();
  if (fs::exists(index)) {
    add_index(collector, index);
    return;
  }
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
  for (const std::string& file : files) collector->add_file(file, nullptr);
}

} // namespace

std::string read_model_text(const std::string& path) {
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

SafetensorsFiles read_safetensors_files(const std::string& path) {
  Collector collector;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found) {
    fail(ZERO_ERR_NOT_FOUND, "weights \"%s\": there is no such file or folder", path.c_str());
  }
  if (code) fail_os(code.value(), "weights \"%s\" cannot be read", path.c_str());
  if (fs::is_directory(status)) {
    add_folder(&collector, path);
  } else if (fs::path(path).extension() == ".json") {
    add_index(&collector, path);
  } else {
    collector.add_file(path, nullptr);
  }
  return collector.take();
}

} // namespace zero::plan

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/deepspeed_files.h"

#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace zero::checkpoint {
namespace {

constexpr uint64_t kLargestTag = 4096;
constexpr std::string_view kModel = "_model_states.pt";
constexpr std::string_view kOptimizer = "_optim_states.pt";

bool take(std::string_view* text, std::string_view word) {
  if (text->substr(0, word.size()) != word) return false;
  text->remove_prefix(word.size());
  return true;
}

std::optional<int32_t> take_number(std::string_view* text) {
  size_t digits = 0;
  int32_t value = 0;
  while (digits < text->size() && digits < 7 && (*text)[digits] >= '0' && (*text)[digits] <= '9') {
    value = value * 10 + ((*text)[digits++] - '0');
  }
  if (digits == 0) return std::nullopt;
  text->remove_prefix(digits);
  return value;
}

struct Name {
  int32_t data_rank = -1; // -1: mp_rank_00_model_states.pt
  bool is_model = false;
};

// Of a file that belongs to a checkpoint; nothing for another one.
std::optional<Name> parse(const std::string& folder, std::string_view text) {
  const std::string whole(text);
  const bool is_model =
      text.size() > kModel.size() && text.substr(text.size() - kModel.size()) == kModel;
  const bool is_optimizer =
      text.size() > kOptimizer.size() && text.substr(text.size() - kOptimizer.size()) == kOptimizer;
  if (!is_model && !is_optimizer) return std::nullopt;
  Name name;
  name.is_model = is_model;
  if (!take(&text, "bf16_")) take(&text, "fp16_");
  if (take(&text, "zero_pp_rank_")) {
    const std::optional<int32_t> rank = take_number(&text);
    if (rank) name.data_rank = *rank;
    take(&text, "_");
  }
  std::optional<int32_t> model_rank;
  if (take(&text, "mp_rank_")) model_rank = take_number(&text);
  const bool known =
      model_rank && (text == kModel || text == kOptimizer) && (is_model || name.data_rank >= 0);
  if (!known || *model_rank != 0) {
    fail(ZERO_ERR_UNSUPPORTED,
         "file \"%s\": experts and model parallel checkpoints are not read, expected "
         "mp_rank_00_model_states.pt and [bf16_]zero_pp_rank_N_mp_rank_00_optim_states.pt",
         join_path(folder, whole).c_str());
  }
  return name;
}

// 0, 1, 2, ... without a gap; their numbers count, not their names.
std::vector<std::string> in_order(const std::map<int32_t, std::string>& by_rank,
                                  const std::string& folder, const char* what) {
  std::vector<std::string> files;
  for (const auto& [rank, file] : by_rank) {
    if (rank != static_cast<int32_t>(files.size())) {
      throw Error(
          ZERO_ERR_FILE_INCOMPLETE,
          format("folder \"%s\": the %s file of rank %zu is missing, there is one of rank %d",
                 folder.c_str(), what, files.size(), rank),
          static_cast<int32_t>(files.size()));
    }
    files.push_back(join_path(folder, file));
  }
  return files;
}

bool has_model_file(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    if (name.size() > kModel.size() && name.substr(name.size() - kModel.size()) == kModel) {
      return true;
    }
  }
  return false;
}

std::string tag_folder(const std::string& folder) {
  std::string latest = join_path(folder, "latest");
  const std::string universal = join_path(folder, "latest_universal");
  if (path_info(folder).kind != PathKind::kFolder) {
    fail(ZERO_ERR_NOT_FOUND, "folder \"%s\" does not exist, expected a DeepSpeed checkpoint",
         folder.c_str());
  }
  if (has_model_file(folder)) return folder;
  if (path_info(latest).kind == PathKind::kAbsent && path_info(universal).kind == PathKind::kFile) {
    latest = universal;
  }
  if (path_info(latest).kind != PathKind::kFile) {
    fail(ZERO_ERR_NOT_FOUND,
         "file \"%s\" does not exist, expected it to name the tag (or give the tag's own folder)",
         latest.c_str());
  }
  std::string tag = read_file(latest, kLargestTag);
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) {
    tag.pop_back();
  }
  if (tag.empty() || tag == "." || tag == ".." ||
      tag.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
    fail(ZERO_ERR_FILE_FORMAT,
         "file \"%s\": it says \"%s\", expected the name of a folder beside it", latest.c_str(),
         tag.c_str());
  }
  const std::string named = join_path(folder, tag);
  if (path_info(named).kind != PathKind::kFolder) {
    fail(ZERO_ERR_NOT_FOUND, "folder \"%s\" does not exist, but file \"%s\" names it",
         named.c_str(), latest.c_str());
  }
  return named;
}

} // namespace

DeepSpeedFiles find_deepspeed_files(const std::string& folder) {
  DeepSpeedFiles files;
  files.folder = tag_folder(folder);
  std::map<int32_t, std::string> models;
  std::map<int32_t, std::string> optimizers;
  for (const std::string& file : list_folder(files.folder)) {
    const std::optional<Name> name = parse(files.folder, file);
    if (!name) continue;
    const int32_t rank = name->data_rank < 0 ? 0 : name->data_rank;
    if (!(name->is_model ? models : optimizers).emplace(rank, file).second) {
      throw Error(
          ZERO_ERR_FILE_INCOMPLETE,
          format("folder \"%s\": there are two %s files of rank %d, \"%s\" is one of them",
                 files.folder.c_str(), name->is_model ? "model" : "optimizer", rank, file.c_str()),
          rank);
    }
  }
  if (models.empty()) {
    fail(ZERO_ERR_NOT_FOUND, "folder \"%s\" holds no file that ends in %s, expected one",
         files.folder.c_str(), std::string(kModel).c_str());
  }
  files.models = in_order(models, files.folder, "model");
  files.optimizers = in_order(optimizers, files.folder, "optimizer");
  const std::string universal = join_path(files.folder, "zero");
  if (path_info(universal).kind == PathKind::kFolder) {
    if (!files.optimizers.empty()) {
      fail(ZERO_ERR_FILE_FORMAT,
           "folder \"%s\" holds both \"zero\", as a universal checkpoint, and optimizer files of "
           "ranks, expected one of them",
           files.folder.c_str());
    }
    files.universal = universal;
    files.optimizers.push_back(join_path(universal, "optimizer_state.pt"));
  }
  return files;
}

} // namespace zero::checkpoint

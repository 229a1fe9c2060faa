// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_model.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "cli/last_error.h"

namespace zero::cli {
namespace {

bool is_true(const zero_config* config, const char* key) {
  return config_value(config, key) == "true";
}

ModelCounts count(const zero_model* model) {
  ModelCounts counts;
  counts.tensors = zero_model_param_count(model);
  std::unordered_map<std::string, uint64_t> modules;
  zero_param_info info;
  zero_param_info_init(&info, sizeof info);
  for (int32_t i = 0; i < counts.tensors; ++i) {
    if (zero_model_param_at(model, i, &info) != ZERO_OK) continue;
    if (info.tied_to >= 0 || info.role == ZERO_PARAM_BUFFER) continue;
    counts.parameters += info.elements;
    if (info.role == ZERO_PARAM_TRAINED) {
      counts.trained += info.elements;
      if (info.dimensions >= 2) counts.matrices += info.elements;
    }
    counts.largest = std::max(counts.largest, info.elements);
    const char* dot = std::strrchr(info.name, '.');
    const size_t length = dot == nullptr ? 0 : static_cast<size_t>(dot - info.name);
    uint64_t& module = modules[std::string(info.name, length)];
    module += info.elements;
    counts.largest_layer = std::max(counts.largest_layer, module);
  }
  return counts;
}

} // namespace

bool load_model(const std::string& path, const std::string& dtype, const zero_config* config,
                PlannedModel* model, std::string* error) {
  zero_model* loaded = nullptr;
  if (zero_model_load(path.c_str(), &loaded) != ZERO_OK) {
    *error = last_error_text();
    return false;
  }
  model->file = path;
  model->model.reset(loaded, zero_model_destroy);
  std::string name = dtype;
  if (dtype == "config") {
    name = is_true(config, "fp16.enabled")   ? "fp16"
           : is_true(config, "bf16.enabled") ? "bf16"
                                             : "fp32";
  }
  model->dtype = name == "file" ? "as in the file" : name;
  if (name != "file") {
    const zero_dtype type = name == "fp16"   ? ZERO_DTYPE_FP16
                            : name == "bf16" ? ZERO_DTYPE_BF16
                                             : ZERO_DTYPE_FP32;
    if (zero_model_cast(loaded, type) != ZERO_OK) {
      *error = last_error_text();
      return false;
    }
  }
  model->counts = count(loaded);
  return true;
}

} // namespace zero::cli

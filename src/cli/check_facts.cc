// One row a fact.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/check_facts.h"

#include <json/json.h>

#include <fstream>

namespace zero::cli {
namespace {

bool take_integer(const Json::Value& value, int64_t* place) {
  if (!value.isNumeric() || value.isBool() || !value.isInt64() || value.asInt64() < 0) return false;
  *place = value.asInt64();
  return true;
}

bool take_number(const Json::Value& value, double* place) {
  if (!value.isNumeric() || value.isBool()) return false;
  *place = value.asDouble();
  return true;
}

// The two precision facts together decide one element type.
bool take_precision(const Json::Value& value, zero_dtype dtype, zero_config_facts* facts) {
  if (!value.isBool()) return false;
  if (value.asBool()) facts->compute_dtype = dtype;
  if (facts->compute_dtype == 0) facts->compute_dtype = ZERO_DTYPE_FP32;
  return true;
}

bool take_betas(const Json::Value& value, zero_config_facts* facts) {
  return value.isArray() && value.size() == 2 && take_number(value[0], &facts->beta1) &&
         take_number(value[1], &facts->beta2);
}

bool take_world(const Json::Value& value, zero_config_facts* facts) {
  int64_t world = 0;
  if (!take_integer(value, &world) || world < 1 || world > INT32_MAX) return false;
  facts->world_size = static_cast<int32_t>(world);
  return true;
}

constexpr char kKnown[] =
    "world_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps, gradient_clipping, "
    "fp16, bf16, learning_rate, betas, epsilon, weight_decay, warmup_steps, total_steps, "
    "hidden_size";

// 1: taken, 0: unknown, -1: of the wrong kind.
int take(const std::string& name, const Json::Value& value, zero_config_facts* facts) {
  const auto answer = [](bool taken) { return taken ? 1 : -1; };
  if (name == "world_size") return answer(take_world(value, facts));
  if (name == "train_micro_batch_size_per_gpu") {
    return answer(take_integer(value, &facts->micro_batch_size));
  }
  if (name == "gradient_accumulation_steps") {
    return answer(take_integer(value, &facts->accumulation_steps));
  }
  if (name == "warmup_steps") return answer(take_integer(value, &facts->warmup_steps));
  if (name == "total_steps") return answer(take_integer(value, &facts->total_steps));
  if (name == "hidden_size") return answer(take_integer(value, &facts->hidden_size));
  if (name == "gradient_clipping") return answer(take_number(value, &facts->gradient_clipping));
  if (name == "learning_rate") return answer(take_number(value, &facts->learning_rate));
  if (name == "epsilon") return answer(take_number(value, &facts->epsilon));
  if (name == "weight_decay") return answer(take_number(value, &facts->weight_decay));
  if (name == "betas") return answer(take_betas(value, facts));
  if (name == "fp16") return answer(take_precision(value, ZERO_DTYPE_FP16, facts));
  if (name == "bf16") return answer(take_precision(value, ZERO_DTYPE_BF16, facts));
  return 0;
}

} // namespace

bool read_facts(const std::string& path, zero_config_facts* facts, std::string* error) {
  std::ifstream file(path);
  Json::Value root;
  std::string report;
  Json::CharReaderBuilder builder;
  if (!file) {
    *error = "cannot open " + path;
    return false;
  }
  try {
    if (!Json::parseFromStream(builder, file, &root, &report) || !root.isObject()) {
      *error = path + " holds no JSON object: " + report;
      return false;
    }
  } catch (const Json::Exception& exception) {
    *error = path + ": " + exception.what();
    return false;
  }
  for (const std::string& name : root.getMemberNames()) {
    const Json::Value& value = root[name];
    const int taken = value.isNull() ? 1 : take(name, value, facts);
    if (taken > 0) continue;
    *error = path + ": " + name +
             (taken == 0 ? std::string(" is no fact, expected some of ") + kKnown
                         : std::string(" has a value that does not fit it"));
    return false;
  }
  if (root["fp16"].isBool() && root["bf16"].isBool() && root["fp16"].asBool() &&
      root["bf16"].asBool()) {
    *error = path + ": fp16 and bf16 are both true, expected one of them";
    return false;
  }
  return true;
}

} // namespace zero::cli

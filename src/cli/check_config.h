// A judged config file, read through zero.h alone.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zero::cli {

struct Finding {
  bool is_error = false;
  int32_t line = 0;
  int32_t column = 0;
  std::string key;
  std::string value;
  std::string message;
  std::string suggestion;
};

struct EffectiveValue {
  std::string key;
  std::string json; // the value as JSON text
  std::string from;
};

enum class Verdict { kAccept, kWarn, kReject };

struct CheckedConfig {
  Verdict verdict = Verdict::kReject;
  int32_t world_size = -1; // -1: not known
  std::vector<Finding> findings;
  std::vector<EffectiveValue> values; // none where the text could not be read
  std::string notes = "[]"; // JSON lists of strings
  std::string not_in_this_build = "[]";
  std::shared_ptr<zero_config> config; // null where the text could not be read
};

CheckedConfig check_file(const std::string& path, const zero_config_facts& facts);

const char* verdict_name(Verdict verdict);

// The value of a key as JSON text, "" for an unknown key.
std::string config_value(const zero_config* config, const char* key);

} // namespace zero::cli

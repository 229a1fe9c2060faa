// Shared by the tests of src/config: reading a text, finding findings, catching errors.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "base/error.h"
#include "config/config.h"

// After ours: cmocka has a macro named fail.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

namespace config_help {

inline zero_config_facts no_facts() {
  zero_config_facts facts;
  std::memset(&facts, 0, sizeof facts);
  facts.struct_size = sizeof facts;
  facts.world_size = -1;
  facts.micro_batch_size = facts.accumulation_steps = facts.hidden_size = -1;
  facts.warmup_steps = facts.total_steps = -1;
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  facts.learning_rate = facts.beta1 = facts.beta2 = facts.epsilon = unknown;
  facts.weight_decay = facts.gradient_clipping = unknown;
  return facts;
}

// A config with a batch size, so that nothing but `body` can be wrong.
inline zero::config::Config config_of(const std::string& body) {
  return zero::config::Config::load_text("{\"train_batch_size\": 8" +
                                         (body.empty() ? "" : ", " + body) + "}");
}

inline zero::config::Settings settings_of(const std::string& body) {
  return config_of(body).settings();
}

// The finding whose key or message has `word`; nullptr where there is none.
inline const zero::config::Diagnostic* find(const zero::config::Config& config, bool is_error,
                                            const std::string& word) {
  for (const zero::config::Diagnostic& one : config.diagnostics()) {
    const bool has = one.key == word || one.message.find(word) != std::string::npos;
    if (has && one.is_error == is_error) return &one;
  }
  return nullptr;
}

inline int count(const zero::config::Config& config, bool is_error) {
  int n = 0;
  for (const zero::config::Diagnostic& one : config.diagnostics()) n += one.is_error == is_error;
  return n;
}

// The status and sentence of what `call` throws; ZERO_OK where it does not.
struct Caught {
  zero_status status = ZERO_OK;
  std::string message;
};
inline Caught caught(const std::function<void()>& call) {
  try {
    call();
  } catch (const zero::Error& error) {
    return {error.status(), error.message()};
  }
  return {};
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Fails with the text in the log.
inline void assert_has(const std::string& text, const std::string& part) {
  if (!has(text, part)) fail_msg("\"%s\" is not in \"%s\"", part.c_str(), text.c_str());
}

// The one error of a body, which names `key`; its status comes back.
inline zero_status only_error(const std::string& body, const std::string& key) {
  zero::config::Config config = config_of(body);
  const zero_status status = config.check();
  if (count(config, true) != 1) fail_msg("%s: %d errors", body.c_str(), count(config, true));
  if (find(config, true, key) == nullptr)
    fail_msg("%s: no error names %s", body.c_str(), key.c_str());
  return status;
}

inline void assert_value_refused(const std::string& body, const std::string& key) {
  assert_int_equal(only_error(body, key), ZERO_ERR_CONFIG_VALUE);
}

inline std::string zero_key(const std::string& pair) {
  return "\"zero_optimization\": {" + pair + "}";
}
inline std::string adamw(const std::string& params) {
  return "\"optimizer\": {\"type\": \"AdamW\", \"params\": {" + params + "}}";
}

} // namespace config_help

// Whatever bytes come in, the reader answers with a Config or with one Error; a Config answers
// every question, and its own text reads back as the same config.
// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/config.h"

namespace {

using zero::config::Config;

void demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

zero_config_facts some_facts() {
  zero_config_facts facts;
  std::memset(&facts, 0, sizeof facts);
  facts.struct_size = sizeof facts;
  facts.world_size = 8;
  facts.micro_batch_size = 4;
  facts.accumulation_steps = 2;
  facts.hidden_size = 1024;
  facts.warmup_steps = 100;
  facts.total_steps = 1000;
  facts.learning_rate = 2e-5;
  facts.beta1 = 0.9;
  facts.beta2 = 0.999;
  facts.epsilon = 1e-8;
  facts.weight_decay = 0.01;
  facts.gradient_clipping = 1;
  facts.compute_dtype = ZERO_DTYPE_BF16;
  return facts;
}

void ask_everything(Config* config) {
  const zero_status status = config->check();
  bool has_error = false;
  bool stops_a_runtime = false;
  for (const auto& finding : config->diagnostics()) {
    demand(!finding.message.empty(), "a finding without a message");
    demand(finding.line >= 0 && finding.column >= 0, "a place in the file");
    has_error = has_error || finding.is_error;
    stops_a_runtime = stops_a_runtime || (finding.is_error && !finding.concerns_samples_only);
  }
  demand(has_error == (status != ZERO_OK), "the status is that of the first error");
  bool has_settings = true;
  try {
    config->settings();
  } catch (const zero::Error& error) {
    demand(error.status() != ZERO_OK && error.message()[0] != '\0', "an error says why");
    has_settings = false;
  }
  demand(has_settings != stops_a_runtime, "settings exist exactly without errors");
}

// A key that the file's optimizer or schedule does not read; its text leaves it out.
bool has_no_effect(const Config& config, const char* key) {
  for (const auto& finding : config.diagnostics()) {
    const bool is_said = finding.message.find(": has no effect with ") != std::string::npos;
    if (finding.key == key && !finding.is_error && is_said) return true;
  }
  return false;
}

void read_back(const Config& config) {
  const std::string text = config.text();
  const Config again = Config::load_text(text); // a throw from here ends the fuzzer
  for (int32_t i = 0; i < zero::config::option_count(); ++i) {
    zero_option_info info;
    zero::config::option_at(i, &info);
    if (config.value(info.key) == again.value(info.key)) continue;
    demand(has_no_effect(config, info.key), info.key);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Config config;
  try {
    config = Config::load_text(text);
  } catch (const zero::Error& error) {
    demand(error.status() == ZERO_ERR_CONFIG_SYNTAX, "only the syntax is judged while reading");
    return 0;
  }
  ask_everything(&config);
  config.fill_auto(some_facts());
  ask_everything(&config);
  read_back(config);
  return 0;
}

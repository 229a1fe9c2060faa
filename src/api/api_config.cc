// zero.h, section 3: configuration.
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "api/growing.h"
#include "api/handles.h"
#include "engine/settings_inputs.h"

using namespace zero::api; // the C functions below are outside of any namespace
using zero::fail;
using zero::config::Config;

zero_status zero_config_create(zero_config** config) {
  return guard([&] {
    require(config, "config");
    *config = new zero_config{Config()};
  });
}

zero_status zero_config_load_file(const char* path, zero_config** config) {
  return guard([&] {
    require(path, "path");
    require(config, "config");
    *config = new zero_config{Config::load_file(path)};
  });
}

zero_status zero_config_load_text(const char* text, uint64_t length, zero_config** config) {
  return guard([&] {
    require(text, "text");
    require(config, "config");
    *config = new zero_config{Config::load_text(std::string_view(text, length))};
  });
}

void zero_config_destroy(zero_config* config) {
  delete config;
}

zero_status zero_config_set(zero_config* config, const char* key, const char* value) {
  return guard([&] {
    require(config, "config");
    require(key, "key");
    require(value, "value");
    config->config.set(key, value);
  });
}

zero_status zero_config_get(const zero_config* config, const char* key, char* buffer,
                            uint64_t capacity, uint64_t* length) {
  return guard([&] {
    require(config, "config");
    require(key, "key");
    write_text(config->config.value(key), buffer, capacity, length);
  });
}

const char* zero_config_origin(const zero_config* config, const char* key) {
  const char* origin = nullptr;
  guard([&] {
    require(config, "config");
    require(key, "key");
    origin = config->config.origin(key);
  });
  return origin == nullptr ? "" : origin;
}

void zero_config_facts_init(zero_config_facts* facts, uint32_t struct_size) {
  zero_config_facts defaults{};
  defaults.world_size = -1;
  defaults.micro_batch_size = defaults.accumulation_steps = defaults.hidden_size = -1;
  defaults.warmup_steps = defaults.total_steps = -1;
  defaults.learning_rate = defaults.beta1 = defaults.beta2 = defaults.epsilon = NAN;
  defaults.weight_decay = defaults.gradient_clipping = NAN;
  init_struct(facts, struct_size, defaults);
}

zero_status zero_config_fill_auto(zero_config* config, const zero_config_facts* facts) {
  return guard([&] {
    require(config, "config");
    zero_config_facts defaults;
    zero_config_facts_init(&defaults, sizeof(defaults));
    config->config.fill_auto(read_struct(facts, "facts", defaults));
  });
}

zero_status zero_config_check(zero_config* config) {
  return guard([&] {
    require(config, "config");
    const zero_status status = config->config.check();
    if (status == ZERO_OK) return;
    std::string text;
    for (const zero::config::Diagnostic& finding : config->config.diagnostics()) {
      if (finding.is_error) text += (text.empty() ? "" : "; ") + finding.message;
    }
    throw zero::Error(status, text);
  });
}

void zero_diagnostic_init(zero_diagnostic* diagnostic, uint32_t struct_size) {
  zero_diagnostic defaults{};
  defaults.key = defaults.value = defaults.message = defaults.suggestion = "";
  init_struct(diagnostic, struct_size, defaults);
}

int32_t zero_config_diagnostic_count(const zero_config* config) {
  return config == nullptr ? 0 : static_cast<int32_t>(config->config.diagnostics().size());
}

zero_status zero_config_diagnostic_at(const zero_config* config, int32_t index,
                                      zero_diagnostic* diagnostic) {
  return guard([&] {
    require(config, "config");
    check_struct_size(diagnostic, "diagnostic");
    const auto& findings = config->config.diagnostics();
    if (index < 0 || static_cast<size_t>(index) >= findings.size()) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "index is %d, expected 0 to %zu (there are %zu)", index,
           findings.size() - 1, findings.size());
    }
    const zero::config::Diagnostic& finding = findings[static_cast<size_t>(index)];
    zero_diagnostic out{};
    out.is_error = finding.is_error ? 1 : 0;
    out.line = finding.line;
    out.column = finding.column;
    out.key = finding.key.c_str();
    out.value = finding.value.c_str();
    out.message = finding.message.c_str();
    out.suggestion = finding.suggestion.c_str();
    write_struct(diagnostic, out);
  });
}

zero_status zero_config_text(const zero_config* config, char* buffer, uint64_t capacity,
                             uint64_t* length) {
  return guard([&] {
    require(config, "config");
    write_text(config->config.text(), buffer, capacity, length);
  });
}

void zero_option_info_init(zero_option_info* info, uint32_t struct_size) {
  zero_option_info defaults{};
  defaults.key = defaults.default_value = defaults.choices = defaults.help = "";
  init_struct(info, struct_size, defaults);
}

int32_t zero_option_count(void) {
  return zero::config::option_count();
}

zero_status zero_option_at(int32_t index, zero_option_info* info) {
  return guard([&] {
    check_struct_size(info, "info");
    zero_option_info out{};
    zero::config::option_at(index, &out);
    write_struct(info, out);
  });
}

zero_status zero_schedule_at(const zero_config* config, int64_t update, double* lr,
                             double* momentum) {
  return guard([&] {
    require(config, "config");
    if (update < 1) {
      fail(ZERO_ERR_INVALID_ARGUMENT, "update is %lld, expected 1 or more",
           static_cast<long long>(update));
    }
    const zero::optim::Rates rates =
        zero::engine::scheduled_rates(config->config.settings(), update);
    if (lr != nullptr) *lr = rates.lr;
    if (momentum != nullptr) *momentum = rates.momentum;
  });
}

// One load, one fill, one check; then everything is copied out.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/check_config.h"

#include <cstdio>

#include "cli/last_error.h"

namespace zero::cli {
namespace {

// Syntax errors end in "at line L, column C".
Finding unreadable() {
  Finding finding;
  finding.is_error = true;
  finding.message = last_error_text();
  const size_t at = finding.message.rfind("at line ");
  if (at != std::string::npos) {
    std::sscanf(finding.message.c_str() + at, "at line %d, column %d", &finding.line,
                &finding.column);
  }
  return finding;
}

void copy_findings(const zero_config* config, CheckedConfig* checked) {
  for (int32_t i = 0; i < zero_config_diagnostic_count(config); ++i) {
    zero_diagnostic diagnostic;
    zero_diagnostic_init(&diagnostic, sizeof diagnostic);
    if (zero_config_diagnostic_at(config, i, &diagnostic) != ZERO_OK) break;
    checked->findings.push_back({diagnostic.is_error != 0, diagnostic.line, diagnostic.column,
                                 diagnostic.key, diagnostic.value, diagnostic.message,
                                 diagnostic.suggestion});
  }
}

void copy_values(const zero_config* config, CheckedConfig* checked) {
  for (int32_t i = 0; i < zero_option_count(); ++i) {
    zero_option_info info;
    zero_option_info_init(&info, sizeof info);
    if (zero_option_at(i, &info) != ZERO_OK) break;
    checked->values.push_back(
        {info.key, config_value(config, info.key), zero_config_origin(config, info.key)});
  }
}

} // namespace

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::kAccept ? "ACCEPT" : verdict == Verdict::kWarn ? "WARN" : "REJECT";
}

std::string config_value(const zero_config* config, const char* key) {
  uint64_t length = 0;
  const zero_status status = zero_config_get(config, key, nullptr, 0, &length);
  if (status != ZERO_ERR_BUFFER_TOO_SMALL) return "";
  std::string text(length + 1, '\0');
  if (zero_config_get(config, key, text.data(), text.size(), &length) != ZERO_OK) return "";
  text.resize(length);
  return text;
}

CheckedConfig check_file(const std::string& path, const zero_config_facts& facts) {
  CheckedConfig checked;
  checked.world_size = facts.world_size;
  zero_config* config = nullptr;
  if (zero_config_load_file(path.c_str(), &config) != ZERO_OK) {
    checked.findings.push_back(unreadable());
    return checked;
  }
  checked.config.reset(config, zero_config_destroy);
  if (zero_config_fill_auto(config, &facts) != ZERO_OK) {
    checked.findings.push_back(unreadable());
    return checked;
  }
  const bool rejected = zero_config_check(config) != ZERO_OK;
  copy_findings(config, &checked);
  copy_values(config, &checked);
  checked.notes = config_value(config, "libzero.notes");
  checked.not_in_this_build = config_value(config, "libzero.not_in_this_build");
  checked.verdict = rejected                   ? Verdict::kReject
                    : checked.findings.empty() ? Verdict::kAccept
                                               : Verdict::kWarn;
  return checked;
}

} // namespace zero::cli

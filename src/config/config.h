// A config: the text of a DeepSpeed file, values set over it, facts that fill its holes, and what
// all of it means.  Reading succeeds when the text is well-formed; check() judges what it says.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace zero::config {

struct Diagnostic {
  bool is_error = false;
  int32_t line = 0; // 1-based; 0 when no line is to blame
  int32_t column = 0;
  std::string key; // as the file spells it, dotted; "" for a finding about the whole file
  std::string value;
  std::string message; // one sentence, with what was expected
  std::string suggestion; // the nearest known key or value, or ""
  zero_status status = ZERO_ERR_CONFIG_VALUE; // of an error
  bool concerns_samples_only = false; // a runtime, which counts no samples, can do without
};

class ConfigState;

// Copyable: zero_init keeps a copy of its own.
class Config {
 public:
  Config();
  // Throw CONFIG_SYNTAX (line and column), IO, NOT_FOUND.
  static Config load_file(const std::string& path);
  static Config load_text(std::string_view text);
  Config(const Config& other);
  Config& operator=(const Config& other);
  ~Config();

  // `value` is written as in a config file.  Throws CONFIG_UNKNOWN_KEY, CONFIG_SYNTAX.
  void set(const std::string& key, const std::string& value);
  void fill_auto(const zero_config_facts& facts);
  // World size for the batch equation where neither facts nor environment say it.
  void set_world_size(int32_t world_size);

  // Judges everything and keeps all findings in file order; the status of the first error, else OK.
  zero_status check();
  const std::vector<Diagnostic>& diagnostics() const;

  // The effective value as config text (strings quoted, null where there is none), and its origin:
  // "file", "set", "facts", "derived", "default".  Throw CONFIG_UNKNOWN_KEY.  Two keys can be read
  // though no file may hold them, each a list of strings: "libzero.notes" (what was accepted and
  // has no effect here, and why), "libzero.not_in_this_build" (valid, but still to come).
  std::string value(const std::string& key) const;
  const char* origin(const std::string& key) const;
  // The whole config, defaults filled in, in a form that load_text reads back.
  std::string text() const;

  // What it means.  Calls check() on a copy first; throws the first error as an exception whose
  // message lists every error.
  Settings settings() const;

 private:
  std::unique_ptr<ConfigState> state_;
};

// The option table: one row drives reading, checking, listing and the documentation page.
int32_t option_count();
void option_at(int32_t index, zero_option_info* info); // throws INVALID_ARGUMENT

} // namespace zero::config

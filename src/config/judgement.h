// What a config means, worked out in one direction: text -> given keys -> holes filled -> defaults
// -> cross checks.  Each stage adds its findings.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/json_text.h"
#include "config/option_table.h"

namespace zero::config {

// Everything a Config was told.
struct Source {
  Document document;
  bool has_text = false; // came from a file, not from zero_config_create
  std::vector<std::pair<std::string, Node>> sets; // as spelled, later ones win
  zero_config_facts facts; // unknown where nobody said
  bool has_facts = false;
};

struct Effective {
  Node value; // canonical; null: not given and no default
  const char* origin = "default"; // file, set, facts, derived, default
  Position position;
  std::string spelled; // the key as the file has it, where it has it
  bool is_hole = false; // "auto" that nobody has filled; value is the default
};

struct Judgement {
  std::map<std::string, Effective> values; // every option, by its key
  std::set<std::string> present; // sections and options that are in the file
  std::vector<Diagnostic> diagnostics;
  std::vector<std::string> notes; // accepted, without effect here, and why
  std::vector<std::string> later; // valid, not in this build
  int32_t world_size = 0; // 0: unknown

  const Node& at(const std::string& key) const { return values.at(key).value; }
  bool truth(const std::string& key) const;
  double number(const std::string& key) const; // NaN for null
  int64_t integer(const std::string& key, int64_t otherwise) const;
  std::string text(const std::string& key) const; // "" for null
  bool given(const std::string& key) const; // somebody said so: not a default

  // Findings about a key; its place in the file comes from `values`.
  Diagnostic& warn(const std::string& key, const std::string& message);
  Diagnostic& refuse(const std::string& key, const std::string& message,
                     zero_status status = ZERO_ERR_CONFIG_VALUE);
  void derive(const std::string& key, Node value);
};

// The stages, in the order in which judge() runs them.
void read_given_keys(const Source& source, Judgement* judgement);
void fill_holes(const Source& source, Judgement* judgement);
void resolve_batch(const Source& source, Judgement* judgement);
void settle_defaults(Judgement* judgement); // those that depend on other values
void report_open_holes(Judgement* judgement);
void check_standing(const Source& source, Judgement* judgement);
void check_precision(Judgement* judgement);
void check_sharding(Judgement* judgement);
void check_optimizer(Judgement* judgement);
void check_schedule(Judgement* judgement);

Judgement judge(const Source& source);

} // namespace zero::config

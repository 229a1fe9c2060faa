// Walks the file and takes every key that the table knows; names every one that it does not.
// SPDX-License-Identifier: BSD-3-Clause
#include <map>

#include "base/error.h"
#include "config/judgement.h"
#include "config/option_value.h"

namespace zero::config {
namespace {

constexpr size_t kLongestShown = 120;
constexpr int kMostSuggestions = 100;

std::string shown(const Node& node) {
  std::string text = to_json(node);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown - 3) + "...";
  return text;
}

bool is_comment_like(const std::string& name) {
  return name.starts_with("_") || name.starts_with("//") || name.starts_with("#") ||
         name == "comment";
}

class Walker {
 public:
  explicit Walker(Judgement* judgement) : judgement_(judgement) {}

  void walk(const Node& object, const std::string& canonical, const std::string& spelled) {
    for (const auto& [name, member] : object.members) {
      const std::string dot = spelled.empty() ? "" : ".";
      take(canonical + dot + name, spelled + dot + name, name, member, canonical);
    }
  }

  // One key with its value, from the file or from zero_config_set.
  void take_set(const std::string& canonical, const std::string& spelled, const Node& node) {
    taken_.erase(canonical);
    take_option(*find_option(canonical), spelled, node, "set");
  }

 private:
  void take(const std::string& key, const std::string& spelled, const std::string& name,
            const Node& node, const std::string& section) {
    const Alias* alias = name.find('.') == std::string::npos ? find_alias(key) : nullptr;
    if (alias != nullptr) {
      take_alias(*alias, spelled, node);
      return;
    }
    take_known(key, spelled, name, node, section);
  }

  void take_alias(const Alias& alias, const std::string& spelled, const Node& node) {
    if (alias.deprecated != nullptr) {
      finding(false, spelled, node, spelled + ": " + alias.deprecated);
    }
    if (find_section(alias.target) != nullptr) {
      take_section(alias.target, spelled, node);
      return;
    }
    const Option& option = *find_option(alias.target);
    const bool becomes_device = option.kind == OptionKind::kChoice;
    if (!becomes_device) {
      take_option(option, spelled, node, "file");
      return;
    }
    const Option flag{alias.key, OptionKind::kBoolean, Standing::kActs, "false", "", 0, 0, ""};
    const Reading reading = read_value(flag, node, true);
    if (!reading.value) {
      refuse_value(spelled, node, reading);
      return;
    }
    Node device = Node::string(reading.value->truth ? "cpu" : "none");
    device.position = node.position;
    take_option(option, spelled, device, "file");
  }

  void take_known(const std::string& key, const std::string& spelled, const std::string& name,
                  const Node& node, const std::string& section) {
    const bool plain_name = name.find('.') == std::string::npos;
    const Option* option = plain_name ? find_option(key) : nullptr;
    const bool is_bare_stage = key == "zero_optimization" && !node.is(NodeKind::kObject);
    if (is_bare_stage && node.is(NodeKind::kBoolean)) {
      take_bare_stage(spelled, node);
    } else if (option != nullptr) {
      take_option(*option, spelled, node, "file");
    } else if (plain_name && find_section(key) != nullptr) {
      take_section(key, spelled, node);
    } else {
      unknown(key, spelled, name, node, section);
    }
  }

  // The form of before 2020.
  void take_bare_stage(const std::string& spelled, const Node& node) {
    finding(false, spelled, node,
            spelled + ": deprecated, a truth value means zero_optimization.stage 1 or 0");
    Node stage = Node::number(node.truth ? "1" : "0");
    stage.position = node.position;
    take_option(*find_option("zero_optimization.stage"), spelled, stage, "file");
  }

  void take_section(const std::string& key, const std::string& spelled, const Node& node) {
    if (!claim(key, spelled, node)) return;
    const Section& section = *find_section(key);
    judgement_->present.insert(key);
    if (section.regime == Regime::kFree) return;
    if (node.is(NodeKind::kObject)) {
      walk(node, key, spelled);
      return;
    }
    const size_t dot = key.rfind('.');
    const bool in_strict =
        dot != std::string::npos && find_section(key.substr(0, dot))->regime == Regime::kStrict;
    const bool is_hole = node.is(NodeKind::kText) && node.text == "auto";
    if (node.is(NodeKind::kNull) || (in_strict && is_hole)) return;
    finding(true, spelled, node, spelled + ": " + shown(node) + ", expected an object: { ... }");
  }

  void take_option(const Option& option, const std::string& spelled, const Node& node,
                   const char* origin) {
    if (!claim(option.key, spelled, node)) return;
    judgement_->present.insert(option.key);
    Effective& one = judgement_->values[option.key];
    one.position = node.position;
    one.spelled = spelled;
    if (node.is(NodeKind::kText) && node.text == "auto") {
      one.is_hole = true;
      return;
    }
    const Reading reading = read_value(option, node, is_strict(option.key));
    if (!reading.value) {
      refuse_value(spelled, node, reading);
      return;
    }
    if (!reading.warning.empty()) {
      finding(false, spelled, node, spelled + ": " + shown(node) + ", " + reading.warning);
    }
    one.is_hole = false;
    if (reading.value->is(NodeKind::kNull)) return; // as good as absent
    one.value = *reading.value;
    one.origin = origin;
  }

  static bool is_strict(const std::string& key) {
    const size_t dot = key.rfind('.');
    const Section* section = find_section(dot == std::string::npos ? "" : key.substr(0, dot));
    return section != nullptr && section->regime == Regime::kStrict;
  }

  // Two spellings of one key in a file contradict each other.
  bool claim(const std::string& key, const std::string& spelled, const Node& node) {
    const auto [at, is_new] = taken_.emplace(key, spelled);
    if (is_new) return true;
    Diagnostic& found = finding(true, spelled, node,
                                spelled + ": the file also has " + at->second +
                                    ", which means the same; expected one of them");
    found.status = ZERO_ERR_CONFIG_CONFLICT;
    return false;
  }

  void unknown(const std::string& key, const std::string& spelled, const std::string& name,
               const Node& node, const std::string& section_key) {
    const Section& section = *find_section(section_key);
    if (section.regime == Regime::kFree) return;
    if (std::string_view(section.also).find(" " + name + " ") != std::string_view::npos) return;
    if (section_key.empty() && is_comment_like(name)) {
      finding(false, spelled, node, spelled + ": ignored comment-like key");
      return;
    }
    const bool is_error = section.regime == Regime::kStrict;
    const std::string where = section_key.empty() ? "top-level key" : "key";
    std::string message = spelled + ": unknown " + where;
    // Looking for the nearest costs; a text of a million unknown keys is no misspelling.
    const bool is_worth_it = ++unknown_ <= kMostSuggestions;
    const std::string nearest = is_worth_it ? nearest_key(key) : "";
    if (!nearest.empty()) message += ", the nearest known one is " + nearest;
    if (!is_error) message += "; ignored";
    Diagnostic& found = finding(is_error, spelled, node, message);
    found.status = ZERO_ERR_CONFIG_UNKNOWN_KEY;
    found.suggestion = nearest;
  }

  void refuse_value(const std::string& spelled, const Node& node, const Reading& reading) {
    std::string message = spelled + ": " + shown(node) + ", expected " + reading.expected;
    if (reading.suggestion == "auto") message += " (a hole is written \"auto\")";
    finding(true, spelled, node, message).suggestion = reading.suggestion;
  }

  Diagnostic& finding(bool is_error, const std::string& spelled, const Node& node,
                      const std::string& message) {
    Diagnostic found;
    found.is_error = is_error;
    found.key = spelled;
    found.message = message;
    found.value = shown(node);
    found.line = node.position.line;
    found.column = node.position.column;
    judgement_->diagnostics.push_back(found);
    return judgement_->diagnostics.back();
  }

  Judgement* judgement_;
  std::map<std::string, std::string> taken_; // canonical key -> as spelled
  int unknown_ = 0;
};

} // namespace

void read_given_keys(const Source& source, Judgement* judgement) {
  Walker walker(judgement);
  walker.walk(source.document.root, "", "");
  for (const auto& [spelled, node] : source.sets) {
    const Alias* alias = find_alias(spelled);
    walker.take_set(alias != nullptr ? alias->target : spelled, spelled, node);
  }
}

} // namespace zero::config

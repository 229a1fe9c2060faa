// What was asked for and is not done: an error where the arithmetic would differ, a warning where
// only memory, speed or logging would, a note where there is nothing to do.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "config/judgement.h"
#include "config/option_value.h"

namespace zero::config {
namespace {

// Is a section switched on?  "enabled" decides; without it, anything in it that is on.
bool is_asked_for(const std::string& name, const Node& node) {
  switch (node.kind) {
    case NodeKind::kNull:
      return false;
    case NodeKind::kBoolean:
      return node.truth;
    case NodeKind::kNumber: {
      // Sizes of groups begin at 1, which is off.
      const double off = name.ends_with("_size") ? 1 : 0;
      return number_of(node.text).value_or(1) > off;
    }
    case NodeKind::kText: {
      const std::string word = lower_case(node.text);
      return !word.empty() && word != "false" && word != "none" && word != "auto" && word != "no";
    }
    case NodeKind::kArray:
      return !node.items.empty();
    case NodeKind::kObject:
      break;
  }
  for (const auto& [member_name, member] : node.members) {
    if (member_name == "enabled") return is_asked_for(member_name, member);
  }
  for (const auto& [member_name, member] : node.members) {
    if (is_asked_for(member_name, member)) return true;
  }
  return false;
}

const Node* find_node(const Node& root, const std::string& key) {
  const Node* node = &root;
  size_t from = 0;
  while (from <= key.size()) {
    const size_t dot = std::min(key.find('.', from), key.size());
    const std::string name = key.substr(from, dot - from);
    const Node* next = nullptr;
    for (const auto& [member_name, member] : node->members) {
      if (member_name == name) next = &member;
    }
    if (next == nullptr) return nullptr;
    node = next;
    from = dot + 1;
  }
  return node;
}

std::string because(const std::string& why) {
  return why.empty() ? "" : "; " + why;
}

void judge_section(const Section& section, const Node& node, Judgement* judgement) {
  const std::string key = section.key;
  if (section.standing == Standing::kActs) {
    if (section.regime == Regime::kFree) {
      judgement->notes.push_back(key + ": no effect here" + because(section.help));
    }
    return;
  }
  if (!is_asked_for(key, node)) return;
  const bool is_error = section.standing == Standing::kRefuse;
  Diagnostic& finding =
      is_error ? judgement->refuse(
                     key,
                     key + ": requested feature changes the computation and is not implemented" +
                         because(section.help),
                     ZERO_ERR_UNSUPPORTED)
               : judgement->warn(key, key + ": not implemented, ignored (no effect on numerics)" +
                                          because(section.help));
  finding.line = node.position.line;
  finding.column = node.position.column;
  finding.value = "{...}";
}

bool same(const Node& a, const Node& b) {
  if (a.is(NodeKind::kNumber) && b.is(NodeKind::kNumber)) {
    return number_of(a.text) == number_of(b.text);
  }
  return to_json(a) == to_json(b);
}

void judge_option(const Option& option, Judgement* judgement) {
  const std::string key = option.key;
  if (!judgement->given(key) || option.standing == Standing::kActs) return;
  if (option.standing == Standing::kQuiet) {
    judgement->notes.push_back(key + ": no effect here. " + option.help);
    return;
  }
  const Node& value = judgement->at(key);
  if (same(value, default_value(option))) return;
  if (option.standing == Standing::kLater) {
    judgement->later.push_back(key + " = " + to_json(value));
  } else if (option.standing == Standing::kRefuse) {
    judgement->refuse(key, key + ": requested and not implemented. " + option.help,
                      ZERO_ERR_UNSUPPORTED);
  } else {
    judgement->warn(key,
                    key + ": not implemented, ignored (no effect on numerics). " + option.help);
  }
}

// These have a check of their own, with numbers in the sentence.
bool is_judged_elsewhere(const std::string& key) {
  return key == "zero_optimization.zero_hpz_partition_size" ||
         key == "zero_optimization.mics_shard_size" || key == "optimizer.params.max_grad_norm";
}

} // namespace

void check_standing(const Source& source, Judgement* judgement) {
  for (const Section& section : sections()) {
    const Node* node = find_node(source.document.root, section.key);
    if (node != nullptr) judge_section(section, *node, judgement);
  }
  for (const Option& option : options()) {
    if (!is_judged_elsewhere(option.key)) judge_option(option, judgement);
  }
}

} // namespace zero::config

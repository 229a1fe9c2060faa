// Effective values in the order of the option table, then the file's sections that libzero knows
// without acting on them.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/config_text.h"

#include <string_view>

#include "config/optimizer_rules.h"

namespace zero::config {
namespace {

Node* member_of(Node* object, std::string_view name) {
  for (auto& [known, member] : object->members) {
    if (known == name) return &member;
  }
  object->members.push_back({std::string(name), Node()});
  return &object->members.back().value;
}

void put(Node* root, std::string_view key, const Node& value) {
  Node* object = root;
  for (size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
    object = member_of(object, key.substr(0, dot));
    object->kind = NodeKind::kObject;
    key.remove_prefix(dot + 1);
  }
  *member_of(object, key) = value;
}

// A key that nobody reads would come back as a warning.
bool is_read(const std::string& key, const Judgement& judgement) {
  if (key.starts_with("optimizer.")) {
    const auto type = optimizer_type(judgement.text("optimizer.type"));
    if (!type) return judgement.given(key);
    return !key.starts_with("optimizer.params.") || optimizer_reads(*type, key);
  }
  if (key.starts_with("scheduler.")) {
    const auto type = schedule_type(judgement.text("scheduler.type"));
    if (!type) return judgement.given(key);
    return !key.starts_with("scheduler.params.") || schedule_reads(*type, key);
  }
  return true;
}

bool is_written(const Option& option, const Judgement& judgement) {
  const std::string key = option.key;
  if (judgement.at(key).is(NodeKind::kNull) || !is_read(key, judgement)) return false;
  // An old place of another key, refused wherever it stands.
  return key != "optimizer.params.max_grad_norm" || judgement.given(key);
}

void write(const Node& node, int depth, std::string* out) {
  if (!node.is(NodeKind::kObject) || node.members.empty()) {
    *out += to_json(node);
    return;
  }
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  *out += "{\n";
  for (size_t i = 0; i < node.members.size(); ++i) {
    const auto& [name, member] = node.members[i];
    *out += indent + "  " + quoted(name) + ": ";
    write(member, depth + 1, out);
    *out += i + 1 < node.members.size() ? ",\n" : "\n";
  }
  *out += indent + "}";
}

} // namespace

std::string config_text(const Source& source, const Judgement& judgement) {
  Node root;
  root.kind = NodeKind::kObject;
  for (const Option& option : options()) {
    if (!is_written(option, judgement)) continue;
    const Effective& one = judgement.values.at(option.key);
    const bool stays_open = one.is_hole && hole_must_be_filled(option.key);
    put(&root, option.key, stays_open ? Node::string("auto") : one.value);
  }
  for (const auto& [name, member] : source.document.root.members) {
    const Section* section = find_section(name);
    const bool is_kept = section != nullptr && section->regime != Regime::kLax &&
                         section->standing != Standing::kActs;
    if (is_kept) put(&root, name, member);
  }
  std::string out;
  write(root, 0, &out);
  return out + "\n";
}

} // namespace zero::config

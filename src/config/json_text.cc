// JsonCpp parses the cleaned text; its offsets give lines, columns and the order of members.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/json_text.h"

#include <json/json.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>

#include "base/error.h"
#include "config/json_scan.h"

namespace zero::config {
namespace {

size_t start_of(const Json::Value& value) {
  return static_cast<size_t>(value.getOffsetStart());
}

// The offset of the key whose value begins at `value_start`: back over ':' to the closing quote,
// then to the opening one, which no backslash precedes.
size_t key_start(const std::string& text, size_t value_start) {
  size_t i = text.rfind(':', value_start - 1);
  i = text.rfind('"', i);
  while (i > 0) {
    i = text.rfind('"', i - 1);
    size_t backslashes = 0;
    while (backslashes < i && text[i - 1 - backslashes] == '\\') ++backslashes;
    if (backslashes % 2 == 0) break;
  }
  return i;
}

class Builder {
 public:
  Builder(const std::string& text, const LineTable& lines) : text_(text), lines_(lines) {}

  Node build(const Json::Value& value) const {
    Node node;
    node.position = lines_.at(start_of(value));
    switch (value.type()) {
      case Json::nullValue:
        break;
      case Json::booleanValue:
        node.kind = NodeKind::kBoolean;
        node.truth = value.asBool();
        break;
      case Json::stringValue:
        node.kind = NodeKind::kText;
        node.text = checked(value.asString(), node.position);
        break;
      case Json::arrayValue:
        node.kind = NodeKind::kArray;
        for (const Json::Value& item : value) node.items.push_back(build(item));
        break;
      case Json::objectValue:
        add_members(value, &node);
        break;
      default:
        node.kind = NodeKind::kNumber;
        node.text = text_.substr(start_of(value),
                                 static_cast<size_t>(value.getOffsetLimit()) - start_of(value));
    }
    return node;
  }

 private:
  void add_members(const Json::Value& value, Node* node) const {
    node->kind = NodeKind::kObject;
    std::vector<std::pair<size_t, std::string>> order;
    for (auto it = value.begin(); it != value.end(); ++it) {
      order.emplace_back(start_of(*it), it.name());
    }
    std::sort(order.begin(), order.end());
    for (const auto& [start, name] : order) {
      Node member = build(value[name]);
      member.position = lines_.at(key_start(text_, start));
      checked(name, member.position);
      node->members.push_back({name, std::move(member)});
    }
  }

  // Escapes can still spell what the text itself may not hold.
  static std::string checked(std::string text, Position position) {
    if (text.find('\0') != std::string::npos || find_bad_utf8(text) != std::string::npos) {
      fail_syntax(position, "an escape in this string spells no character of a text");
    }
    return text;
  }

  const std::string& text_;
  const LineTable& lines_;
};

// JsonCpp's report is "* Line L, Column C\n  sentence\n..."; the first finding is the cause.
[[noreturn]] void fail_from_report(const std::string& report) {
  Position position;
  if (std::sscanf(report.c_str(), "* Line %d, Column %d", &position.line, &position.column) != 2) {
    fail(ZERO_ERR_CONFIG_SYNTAX, "syntax: %s", report.c_str());
  }
  size_t from = report.find('\n');
  from = report.find_first_not_of(" \n", from);
  const size_t to = std::min(report.find('\n', from), report.size());
  std::string sentence = report.substr(from, to - from);
  if (!sentence.empty() && sentence.back() == '.') sentence.pop_back();
  // The scan knows every number: JsonCpp cannot read one only where it has no memory for it.
  if (sentence.ends_with("is not a number")) throw std::bad_alloc();
  fail_syntax(position, sentence);
}

Json::Value parse(const std::string& clean) {
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  builder["strictRoot"] = false;
  builder["allowSpecialFloats"] = true;
  builder["rejectDupKeys"] = true;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value root;
  std::string report;
  bool parsed = false;
  try {
    parsed = reader->parse(clean.data(), clean.data() + clean.size(), &root, &report);
  } catch (const Json::Exception& error) {
    fail(ZERO_ERR_CONFIG_SYNTAX, "syntax: %s", error.what());
  }
  if (!parsed) fail_from_report(report);
  return root;
}

} // namespace

Document read_json(std::string_view text, RootRule rule) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3); // a byte order mark
  const LineTable lines(text);
  Document document;
  const std::string clean = scan_json(text, lines, &document.remarks);
  if (clean.find_first_not_of(" \t\r\n") == std::string::npos) {
    fail(ZERO_ERR_CONFIG_SYNTAX, "syntax: the text is empty, expected %s",
         rule == RootRule::kObject ? "an object: { ... }" : "a value");
  }
  const Json::Value root = parse(clean);
  if (rule == RootRule::kObject && !root.isObject()) {
    fail_syntax(lines.at(start_of(root)), "the file holds no object, expected { ... }");
  }
  document.root = Builder(clean, lines).build(root);
  return document;
}

} // namespace zero::config

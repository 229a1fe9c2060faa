// Values back to JSON text.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/json_node.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace zero::config {

Node Node::boolean(bool value) {
  Node node;
  node.kind = NodeKind::kBoolean;
  node.truth = value;
  return node;
}

Node Node::number(std::string written) {
  Node node;
  node.kind = NodeKind::kNumber;
  node.text = std::move(written);
  return node;
}

Node Node::string(std::string value) {
  Node node;
  node.kind = NodeKind::kText;
  node.text = std::move(value);
  return node;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += format("\\u%04x", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end.ptr);
}

std::string to_json(const Node& node) {
  switch (node.kind) {
    case NodeKind::kNull:
      return "null";
    case NodeKind::kBoolean:
      return node.truth ? "true" : "false";
    case NodeKind::kNumber:
      return node.text;
    case NodeKind::kText:
      return quoted(node.text);
    case NodeKind::kArray: {
      std::string out = "[";
      for (const Node& item : node.items) out += (out.size() > 1 ? ", " : "") + to_json(item);
      return out + "]";
    }
    case NodeKind::kObject: {
      std::string out = "{";
      for (const auto& [name, member] : node.members) {
        out += (out.size() > 1 ? ", " : "") + quoted(name) + ": " + to_json(member);
      }
      return out + "}";
    }
  }
  return "null";
}

} // namespace zero::config

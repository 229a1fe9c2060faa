// A value of a config file with its place in the text: numbers keep their spelling, members their
// order.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace zero::config {

struct Position {
  int32_t line = 0; // 1-based; 0: not from a text
  int32_t column = 0;
};

enum class NodeKind { kNull, kBoolean, kNumber, kText, kArray, kObject };

struct Node {
  NodeKind kind = NodeKind::kNull;
  bool truth = false; // kBoolean
  std::string text; // kNumber: as written; kText: decoded
  std::vector<Node> items; // kArray
  std::vector<std::pair<std::string, Node>> members; // kObject, in file order
  Position position; // of the member's key, else of the value

  static Node boolean(bool value) {
    Node node;
    node.kind = NodeKind::kBoolean;
    node.truth = value;
    return node;
  }
  static Node number(std::string written) {
    Node node;
    node.kind = NodeKind::kNumber;
    node.text = std::move(written);
    return node;
  }
  static Node string(std::string value) {
    Node node;
    node.kind = NodeKind::kText;
    node.text = std::move(value);
    return node;
  }
  bool is(NodeKind wanted) const { return kind == wanted; }
};

// The value as JSON text on one line.
std::string to_json(const Node& node);
std::string quoted(const std::string& text);
// The shortest text that reads back as the same number; "Infinity", "NaN" where it is none.
std::string number_text(double value);

} // namespace zero::config

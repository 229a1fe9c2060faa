// A value of a config file with its place in the text: numbers keep their spelling, members their
// order.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::config {

struct Position {
  int32_t line = 0; // 1-based; 0: not from a text
  int32_t column = 0;
};

enum class NodeKind { kNull, kBoolean, kNumber, kText, kArray, kObject };

struct Member;

struct Node {
  NodeKind kind = NodeKind::kNull;
  bool truth = false; // kBoolean
  std::string text; // kNumber: as written; kText: decoded
  std::vector<Node> items; // kArray
  std::vector<Member> members; // kObject, in file order
  Position position; // of the member's key, else of the value

  bool is(NodeKind wanted) const { return kind == wanted; }

  static Node boolean(bool value);
  static Node number(std::string written);
  static Node string(std::string value);
};

struct Member {
  std::string name;
  Node value;
};

// The value as JSON text on one line.
std::string to_json(const Node& node);
std::string quoted(const std::string& text);
// The shortest text that reads back as the same number; "Infinity", "NaN" where it is none.
std::string number_text(double value);

} // namespace zero::config

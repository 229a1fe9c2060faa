// Reads the text of a DeepSpeed file: JSON with comments (//, #, /* */) and trailing commas, with
// Infinity, NaN, and Python's True, False and None.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/json_node.h"

namespace zero::config {

// Something in the text that was read all the same and is worth a warning.
struct TextRemark {
  Position position;
  std::string value;
  std::string message;
};

struct Document {
  Node root;
  std::vector<TextRemark> remarks;
};

// Throws CONFIG_SYNTAX with line and column.  The root of a file must be an object; the value of a
// single key (zero_config_set) may be anything.
enum class RootRule { kObject, kAnyValue };
Document read_json(std::string_view text, RootRule rule);

} // namespace zero::config

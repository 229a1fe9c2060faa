// What must be known before the parser sees a config text: comments, depth, encoding, bare words.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/json_text.h"

namespace zero::config {

// Finds lines and columns of offsets in a text.
class LineTable {
 public:
  explicit LineTable(std::string_view text);
  Position at(size_t offset) const; // columns count bytes

 private:
  std::vector<size_t> starts_;
};

// The text with comments blanked and Python's words put into JSON's, every offset kept.  Throws
// CONFIG_SYNTAX for what no parser should be given: bad UTF-8, control characters in strings, bare
// words and templates, malformed numbers, more than 100 levels of nesting or 100,000 values.
std::string scan_json(std::string_view text, const LineTable& lines,
                      std::vector<TextRemark>* remarks);

// The offset of the first byte that is no UTF-8, or npos.
size_t find_bad_utf8(std::string_view text);

[[noreturn]] void fail_syntax(Position position, const std::string& sentence);

} // namespace zero::config

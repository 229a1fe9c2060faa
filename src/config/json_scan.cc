// One pass over the text, aware of strings and comments only; structure is left to the parser.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/json_scan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <new>

#include "base/error.h"

namespace zero::config {
namespace {

constexpr int32_t kMaxDepth = 100;
constexpr int32_t kMostValues = 100000; // real files have some hundred

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Ends a bare word: what may follow a value, a string or a comment.
bool ends_word(std::string_view text, size_t i) {
  const char c = text[i];
  if (is_space(c) || c == ',' || c == ':' || c == ']' || c == '}' || c == '"' || c == '#') {
    return true;
  }
  return c == '/' && i + 1 < text.size() && (text[i + 1] == '/' || text[i + 1] == '*');
}

// The last character of a value: of a word, a string, an object, a list.
bool ends_value(char c) {
  return c == 'w' || c == '"' || c == '}' || c == ']';
}

size_t word_end(std::string_view text, size_t i) {
  // "${NAME}" is one word, braces included, so that the message shows it whole.
  if (text.substr(i, 2) == "${") {
    const size_t close = text.find('}', i);
    if (close != std::string_view::npos && close - i < 200) return close + 1;
  }
  size_t end = i + 1;
  while (end < text.size() && !ends_word(text, end) && text[end] != '{' && text[end] != '[') ++end;
  return end;
}

// JSON's grammar of a number.
bool is_number(std::string_view word) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t from = i;
    while (i < word.size() && is_digit(word[i])) ++i;
    return i - from;
  };
  if (i < word.size() && word[i] == '-') ++i;
  const size_t first = i;
  if (digits() == 0) return false;
  if (word[first] == '0' && i - first > 1) return false;
  if (i < word.size() && word[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < word.size() && (word[i] == 'e' || word[i] == 'E')) {
    ++i;
    if (i < word.size() && (word[i] == '+' || word[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == word.size();
}

bool fits_double(std::string_view word) {
  double value = 0;
  const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
  if (result.ec == std::errc::not_enough_memory) throw std::bad_alloc(); // libstdc++'s answer
  return result.ec == std::errc() && std::isfinite(value);
}

class Scanner {
 public:
  Scanner(std::string_view text, const LineTable& lines, std::vector<TextRemark>* remarks)
      : text_(text), lines_(lines), remarks_(remarks), clean_(text) {}

  std::string run() {
    size_t i = 0;
    while (i < text_.size()) i = step(i);
    return std::move(clean_);
  }

 private:
  size_t step(size_t i) {
    const char c = text_[i];
    if (is_space(c)) return i + 1;
    if (c == '#' || text_.substr(i, 2) == "//") return blank(i, line_end(i));
    if (text_.substr(i, 2) == "/*") return block_comment(i);
    if (c == '"') {
      last_ = c;
      return string(i);
    }
    if (c == '{' || c == '[') {
      if (++depth_ > kMaxDepth) {
        fail_syntax(lines_.at(i), format("nesting deeper than %d levels", kMaxDepth));
      }
    } else if (c == '}' || c == ']') {
      --depth_;
      if (last_ == ',' && ends_value(before_comma_)) note_trailing_comma(c);
    } else if (c != ',' && c != ':') {
      last_ = 'w';
      return word(i);
    }
    if (c == ',') {
      before_comma_ = last_;
      if (++commas_ > kMostValues) {
        fail_syntax(lines_.at(i), format("more than %d values", kMostValues));
      }
    }
    last_ = c;
    last_offset_ = i;
    return i + 1;
  }

  size_t line_end(size_t i) const { return std::min(text_.find('\n', i), text_.size()); }

  size_t blank(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      if (!is_space(text_[i])) clean_[i] = ' ';
    }
    return to;
  }

  size_t block_comment(size_t i) {
    const size_t close = text_.find("*/", i + 2);
    if (close == std::string_view::npos) {
      fail_syntax(lines_.at(i), "a comment begins here and has no end, expected */");
    }
    return blank(i, close + 2);
  }

  size_t string(size_t start) {
    for (size_t i = start + 1; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"') return i + 1;
      if (c == '\\') {
        ++i;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        if (c == '\n' || c == '\r') {
          fail_syntax(lines_.at(start), "a string begins here and has no end on its line");
        }
        fail_syntax(lines_.at(i), format("control character 0x%02x in a string",
                                         static_cast<unsigned>(static_cast<unsigned char>(c))));
      }
    }
    fail_syntax(lines_.at(start), "a string begins here and has no end");
  }

  void note_trailing_comma(char closing) {
    remarks_->push_back(
        {lines_.at(last_offset_), ",",
         format("relaxed-JSON:trailing-comma before '%c'; DeepSpeed reads it, strict "
                "JSON readers (Accelerate's) do not",
                closing)});
    clean_[last_offset_] = ' ';
  }

  size_t word(size_t i) {
    const size_t end = word_end(text_, i);
    const std::string word(text_.substr(i, end - i));
    if (word == "true" || word == "false" || word == "null") return end;
    if (word == "Infinity" || word == "-Infinity" || word == "NaN") return end;
    if (word == "True" || word == "False" || word == "None") {
      const std::string json = word == "True" ? "true" : word == "False" ? "false" : "null";
      std::copy(json.begin(), json.end(), clean_.begin() + static_cast<std::ptrdiff_t>(i));
      remarks_->push_back(
          {lines_.at(i), word,
           format("%s is Python's spelling, read as %s", word.c_str(), json.c_str())});
      return end;
    }
    refuse_unless_number(i, word);
    return end;
  }

  void refuse_unless_number(size_t i, const std::string& word) const {
    const Position at = lines_.at(i);
    const std::string shown = word.substr(0, 60);
    if (is_number(word)) {
      if (fits_double(word)) return;
      fail_syntax(at, format("%s is outside the range of a number", shown.c_str()));
    }
    if (word[0] == '\'') {
      fail_syntax(at,
                  format("bare token %s: strings are written with double quotes", shown.c_str()));
    }
    if (is_digit(word[0]) || word[0] == '-' || word[0] == '+' || word[0] == '.') {
      fail_syntax(at, format("malformed number %s", shown.c_str()));
    }
    if (word[0] == '$' || word[0] == '<' || word[0] == '%') {
      fail_syntax(at, format("bare token %s: a template that nobody has filled in", shown.c_str()));
    }
    fail_syntax(at, format("bare token %s, expected a quoted string, a number, true, false or null",
                           shown.c_str()));
  }

  std::string_view text_;
  const LineTable& lines_;
  std::vector<TextRemark>* remarks_;
  std::string clean_;
  int32_t depth_ = 0;
  int32_t commas_ = 0;
  char last_ = 0; // the last character of structure, 'w' for a bare word
  char before_comma_ = 0;
  size_t last_offset_ = 0;
};

} // namespace

LineTable::LineTable(std::string_view text) : starts_{0} {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') starts_.push_back(i + 1);
  }
}

Position LineTable::at(size_t offset) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  const auto line = static_cast<size_t>(after - starts_.begin());
  return {static_cast<int32_t>(line), static_cast<int32_t>(offset - starts_[line - 1] + 1)};
}

void fail_syntax(Position position, const std::string& sentence) {
  fail(ZERO_ERR_CONFIG_SYNTAX, "syntax: %s, at line %d, column %d", sentence.c_str(), position.line,
       position.column);
}

size_t find_bad_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t i = 0;
  while (i < text.size()) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || i + length > text.size()) return i;
    uint32_t code = lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return i;
      code = code << 6 | (byte(i + k) & 0x3fu);
    }
    const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string scan_json(std::string_view text, const LineTable& lines,
                      std::vector<TextRemark>* remarks) {
  const size_t bad = find_bad_utf8(text);
  if (bad != std::string_view::npos) {
    fail_syntax(lines.at(bad),
                format("byte 0x%02x is no UTF-8",
                       static_cast<unsigned>(static_cast<unsigned char>(text[bad]))));
  }
  return Scanner(text, lines, remarks).run();
}

} // namespace zero::config

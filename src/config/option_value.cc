// Coercions are DeepSpeed's: booleans and numbers may be strings, integers may be floats without a
// fraction.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/option_value.h"

#include <charconv>
#include <cmath>
#include <new>
#include <string_view>

#include "base/error.h"

namespace zero::config {
namespace {

using enum OptionKind;

bool is_integer_kind(OptionKind kind) {
  return kind == kInteger || kind == kIntegerOrAll || kind == kIntegerOrNever;
}

std::optional<bool> boolean_of(const Node& node) {
  if (node.is(NodeKind::kBoolean)) return node.truth;
  if (!node.is(NodeKind::kText) && !node.is(NodeKind::kNumber)) return std::nullopt;
  const std::string word = lower_case(node.text);
  for (const char* yes : {"true", "yes", "on", "y", "t", "1"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "no", "off", "n", "f", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

bool within(const Option& option, double value) {
  if (option.minimum == 0 && option.maximum == 0) return true;
  return value >= option.minimum && (value <= option.maximum || option.maximum >= kUnbounded);
}

// The form in which an integer is kept: plain digits.
Reading read_integer(const Option& option, const std::string& text) {
  Reading reading;
  const std::optional<int64_t> value = integer_of(text);
  if (!value || !within(option, static_cast<double>(*value))) return reading;
  reading.value = Node::number(std::to_string(*value));
  return reading;
}

Reading read_number(const Option& option, const std::string& text) {
  Reading reading;
  const std::optional<double> value = number_of(text);
  if (!value || !std::isfinite(*value) || !within(option, *value)) return reading;
  reading.value = Node::number(text);
  return reading;
}

Reading read_numeric(const Option& option, const Node& node, bool strict) {
  const bool is_text = node.is(NodeKind::kText);
  const bool one_in_list = node.is(NodeKind::kArray) && node.items.size() == 1 &&
                           std::string_view(option.key).starts_with("scheduler.");
  if (one_in_list) return read_numeric(option, node.items[0], strict);
  if (!is_text && !node.is(NodeKind::kNumber)) return {};
  if (option.kind == kIntegerOrAll && is_text && node.text == "all") return {node, "", "", ""};
  if (option.kind == kIntegerOrNever && node.text == "Infinity") {
    return {Node(), "", "", ""}; // never is the same as absent
  }
  Reading reading = is_integer_kind(option.kind) ? read_integer(option, node.text)
                                                 : read_number(option, node.text);
  if (is_text && reading.value) reading.warning = "a number written as a string";
  return reading;
}

// Kept as plain digits, whatever the unit it was written with.
Reading read_bytes(const Option& option, const Node& node) {
  Reading reading;
  if (node.is(NodeKind::kNumber)) return read_integer(option, node.text);
  const std::optional<int64_t> bytes =
      node.is(NodeKind::kText) ? bytes_of(node.text) : std::nullopt;
  if (bytes && within(option, static_cast<double>(*bytes))) {
    reading.value = Node::number(std::to_string(*bytes));
  }
  return reading;
}

Reading read_choice(const Option& option, const Node& node) {
  Reading reading;
  if (!node.is(NodeKind::kText)) return reading;
  std::string_view rest = option.choices;
  while (!rest.empty()) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    const std::string_view choice = rest.substr(0, bar);
    if (lower_case(choice) == lower_case(node.text)) {
      reading.value = Node::string(std::string(choice));
      return reading;
    }
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  reading.suggestion = nearest_choice(node.text, option.choices);
  return reading;
}

Reading read_pair(const Option& option, const Node& node) {
  Reading reading;
  if (!node.is(NodeKind::kArray) || node.items.size() != 2) return reading;
  Node pair;
  pair.kind = NodeKind::kArray;
  for (const Node& item : node.items) {
    const Reading one = item.is(NodeKind::kNumber) ? read_number(option, item.text) : Reading();
    if (!one.value || *number_of(one.value->text) >= 1) return reading;
    pair.items.push_back(*one.value);
  }
  reading.value = pair;
  return reading;
}

Reading read_list(const Node& node) {
  Reading reading;
  Node list;
  list.kind = NodeKind::kArray;
  if (node.is(NodeKind::kText)) {
    list.items.push_back(Node::string(node.text));
  } else if (node.is(NodeKind::kArray)) {
    for (const Node& item : node.items) {
      if (!item.is(NodeKind::kText)) return reading;
      list.items.push_back(Node::string(item.text));
    }
  } else {
    return reading;
  }
  reading.value = list;
  return reading;
}

Reading read_boolean(const Node& node, bool strict) {
  Reading reading;
  const std::optional<bool> truth = boolean_of(node);
  if (!truth) return reading;
  reading.value = Node::boolean(*truth);
  if (!strict && node.is(NodeKind::kText)) {
    reading.warning =
        "a truth value written as a string, which DeepSpeed takes for true here whatever it says";
  }
  return reading;
}

bool is_rank_or_word(const std::string& text) {
  if (text == "verify" || text == "local") return true;
  if (!text.starts_with("rank:")) return false;
  const std::optional<int64_t> rank = integer_of(text.substr(5));
  return rank && *rank >= 0 && *rank <= INT32_MAX;
}

Reading read_by_kind(const Option& option, const Node& node, bool strict) {
  switch (option.kind) {
    case kInteger:
    case kIntegerOrAll:
    case kIntegerOrNever:
    case kNumber:
      return read_numeric(option, node, strict);
    case kBytes:
      return read_bytes(option, node);
    case kBoolean:
      return read_boolean(node, strict);
    case kChoice:
      return read_choice(option, node);
    case kPair:
      return read_pair(option, node);
    case kList:
      return read_list(node);
    case kText:
      break;
  }
  if (!node.is(NodeKind::kText)) return {};
  if (std::string_view(option.key) == "libzero.initial_values" && !is_rank_or_word(node.text)) {
    return {};
  }
  return {Node::string(node.text), "", "", ""};
}

} // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ec == std::errc::not_enough_memory) throw std::bad_alloc(); // libstdc++'s answer
  if (text.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::optional<int64_t> integer_of(const std::string& text) {
  int64_t exact = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), exact);
  if (result.ec == std::errc() && result.ptr == text.data() + text.size()) return exact;
  const std::optional<double> value = number_of(text);
  // 2^63 itself does not fit; the largest double below it does.
  if (!value || *value != std::floor(*value) || std::fabs(*value) >= kUnbounded) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*value);
}

std::optional<int64_t> bytes_of(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789.+-eE"), text.size());
  size_t unit = digits;
  while (unit < text.size() && text[unit] == ' ') ++unit;
  const std::optional<double> number = number_of(text.substr(0, digits));
  const std::string word = lower_case(std::string_view(text).substr(unit));
  if (!number || *number < 0) return std::nullopt;
  double factor = word.empty() || word == "b" ? 1 : 0;
  double decimal = 1, binary = 1;
  for (const char* prefix : {"k", "m", "g", "t"}) {
    decimal *= 1000;
    binary *= 1024;
    if (word == std::string(prefix) + "b") factor = decimal;
    if (word == std::string(prefix) + "ib") factor = binary;
  }
  const double bytes = std::floor(*number * factor + 0.5);
  if (factor == 0 || bytes >= kUnbounded) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string expectation(const Option& option) {
  if (std::string_view(option.key) == "libzero.initial_values") {
    return "\"rank:R\", \"verify\" or \"local\"";
  }
  std::string bounds;
  if (option.minimum != 0 || option.maximum != 0) {
    bounds = option.maximum >= kUnbounded
                 ? format(" of at least %s", number_text(option.minimum).c_str())
                 : format(" in %s..%s", number_text(option.minimum).c_str(),
                          number_text(option.maximum).c_str());
  }
  switch (option.kind) {
    case kInteger:
      return "an integer" + bounds;
    case kIntegerOrAll:
      return "an integer" + bounds + ", or \"all\"";
    case kIntegerOrNever:
      return "an integer" + bounds + ", or Infinity";
    case kBytes:
      return "bytes" + bounds + ", as an integer or with a unit: \"24GB\" (10^9), \"24GiB\" (2^30)";
    case kNumber:
      return "a finite number" + bounds;
    case kBoolean:
      return "true or false";
    case kText:
      return "a string";
    case kChoice:
      return std::string("one of ") + option.choices;
    case kPair:
      return "two numbers, each at least 0 and below 1";
    case kList:
      return "a list of strings";
  }
  return "";
}

Reading read_value(const Option& option, const Node& node, bool strict) {
  const std::string default_json = option.default_json;
  if (node.is(NodeKind::kNull) && (!strict || default_json == "null")) return {Node(), "", "", ""};
  Reading reading = read_by_kind(option, node, strict);
  if (reading.value) return reading;
  reading.expected = expectation(option);
  const bool misspelt_hole = node.is(NodeKind::kText) && lower_case(node.text) == "auto";
  if (misspelt_hole) reading.suggestion = "auto";
  return reading;
}

} // namespace zero::config

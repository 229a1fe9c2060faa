// One value against one row of the option table: coercions, bounds, choices.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include "config/json_node.h"
#include "config/option_table.h"

namespace zero::config {

struct Reading {
  std::optional<Node> value; // in canonical form; absent where the value is refused
  std::string expected; // why it is refused: what was expected
  std::string suggestion;
  std::string warning; // read all the same, but
};

// strict: the section is one where DeepSpeed itself coerces strings.
Reading read_value(const Option& option, const Node& node, bool strict);

// Numbers without the host program's locale.
std::optional<double> number_of(const std::string& text);
std::optional<int64_t> integer_of(const std::string& text); // an integral value within 64 bits
// "24GB" (10^9), "24 GiB" (2^30), "100"; rounded to whole bytes.
std::optional<int64_t> bytes_of(const std::string& text);

// What a row accepts, as words: "an integer in 0..3".
std::string expectation(const Option& option);

std::string lower_case(std::string_view text);

} // namespace zero::config

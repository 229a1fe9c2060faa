// The option table: one row drives reading, checking, listing and the documentation page.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/json_node.h"

namespace zero::config {

enum class OptionKind {
  kInteger, // 64 bits; may be written as an integral float
  kIntegerOrAll, // "libzero.open_buckets"
  kIntegerOrNever, // steps_per_print: Infinity is "never"
  kBytes, // an integer, or a number with a unit: "24GB" (10^9), "24GiB" (2^30)
  kNumber, // finite
  kBoolean,
  kText,
  kChoice, // one of `choices`, in any case
  kPair, // [beta1, beta2]
  kList // of texts; one text stands for a list of one
};

// What libzero makes of an option that a file sets.
enum class Standing {
  kActs, // changes Settings
  kQuiet, // nothing to do here, help says why; no finding
  kWarn, // asked for and not done: memory, speed or logging only; a warning
  kRefuse, // asked for and not done: the arithmetic would differ; an error
  kLater // a valid request that this build does not carry out yet
};

struct Option {
  const char* key; // today's DeepSpeed spelling, dotted
  OptionKind kind;
  Standing standing;
  const char* default_json; // what holds where nobody says otherwise, as JSON text
  const char* choices; // "a|b", or ""
  double minimum; // inclusive; both 0: no bound
  double maximum;
  const char* help;
};

// DeepSpeed's two regimes: an unknown key is an error in a strict section, a warning in a lax one;
// a free section's keys are not judged.
enum class Regime { kStrict, kLax, kFree };

struct Section {
  const char* key;
  Regime regime;
  // Of the section as a whole, when it is asked for: "enabled" is true or, where there is no
  // "enabled", something in it is switched on.
  Standing standing;
  const char* also; // keys that are known beside the rows of the table, each with a blank around
  const char* help;
};

// A spelling that is mapped to another key.
struct Alias {
  const char* key;
  const char* target;
  const char* deprecated; // why there is a warning, or nullptr
};

inline constexpr double kUnbounded = 9223372036854775807.0;

std::span<const Option> options();
std::span<const Section> sections();
std::span<const Alias> aliases();

// nullptr where there is none of that key.
const Option* find_option(std::string_view key);
const Section* find_section(std::string_view key);
const Alias* find_alias(std::string_view key);

// `default_json` as a value.
const Node& default_value(const Option& option);

// The nearest known key of the same section, else a key of that very name elsewhere, else "".
std::string nearest_key(const std::string& key);
// The nearest of "a|b|c", or "".
std::string nearest_choice(const std::string& word, const char* choices);

// Holes ("auto") in these must be filled before the file can be used.
bool hole_must_be_filled(std::string_view key);

} // namespace zero::config

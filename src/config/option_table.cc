// Look-ups in the option table, and what a misspelt word was meant to be.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/option_table.h"

#include <algorithm>
#include <map>
#include <vector>

#include "config/json_text.h"
#include "config/option_rows.h"

namespace zero::config {
namespace {

const std::vector<Option>& all_rows() {
  static const std::vector<Option> rows = [] {
    std::vector<Option> all(top_rows().begin(), top_rows().end());
    all.insert(all.end(), zero_rows().begin(), zero_rows().end());
    return all;
  }();
  return rows;
}

template <typename Row>
const Row* find_row(std::span<const Row> rows, std::string_view key) {
  static const std::map<std::string_view, const Row*> index = [rows] {
    std::map<std::string_view, const Row*> all;
    for (const Row& row : rows) all.emplace(row.key, &row);
    return all;
  }();
  const auto found = index.find(key);
  return found == index.end() ? nullptr : found->second;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Insertions, deletions, exchanges and swaps of neighbours between two words.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

constexpr size_t kLongestWord = 100;

// Keeps the candidate nearest to a word, if it is near at all.
class Nearest {
 public:
  explicit Nearest(std::string_view word)
      : word_(lower(word)), best_(std::max<size_t>(2, word_.size() / 3 + 1)) {}

  void consider(std::string_view name, const std::string& answer) {
    if (word_.size() > kLongestWord) return;
    const size_t distance = edit_distance(word_, lower(name));
    if (distance >= best_) return;
    best_ = distance;
    answer_ = answer;
  }
  const std::string& answer() const { return answer_; }

 private:
  std::string word_;
  size_t best_;
  std::string answer_;
};

struct SplitKey {
  std::string_view section;
  std::string_view name;
};

SplitKey split(std::string_view key) {
  const size_t dot = key.rfind('.');
  if (dot == std::string_view::npos) return {"", key};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

// Every key that a file may hold: options, sections, spellings.
template <typename Visit>
void visit_keys(const Visit& visit) {
  for (const Option& option : options()) visit(std::string_view(option.key));
  for (const Section& section : sections()) visit(std::string_view(section.key));
  for (const Alias& alias : aliases()) visit(std::string_view(alias.key));
}

} // namespace

std::span<const Option> options() {
  return all_rows();
}
const Option* find_option(std::string_view key) {
  return find_row(options(), key);
}

const Node& default_value(const Option& option) {
  static const std::map<std::string_view, Node> values = [] {
    std::map<std::string_view, Node> all;
    for (const Option& one : options()) {
      all.emplace(one.key, read_json(one.default_json, RootRule::kAnyValue).root);
      all.at(one.key).position = Position();
    }
    return all;
  }();
  return values.at(option.key);
}

const Section* find_section(std::string_view key) {
  return find_row(sections(), key);
}
const Alias* find_alias(std::string_view key) {
  return find_row(aliases(), key);
}

std::string nearest_key(const std::string& key) {
  const SplitKey wanted = split(key);
  Nearest nearest(wanted.name);
  std::string elsewhere;
  visit_keys([&](std::string_view known) {
    const SplitKey candidate = split(known);
    if (candidate.name.empty()) return;
    if (candidate.section == wanted.section) {
      nearest.consider(candidate.name, std::string(known));
    } else if (candidate.name == wanted.name && elsewhere.empty()) {
      elsewhere = known;
    }
  });
  return nearest.answer().empty() ? elsewhere : nearest.answer();
}

std::string nearest_choice(const std::string& word, const char* choices) {
  Nearest nearest(word);
  std::string_view rest = choices;
  while (!rest.empty()) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    nearest.consider(rest.substr(0, bar), std::string(rest.substr(0, bar)));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return nearest.answer();
}

bool hole_must_be_filled(std::string_view key) {
  for (const char* one :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        "gradient_clipping", "fp16.enabled", "bf16.enabled", "zero_optimization.stage"}) {
    if (key == one) return true;
  }
  return key.starts_with("optimizer.") || key.starts_with("scheduler.");
}

} // namespace zero::config

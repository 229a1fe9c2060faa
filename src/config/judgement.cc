// The order of the stages, and what they share.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/judgement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/option_value.h"

namespace zero::config {
namespace {

// Findings without a place in the file come last; otherwise as the file reads.
bool earlier(const Diagnostic& a, const Diagnostic& b) {
  const auto place = [](const Diagnostic& one) {
    const int32_t line = one.line == 0 ? std::numeric_limits<int32_t>::max() : one.line;
    return std::pair(line, one.column);
  };
  return place(a) < place(b);
}

void add_text_remarks(const Source& source, Judgement* judgement) {
  for (const TextRemark& remark : source.document.remarks) {
    Diagnostic& finding = judgement->warn("", remark.message);
    finding.line = remark.position.line;
    finding.column = remark.position.column;
    finding.value = remark.value;
  }
}

void set_defaults(Judgement* judgement) {
  for (const Option& option : options()) {
    judgement->values[option.key].value = default_value(option);
  }
}

} // namespace

bool Judgement::truth(const std::string& key) const {
  return at(key).truth;
}

double Judgement::number(const std::string& key) const {
  return number_of(at(key).text).value_or(std::numeric_limits<double>::quiet_NaN());
}

int64_t Judgement::integer(const std::string& key, int64_t otherwise) const {
  return integer_of(at(key).text).value_or(otherwise);
}

std::string Judgement::text(const std::string& key) const {
  return at(key).is(NodeKind::kText) ? at(key).text : "";
}

bool Judgement::given(const std::string& key) const {
  const Effective& one = values.at(key);
  return !one.is_hole && std::string_view(one.origin) != "default";
}

Diagnostic& Judgement::warn(const std::string& key, const std::string& message) {
  Diagnostic finding;
  finding.key = key;
  finding.message = message;
  const auto found = values.find(key);
  if (found != values.end()) {
    const Effective& one = found->second;
    if (!one.spelled.empty()) finding.key = one.spelled;
    finding.line = one.position.line;
    finding.column = one.position.column;
    finding.value = one.is_hole ? "\"auto\"" : to_json(one.value);
  }
  diagnostics.push_back(finding);
  return diagnostics.back();
}

Diagnostic& Judgement::refuse(const std::string& key, const std::string& message,
                              zero_status status) {
  Diagnostic& finding = warn(key, message);
  finding.is_error = true;
  finding.status = status;
  return finding;
}

void Judgement::derive(const std::string& key, Node value) {
  Effective& one = values.at(key);
  one.value = std::move(value);
  one.origin = "derived";
  one.is_hole = false;
}

Judgement judge(const Source& source) {
  Judgement judgement;
  judgement.world_size = std::max(0, source.facts.world_size);
  set_defaults(&judgement);
  add_text_remarks(source, &judgement);
  read_given_keys(source, &judgement);
  fill_holes(source, &judgement);
  resolve_batch(source, &judgement);
  settle_defaults(&judgement);
  report_open_holes(&judgement);
  check_standing(source, &judgement);
  check_precision(&judgement);
  check_sharding(&judgement);
  check_optimizer(&judgement);
  check_schedule(&judgement);
  std::stable_sort(judgement.diagnostics.begin(), judgement.diagnostics.end(), earlier);
  return judgement;
}

} // namespace zero::config

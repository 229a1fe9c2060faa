// The same findings twice: as text with the place in the file first, and as one JSON object.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/check_report.h"

#include <json/json.h>

#include <cstring>
#include <memory>

namespace zero::cli {
namespace {

std::string quoted(const std::string& text) {
  return Json::valueToQuotedString(text.c_str());
}

std::string finding_json(const Finding& finding) {
  return "{\"level\": " + quoted(finding.is_error ? "error" : "warning") +
         ", \"key\": " + quoted(finding.key) + ", \"line\": " + std::to_string(finding.line) +
         ", \"column\": " + std::to_string(finding.column) +
         ", \"value\": " + quoted(finding.value) + ", \"message\": " + quoted(finding.message) +
         ", \"suggestion\": " + quoted(finding.suggestion) + "}";
}

std::string finding_line(const Finding& finding) {
  std::string text = "  ";
  if (finding.line > 0) {
    text += std::to_string(finding.line) + ":" + std::to_string(finding.column) + ": ";
  }
  text += finding.message;
  // Most messages begin with their key.
  if (!finding.key.empty() && finding.message.find(finding.key) == std::string::npos) {
    text += " [" + finding.key + "]";
  }
  return text + "\n";
}

std::string findings_block(const CheckedConfig& checked, bool is_error) {
  std::string lines;
  for (const Finding& finding : checked.findings) {
    if (finding.is_error == is_error) lines += finding_line(finding);
  }
  if (lines.empty()) return "";
  return std::string(is_error ? "\nerrors\n" : "\nwarnings\n") + lines;
}

std::string list_block(const char* title, const std::string& json) {
  Json::Value list;
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  std::string report;
  if (!reader->parse(json.data(), json.data() + json.size(), &list, &report) || list.empty()) {
    return "";
  }
  std::string text = "\n" + std::string(title) + "\n";
  for (const Json::Value& item : list) text += "  " + item.asString() + "\n";
  return text;
}

// Shown even where they are defaults: they decide what a run computes.
bool is_always_shown(const std::string& key) {
  for (const char* one :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        "gradient_clipping", "zero_optimization.stage", "optimizer.type"}) {
    if (key == one) return true;
  }
  return false;
}

std::string values_block(const CheckedConfig& checked, bool lists_defaults) {
  std::string text;
  size_t hidden = 0;
  for (const EffectiveValue& value : checked.values) {
    if (value.from == "default" && !lists_defaults && !is_always_shown(value.key)) {
      ++hidden;
      continue;
    }
    std::string line = "  " + value.key + " = " + value.json;
    if (line.size() < 60) line.resize(60, ' ');
    text += line + " (" + value.from + ")\n";
  }
  if (text.empty()) return "";
  if (hidden > 0) text += "  " + std::to_string(hidden) + " defaults more: --all\n";
  return "\nwhat it means here\n" + text;
}

const char* kind_name(int32_t kind) {
  switch (kind) {
    case ZERO_OPTION_INTEGER:
      return "integer";
    case ZERO_OPTION_NUMBER:
      return "number";
    case ZERO_OPTION_BOOLEAN:
      return "true or false";
    case ZERO_OPTION_CHOICE:
      return "choice";
    default:
      return "text";
  }
}

std::string accepted(const zero_option_info& info) {
  std::string choices = info.choices;
  for (char& c : choices) {
    if (c == '|') c = '/'; // a bar would end the table's cell
  }
  if (!choices.empty()) return choices;
  if (info.minimum == 0 && info.maximum == 0) return "";
  char text[64];
  if (info.maximum > 9e18) {
    std::snprintf(text, sizeof text, ">= %g", info.minimum);
  } else {
    std::snprintf(text, sizeof text, "%g to %.10g", info.minimum, info.maximum);
  }
  return text;
}

std::string section_of(const char* key) {
  const char* dot = std::strchr(key, '.');
  return dot == nullptr ? "" : std::string(key, dot);
}

} // namespace

std::string report_json(const CheckedConfig& checked) {
  std::string text = "{\n  \"verdict\": " + quoted(verdict_name(checked.verdict)) + ",\n";
  text += "  \"world_size\": " +
          (checked.world_size > 0 ? std::to_string(checked.world_size) : "null") + ",\n";
  text += "  \"diagnostics\": [";
  const char* separator = "\n    ";
  for (const Finding& finding : checked.findings) {
    text += separator + finding_json(finding);
    separator = ",\n    ";
  }
  text += "],\n  \"values\": {";
  separator = "\n    ";
  for (const EffectiveValue& value : checked.values) {
    text += separator + quoted(value.key) + ": {\"value\": " + value.json +
            ", \"from\": " + quoted(value.from) + "}";
    separator = ",\n    ";
  }
  text += "},\n  \"notes\": " + checked.notes + ",\n";
  text += "  \"not_in_this_build\": " + checked.not_in_this_build + "\n}\n";
  return text;
}

std::string report_page(const std::string& path, const CheckedConfig& checked,
                        bool lists_defaults) {
  std::string text = path + ": " + verdict_name(checked.verdict);
  if (checked.world_size > 0) text += ", for " + std::to_string(checked.world_size) + " ranks";
  text += "\n" + findings_block(checked, /*is_error=*/true) +
          findings_block(checked, /*is_error=*/false);
  text += list_block("not in this build", checked.not_in_this_build);
  text += values_block(checked, lists_defaults);
  text += list_block("accepted, without effect here", checked.notes);
  return text;
}

std::string options_page() {
  std::string text =
      "# Options\n\nEvery key that libzero reads from a DeepSpeed file, with today's spelling. "
      "Printed by `zero check --options`.\n";
  std::string section = "none yet";
  for (int32_t i = 0; i < zero_option_count(); ++i) {
    zero_option_info info;
    zero_option_info_init(&info, sizeof info);
    if (zero_option_at(i, &info) != ZERO_OK) break;
    if (section_of(info.key) != section) {
      section = section_of(info.key);
      text += "\n## " + (section.empty() ? "top level" : section) +
              "\n\n| key | kind | default | accepts | meaning |\n|---|---|---|---|---|\n";
    }
    text += "| `" + std::string(info.key) + "` | " + kind_name(info.kind) + " | `" +
            info.default_value + "` | " + accepted(info) + " | " + info.help + " |\n";
  }
  return text;
}

} // namespace zero::cli

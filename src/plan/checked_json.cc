// SPDX-License-Identifier: BSD-3-Clause
#include "plan/checked_json.h"

#include <json/json.h>

#include <memory>

#include "base/error.h"

namespace zero::plan {
namespace {

constexpr int kDeepest = 16; // nothing that is read here is deeper than 4

// JsonCpp recurses; so the depth is known before it starts.
void check_depth(std::string_view text, const std::string& file, uint64_t base_offset) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) {
        fail(ZERO_ERR_FILE_FORMAT,
             "file \"%s\": at offset %llu the JSON is nested deeper than %d levels", file.c_str(),
             static_cast<unsigned long long>(base_offset + i), kDeepest);
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

} // namespace

Json::Value parse_checked_json(std::string_view text, const std::string& file,
                               uint64_t base_offset) {
  check_depth(text, file, base_offset);
  Json::CharReaderBuilder builder;
  Json::CharReaderBuilder::strictMode(&builder.settings_);
  builder.settings_["stackLimit"] = kDeepest + 4;
  const std::unique_ptr<Json::CharReader> reader(builder.newCharReader());
  Json::Value value;
  std::string errors;
  bool good = false;
  try {
    good = reader->parse(text.data(), text.data() + text.size(), &value, &errors);
  } catch (const Json::Exception& error) { // too deep, or a number that is none
    errors = error.what();
  }
  if (!good) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": the %zu bytes from offset %llu are not valid JSON: %s",
         file.c_str(), text.size(), static_cast<unsigned long long>(base_offset),
         one_line(errors).c_str());
  }
  return value;
}

} // namespace zero::plan

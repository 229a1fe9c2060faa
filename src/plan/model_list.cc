// SPDX-License-Identifier: BSD-3-Clause
#include "plan/model_list.h"

#include <array>
#include <charconv>

#include "base/dtype.h"
#include "base/error.h"

namespace zero::plan {
namespace {

enum Column { kName, kShape, kDtype, kNumel, kTrainable, kTiedTo, kKind, kUnit, kColumns };
constexpr std::array<const char*, kColumns> kColumnNames = {
    "name", "shape", "dtype", "numel", "trainable", "tied_to", "kind", "unit"};

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t end = line.find(separator);
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

class ListReader {
 public:
  explicit ListReader(const std::string& file) : file_(file) {}

  void read_columns(std::string_view line) {
    next_line();
    where_.fill(-1);
    for (const std::string_view field : split(line, '\t')) {
      int column = 0;
      while (column < kColumns && field != kColumnNames[static_cast<size_t>(column)]) ++column;
      if (column == kColumns) {
        refuse("column \"" + std::string(field) +
               "\" is unknown, expected name, shape, dtype, numel, trainable, tied_to, kind, unit");
      }
      if (where_[static_cast<size_t>(column)] >= 0) {
        refuse("column \"" + std::string(field) + "\" comes twice");
      }
      where_[static_cast<size_t>(column)] = columns_++;
    }
    for (const Column needed : {kName, kShape, kDtype}) {
      if (where_[needed] < 0) {
        refuse(std::string("the column \"") + kColumnNames[needed] + "\" is missing");
      }
    }
  }

  void read_parameter(std::string_view line) {
    next_line();
    const std::vector<std::string_view> fields = split(line, '\t');
    if (fields.size() != static_cast<size_t>(columns_)) {
      refuse(format("%zu fields, expected %d as in the first line", fields.size(), columns_));
    }
    Parameter parameter;
    parameter.name = field(fields, kName);
    parameter.shape = read_shape(field(fields, kShape));
    parameter.dtype = dtype_from_name(field(fields, kDtype));
    if (parameter.dtype == 0) {
      refuse("dtype is \"" + std::string(field(fields, kDtype)) +
             "\", expected fp32, fp16, bf16, fp64, int64, int32, uint8 or bool");
    }
    parameter.role = read_role(field(fields, kTrainable), field(fields, kKind));
    const std::string_view tied_to = field(fields, kTiedTo);
    if (!tied_to.empty()) {
      parameter.tied_to = table_.find(tied_to);
      if (parameter.tied_to < 0) {
        refuse("tied_to is \"" + std::string(tied_to) + "\", expected the name of an earlier line");
      }
    }
    const std::string_view unit = field(fields, kUnit);
    if (!unit.empty()) parameter.unit = static_cast<int32_t>(read_integer(unit, "unit", INT32_MAX));
    add(std::move(parameter), field(fields, kNumel));
  }

  void skip_line() { next_line(); }
  bool has_columns() const { return columns_ > 0; }
  ParameterTable take() { return std::move(table_); }
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\", line %d: %s", file_.c_str(), line_, what.c_str());
  }

 private:
  void next_line() { ++line_; }

  std::string_view field(const std::vector<std::string_view>& fields, Column column) const {
    return where_[column] < 0 ? std::string_view() : fields[static_cast<size_t>(where_[column])];
  }

  int64_t read_integer(std::string_view text, const char* what, int64_t most) const {
    int64_t value = -1;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || value < 0 || value > most) {
      refuse(std::string(what) + " is \"" + std::string(text) +
             "\", expected an integer from 0 to " + std::to_string(most));
    }
    return value;
  }

  std::vector<int64_t> read_shape(std::string_view text) const {
    std::vector<int64_t> shape;
    if (text == "scalar") return shape;
    for (const std::string_view extent : split(text, 'x')) {
      shape.push_back(read_integer(extent, "a size in shape", INT64_MAX));
    }
    return shape;
  }

  zero_param_role read_role(std::string_view trainable, std::string_view kind) const {
    if (kind != "" && kind != "param" && kind != "buffer") {
      refuse("kind is \"" + std::string(kind) + "\", expected param or buffer");
    }
    if (trainable != "" && trainable != "0" && trainable != "1") {
      refuse("trainable is \"" + std::string(trainable) + "\", expected 1 or 0");
    }
    if (kind == "buffer") return ZERO_PARAM_BUFFER;
    return trainable == "0" ? ZERO_PARAM_FROZEN : ZERO_PARAM_TRAINED;
  }

  void add(Parameter parameter, std::string_view numel) {
    zero_param_id id = -1;
    try {
      id = table_.add(std::move(parameter));
    } catch (const Error& error) {
      refuse(error.message());
    }
    const Parameter& added = table_.parameters()[static_cast<size_t>(id)];
    if (numel.empty()) return;
    if (static_cast<uint64_t>(read_integer(numel, "numel", INT64_MAX)) != added.elements) {
      refuse("numel is " + std::string(numel) + ", but the shape has " +
             std::to_string(added.elements) + " elements");
    }
  }

  const std::string& file_;
  std::array<int, kColumns> where_{};
  int columns_ = 0;
  int line_ = 0;
  ParameterTable table_;
};

} // namespace

ParameterTable parse_model_list(std::string_view text, const std::string& file) {
  ListReader reader(file);
  for (std::string_view line : split(text, '\n')) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) {
      reader.skip_line();
    } else if (!reader.has_columns()) {
      reader.read_columns(line);
    } else {
      reader.read_parameter(line);
    }
  }
  if (!reader.has_columns()) {
    fail(ZERO_ERR_FILE_FORMAT, "file \"%s\": it is empty, expected a first line of column names",
         file.c_str());
  }
  return reader.take();
}

} // namespace zero::plan

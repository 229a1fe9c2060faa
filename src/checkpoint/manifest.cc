// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/manifest.h"

#include "base/error.h"

namespace zero::checkpoint {

int32_t Manifest::root_of(int32_t parameter) const {
  while (parameters[static_cast<size_t>(parameter)].tied_to >= 0) {
    parameter = parameters[static_cast<size_t>(parameter)].tied_to;
  }
  return parameter;
}

int32_t Manifest::find_part(int32_t parameter, zero_part kind, int32_t index) const {
  const auto& parts = parameters[static_cast<size_t>(root_of(parameter))].parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == kind && parts[i].index == index) return static_cast<int32_t>(i);
  }
  return -1;
}

NameIndex::NameIndex(const Manifest& manifest) {
  rows_.reserve(manifest.parameters.size());
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    rows_.emplace(manifest.parameters[p].name, static_cast<int32_t>(p));
  }
}

int32_t NameIndex::find(std::string_view name) const {
  const auto found = rows_.find(name);
  return found == rows_.end() ? -1 : found->second;
}

std::string piece_name(int32_t piece) {
  return format("piece-%05d.zero", piece);
}

} // namespace zero::checkpoint

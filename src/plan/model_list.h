// A model as a list of tab-separated values: one parameter a line, columns named in the first.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "plan/parameter_table.h"

namespace zero::plan {

// Columns, in any order: name, shape ("64x3x7x7", "scalar") and dtype; optionally numel (checked),
// trainable (1 or 0), tied_to (an earlier name), kind ("param" or "buffer"), unit.  `file` names it
// in sentences; throws FILE_FORMAT.
ParameterTable parse_model_list(std::string_view text, const std::string& file);

} // namespace zero::plan

// The rows of the option table, file by file; everybody else asks option_table.h.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "config/option_table.h"

namespace zero::config {

std::span<const Option> top_rows(); // top level, precision, optimizer, scheduler
std::span<const Option> zero_rows(); // zero_optimization, checkpoint, aio, libzero

} // namespace zero::config

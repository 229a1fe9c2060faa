// What went wrong in the last call of this thread that failed.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <string>

namespace zero::cli {

std::string last_error_text();

} // namespace zero::cli

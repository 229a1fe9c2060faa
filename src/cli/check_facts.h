// The facts of a front end, from a JSON file: what may fill "auto".
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <string>

namespace zero::cli {

// False where the file cannot be used; *error then says why.
bool read_facts(const std::string& path, zero_config_facts* facts, std::string* error);

} // namespace zero::cli

// A checked config for people and for programs, and the page of all options.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "cli/check_config.h"

namespace zero::cli {

std::string report_json(const CheckedConfig& checked);
// lists_defaults: every option, not only those that somebody said something about.
std::string report_page(const std::string& path, const CheckedConfig& checked, bool lists_defaults);
// Every option with kind, default, what it accepts and what it does, as Markdown.
std::string options_page();

} // namespace zero::cli

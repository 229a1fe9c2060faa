// The schedule of a config as a picture.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string>

namespace zero::cli {

// How many updates a picture should show: the schedule's own length where it has one.
int64_t plotted_updates(const zero_config* config);
// "" and *error where the config has no schedule to ask for.
std::string plot_svg(const zero_config* config, int64_t updates, std::string* error);
std::string plot_text(const zero_config* config, int64_t updates, std::string* error);

} // namespace zero::cli

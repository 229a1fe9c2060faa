// JSON from a file that nobody vouches for: strict syntax, no duplicate keys, bounded depth.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <json/value.h>

#include <string>
#include <string_view>

namespace zero::plan {

// Throws FILE_FORMAT naming file and offset (counted from `text`, plus base_offset).
Json::Value parse_checked_json(std::string_view text, const std::string& file,
                               uint64_t base_offset);

} // namespace zero::plan

// The rules of a sound manifest, beyond what its checksum says.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoint/manifest.h"

namespace zero::checkpoint {

// Throws FILE_FORMAT naming file, what is wrong with its value, and what was expected.
void check_manifest(const Manifest& manifest, const std::string& file);

} // namespace zero::checkpoint

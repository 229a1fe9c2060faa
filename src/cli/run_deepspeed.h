// `zero run --as-deepspeed`: the variables by which Python answers `import deepspeed` with libzero.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace zero::cli {

// Asks the Python that the command runs in where its libzero keeps the name, and appends
// NAME=value entries.  False, with a sentence in *reason, where that Python has no libzero.
bool find_deepspeed_name(const std::vector<std::string>& command,
                         std::vector<std::string>* variables, std::string* reason);

// Appends MASTER_ADDR and MASTER_PORT where the caller has not set them: scripts start
// torch.distributed by them.
void find_meeting_point(std::vector<std::string>* variables);

} // namespace zero::cli

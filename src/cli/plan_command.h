// `zero plan`: what each stage would need, before anything is bought or allocated.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace zero::cli {

// Takes the words after `zero`, "plan" first; returns the exit code: 0 planned, also where nothing
// fits; 2 a config or model that cannot be planned, 64 a wrong command line.
int plan_command(int argc, char** argv);

} // namespace zero::cli

// `zero check`: what a DeepSpeed file means here.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace zero::cli {

// Takes the words after `zero`, "check" first; returns the exit code: 0 accepted (with or without
// warnings), 1 warnings under --strict, 2 rejected, 64 a wrong command line.
int check_command(int argc, char** argv);

} // namespace zero::cli

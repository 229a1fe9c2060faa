// The `zero` program: looks up the subcommand and hands the rest of the line to it.
// SPDX-License-Identifier: BSD-3-Clause
#include <zero.h>

#include <cstdio>

int main() {
  std::printf("zero %d.%d.%d\n", ZERO_VERSION_MAJOR, ZERO_VERSION_MINOR, ZERO_VERSION_PATCH);
  return 0;
}

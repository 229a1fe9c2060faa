// The `zero` program: looks up the subcommand and hands it the rest of the line.
// SPDX-License-Identifier: BSD-3-Clause
#include <zero.h>

#include <cstdio>
#include <cstring>

#include "cli/check.h"
#include "cli/checkpoint_command.h"
#include "cli/plan_command.h"
#include "cli/run.h"

namespace {

struct Command {
  const char* name;
  const char* help;
  int (*call)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"check", "say what a DeepSpeed file means here", zero::cli::check_command},
    {"checkpoint", "inspect, verify, reshard, export, diff, import checkpoints",
     zero::cli::checkpoint_command},
    {"plan", "say what each stage needs, before the first step", zero::cli::plan_command},
    {"run", "start ranks of a program on this machine", zero::cli::run_command},
};

void print_usage(std::FILE* stream) {
  std::fputs("usage: zero COMMAND [options]    zero --version\n\ncommands:\n", stream);
  for (const Command& command : kCommands) {
    std::fprintf(stream, "  %-12s %s\n", command.name, command.help);
  }
  std::fputs("\nzero COMMAND --help says more.\n", stream);
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  const char* word = argv[1];
  if (std::strcmp(word, "--version") == 0) {
    std::printf("zero %s\n", zero_version_string());
    return 0;
  }
  if (std::strcmp(word, "--help") == 0 || std::strcmp(word, "-h") == 0) {
    print_usage(stdout);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (std::strcmp(word, command.name) == 0) return command.call(argc - 1, argv + 1);
  }
  std::fprintf(stderr, "zero: unknown command \"%s\"\n", word);
  print_usage(stderr);
  return 2;
}

// The command line of `zero run`.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>

#include "cli/run_launcher.h"

namespace zero::cli {

namespace {

constexpr int kUsageError = 2;
constexpr int kMostRanks = 4096;

} // namespace

int run_command(int argc, char** argv) {
  // What stands behind "--" is the command, whatever it looks like.
  int own = 0;
  while (own < argc && std::strcmp(argv[own], "--") != 0) ++own;

  RunOptions options;
  CLI::App app(
      "Starts ranks of one program on this machine, with RANK, WORLD_SIZE, LOCAL_RANK,\n"
      "LOCAL_WORLD_SIZE and LIBZERO_JOB set, and puts \"[rank] \" before each line they\n"
      "print. Signals go on to all ranks. When one fails, the others are ended and the\n"
      "exit code is its own (128 + the signal where a signal ended it).",
      "zero run");
  app.footer("The command stands behind --, as in: zero run -n 2 -- ./trainer --steps 100");
  app.add_option("-n,--ranks", options.ranks, "number of ranks")
      ->required()
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--timeout", options.timeout_seconds,
                 "end a run that takes longer than this many seconds, with exit code 124")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--grace", options.grace_seconds,
                 "seconds between SIGTERM and SIGKILL for ranks that are to end (10)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tail", options.tail_lines, "lines of the failed rank shown at the end (20)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--job", options.job, "the name by which the ranks find each other (a new one)");
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  for (int i = own + 1; i < argc; ++i) options.command.emplace_back(argv[i]);
  if (options.command.empty()) {
    std::fprintf(stderr,
                 "zero run: no command; put it behind --, as in: zero run -n 2 -- ./trainer\n");
    return kUsageError;
  }
  return launch_ranks(options);
}

} // namespace zero::cli

// The command line of `zero run`.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run.h"

#include <getopt.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/run_deepspeed.h"
#include "cli/run_launcher.h"

namespace zero::cli {

namespace {

constexpr int kUsageError = 2;
constexpr int kMostRanks = 4096;
constexpr int kMostLines = 1000000;

constexpr char kHelp[] =
    R"(usage: zero run -n RANKS [options] -- command [argument...]

Starts ranks of one program on this machine, with RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE and LIBZERO_JOB set, and puts "[rank] " before each line they
print. Signals go on to all ranks. When one fails, the others are ended and the
exit code is its own (128 + the signal where a signal ended it).

  -n, --ranks N      number of ranks
  --timeout SECONDS  end a run that takes longer, with exit code 124
  --grace SECONDS    from SIGTERM to SIGKILL for ranks that are to end (10)
  --tail LINES       lines of the failed rank shown at the end (20)
  --job NAME         the name by which the ranks find each other (a new one)
  --as-deepspeed     `import deepspeed` in the ranks' Python, and in what they
                     start, is libzero.torch; -n is then 1 where it is left out
)";

enum Choice { kRanks = 'n', kHelpChoice = 'h', kTimeout = 256, kGrace, kTail, kJob, kAsDeepspeed };

constexpr option kChoices[] = {{"ranks", required_argument, nullptr, kRanks},
                               {"timeout", required_argument, nullptr, kTimeout},
                               {"grace", required_argument, nullptr, kGrace},
                               {"tail", required_argument, nullptr, kTail},
                               {"job", required_argument, nullptr, kJob},
                               {"as-deepspeed", no_argument, nullptr, kAsDeepspeed},
                               {"help", no_argument, nullptr, kHelpChoice},
                               {nullptr, 0, nullptr, 0}};

// Reads a whole number from low to high; says what was expected where it is none.
bool read_integer(const char* name, const char* text, int low, int high, int* value) {
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || number < low || number > high) {
    std::fprintf(stderr, "zero run: %s is \"%s\", expected a whole number from %d to %d\n", name,
                 text, low, high);
    return false;
  }
  *value = static_cast<int>(number);
  return true;
}

bool read_seconds(const char* name, const char* text, double* value) {
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(number) || number < 0) {
    std::fprintf(stderr, "zero run: %s is \"%s\", expected seconds, 0 or more\n", name, text);
    return false;
  }
  *value = number;
  return true;
}

bool add_deepspeed_name(RunOptions* options) {
  std::string reason;
  if (!find_deepspeed_name(options->command, &options->variables, &reason)) {
    std::fprintf(stderr, "zero run: %s\n", reason.c_str());
    return false;
  }
  find_meeting_point(&options->variables);
  return true;
}

} // namespace

int run_command(int argc, char** argv) {
  RunOptions options;
  options.ranks = 0;
  bool as_deepspeed = false;
  opterr = 0;
  int choice;
  // "+": what follows the first word that is no option belongs to the command.
  while ((choice = getopt_long(argc, argv, "+:n:h", kChoices, nullptr)) != -1) {
    bool good = true;
    switch (choice) {
      case kRanks:
        good = read_integer("--ranks", optarg, 1, kMostRanks, &options.ranks);
        break;
      case kTimeout:
        good = read_seconds("--timeout", optarg, &options.timeout_seconds);
        break;
      case kGrace:
        good = read_seconds("--grace", optarg, &options.grace_seconds);
        break;
      case kTail:
        good = read_integer("--tail", optarg, 0, kMostLines, &options.tail_lines);
        break;
      case kJob:
        options.job = optarg;
        break;
      case kAsDeepspeed:
        as_deepspeed = true;
        break;
      case kHelpChoice:
        std::fputs(kHelp, stdout);
        return 0;
      default:
        std::fprintf(stderr, "zero run: %s %s; zero run --help lists the options\n",
                     argv[optind - 1], choice == ':' ? "needs a value" : "is not an option of it");
        good = false;
    }
    if (!good) return kUsageError;
  }
  for (int i = optind; i < argc; ++i) options.command.emplace_back(argv[i]);
  if (options.ranks == 0 && as_deepspeed) options.ranks = 1;
  if (options.ranks == 0 || options.command.empty()) {
    std::fprintf(stderr, "zero run: %s, as in: zero run -n 2 -- ./trainer\n",
                 options.command.empty() ? "no command" : "the number of ranks is missing");
    return kUsageError;
  }
  if (as_deepspeed && !add_deepspeed_name(&options)) return kUsageError;
  return launch_ranks(options);
}

} // namespace zero::cli

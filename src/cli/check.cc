// The command line of `zero check`.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/check.h"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/check_facts.h"
#include "cli/check_plot.h"
#include "cli/check_report.h"

namespace zero::cli {
namespace {

constexpr int kUsageError = 64;

constexpr char kHelp[] =
    R"(usage: zero check FILE [options]
       zero check --options

Says what a DeepSpeed configuration file means here: errors and warnings with
line and column, every value with where it comes from, what has no effect here,
and what this build cannot run yet.
Exit code: 0 accepted, also with warnings; 1 warnings under --strict; 2 rejected.

  --world N         number of ranks, for the batch equation
  --facts FILE      JSON of what a front end knows, to fill "auto": world_size,
                    train_micro_batch_size_per_gpu, gradient_accumulation_steps,
                    gradient_clipping, fp16, bf16, learning_rate, betas, epsilon,
                    weight_decay, warmup_steps, total_steps, hidden_size
  --strict          warnings fail
  --json            one JSON object instead of a page
  --all             defaults too
  --plot-lr [F.svg] the schedule, drawn into a file or printed
  --updates N       how far the schedule is drawn
  --options         every option that there is, as a Markdown page
)";

enum Choice { kWorld = 256, kFacts, kStrict, kJson, kAll, kPlot, kUpdates, kOptions };

constexpr option kChoices[] = {{"world", required_argument, nullptr, kWorld},
                               {"facts", required_argument, nullptr, kFacts},
                               {"strict", no_argument, nullptr, kStrict},
                               {"json", no_argument, nullptr, kJson},
                               {"all", no_argument, nullptr, kAll},
                               {"plot-lr", optional_argument, nullptr, kPlot},
                               {"updates", required_argument, nullptr, kUpdates},
                               {"options", no_argument, nullptr, kOptions},
                               {"help", no_argument, nullptr, 'h'},
                               {nullptr, 0, nullptr, 0}};

struct Request {
  std::string file;
  std::string facts;
  long world = -1;
  long long updates = 0;
  bool is_strict = false;
  bool wants_json = false;
  bool wants_all = false;
  bool wants_plot = false;
  std::string svg; // "": the terminal
};

bool read_count(const char* name, const char* text, long long most, long long* value) {
  char* end = nullptr;
  *value = std::strtoll(text, &end, 10);
  if (end != text && *end == '\0' && *value >= 1 && *value <= most) return true;
  std::fprintf(stderr, "zero check: %s is \"%s\", expected a whole number from 1 to %lld\n", name,
               text, most);
  return false;
}

bool is_svg(const char* word) {
  const size_t length = std::strlen(word);
  return length > 4 && std::strcmp(word + length - 4, ".svg") == 0;
}

// Words that are no options: the config, and the picture's file, in any order.
bool take_words(int argc, char** argv, Request* request) {
  for (int i = optind; i < argc; ++i) {
    if (request->wants_plot && request->svg.empty() && is_svg(argv[i])) {
      request->svg = argv[i];
    } else if (request->file.empty()) {
      request->file = argv[i];
    } else {
      std::fprintf(stderr, "zero check: one file at a time, \"%s\" is another\n", argv[i]);
      return false;
    }
  }
  if (!request->file.empty()) return true;
  std::fputs("zero check: which file?\n", stderr);
  return false;
}

// -1: go on; otherwise the exit code.
int read_request(int argc, char** argv, Request* request) {
  optind = 1;
  long long number = 0;
  for (int choice; (choice = ::getopt_long(argc, argv, "h", kChoices, nullptr)) != -1;) {
    switch (choice) {
      case kWorld:
        if (!read_count("--world", optarg, INT32_MAX, &number)) return kUsageError;
        request->world = static_cast<long>(number);
        break;
      case kFacts:
        request->facts = optarg;
        break;
      case kStrict:
        request->is_strict = true;
        break;
      case kJson:
        request->wants_json = true;
        break;
      case kAll:
        request->wants_all = true;
        break;
      case kPlot:
        request->wants_plot = true;
        if (optarg != nullptr) request->svg = optarg;
        break;
      case kUpdates:
        if (!read_count("--updates", optarg, 1000000000000, &request->updates)) return kUsageError;
        break;
      case kOptions:
        std::fputs(options_page().c_str(), stdout);
        return 0;
      case 'h':
        std::fputs(kHelp, stdout);
        return 0;
      default:
        std::fputs("zero check --help says what there is\n", stderr);
        return kUsageError;
    }
  }
  return take_words(argc, argv, request) ? -1 : kUsageError;
}

// False where the file could not be written.
bool write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

int plot(const Request& request, const CheckedConfig& checked) {
  if (!request.wants_plot || checked.config == nullptr) return 0;
  const zero_config* config = checked.config.get();
  const int64_t updates = request.updates > 0 ? request.updates : plotted_updates(config);
  std::string error;
  const bool to_terminal = request.svg.empty();
  const std::string picture =
      to_terminal ? plot_text(config, updates, &error) : plot_svg(config, updates, &error);
  if (!error.empty()) {
    std::fprintf(stderr, "zero check: no schedule to draw: %s\n", error.c_str());
    return 2;
  }
  if (to_terminal) {
    std::fputs(picture.c_str(), stdout);
  } else if (!write_file(request.svg, picture)) {
    std::fprintf(stderr, "zero check: cannot write %s\n", request.svg.c_str());
    return kUsageError;
  }
  return 0;
}

} // namespace

int check_command(int argc, char** argv) {
  Request request;
  const int code = read_request(argc, argv, &request);
  if (code >= 0) return code;
  zero_config_facts facts;
  zero_config_facts_init(&facts, sizeof facts);
  std::string error;
  if (!request.facts.empty() && !read_facts(request.facts, &facts, &error)) {
    std::fprintf(stderr, "zero check: %s\n", error.c_str());
    return kUsageError;
  }
  if (request.world > 0) facts.world_size = static_cast<int32_t>(request.world);

  const CheckedConfig checked = check_file(request.file, facts);
  const std::string report = request.wants_json
                                 ? report_json(checked)
                                 : report_page(request.file, checked, request.wants_all);
  std::fputs(report.c_str(), stdout);
  const int plotted = plot(request, checked);
  if (checked.verdict == Verdict::kReject) return 2;
  if (plotted != 0) return plotted;
  return checked.verdict == Verdict::kWarn && request.is_strict ? 1 : 0;
}

} // namespace zero::cli

// SPDX-License-Identifier: BSD-3-Clause
#include "cli/checkpoint_command.h"

#include <getopt.h>
#include <json/value.h>
#include <json/writer.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/checkpoint_diff.h"
#include "cli/checkpoint_handle.h"
#include "cli/last_error.h"

namespace zero::cli {
namespace {

constexpr char kHelp[] =
    R"(usage: zero checkpoint inspect DIR [--json]
       zero checkpoint verify DIR [--json]
       zero checkpoint reshard DIR OUT --world N
       zero checkpoint export DIR OUT [--dtype fp32|fp16|bf16] [--max-file-size SIZE]
       zero checkpoint diff DIR DIR [--json]
       zero checkpoint import-deepspeed DIR OUT [--world N]

DIR is a checkpoint's folder, a file that says its name, or a folder with such a
file called "latest".

  inspect           what is in it: the run, groups, blobs, every parameter
  verify            reads every byte; each damaged range with file, offset, parameter
  reshard           the same state as N ranks would have written it, to OUT (new)
  export            the weights as safetensors: OUT is a file, or with
                    --max-file-size (5GB, 500MiB) a new folder of files with an index;
                    each parameter in its own dtype unless --dtype says another
  diff              compares two of any number of ranks and any stage bit for bit:
                    masters, optimizer states, buffers, steps, groups, blobs
  import-deepspeed  writes a DeepSpeed checkpoint (stages 0 to 3, or universal; DIR
                    holds its "latest", or is the tag's folder) to OUT, as N ranks would
                    have (default: as many as wrote it); runs nothing of its pickles

Long work shows its progress on a terminal.
Exit code: 0 done (verify: whole, diff: equal); 1 damaged, or different; 2 it could
not be done, the reason is on stderr; 64 a wrong command line.
)";

struct Request {
  std::vector<std::string> words; // behind the subcommand
  bool wants_json = false;
  int32_t world = 0;
  zero_dtype dtype = 0;
  uint64_t max_file_bytes = 0;
};

// "5GB" is 5 x 10^9, "5GiB" 5 x 2^30, "5" bytes.
bool read_size(const char* text, uint64_t* bytes) {
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (end == text || !(number > 0)) return false;
  static const struct {
    const char* unit;
    double factor;
  } units[] = {{"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
               {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& known : units) {
    if (std::strcmp(end, known.unit) != 0) continue;
    const double value = std::floor(number * known.factor);
    if (!(value >= 1 && value < 0x1p62)) return false;
    *bytes = static_cast<uint64_t>(value);
    return true;
  }
  return false;
}

// -1: go on; otherwise the exit code.
int read_request(int argc, char** argv, Request* request) {
  static const option choices[] = {{"json", no_argument, nullptr, 'j'},
                                   {"world", required_argument, nullptr, 'w'},
                                   {"dtype", required_argument, nullptr, 'd'},
                                   {"max-file-size", required_argument, nullptr, 'm'},
                                   {"help", no_argument, nullptr, 'h'},
                                   {nullptr, 0, nullptr, 0}};
  optind = 1;
  for (int choice; (choice = ::getopt_long(argc, argv, "h", choices, nullptr)) != -1;) {
    char* end = nullptr;
    long number = 0;
    switch (choice) {
      case 'j':
        request->wants_json = true;
        break;
      case 'w':
        number = std::strtol(optarg, &end, 10);
        if (end == optarg || *end != '\0' || number < 1 || number > 4096) {
          std::fprintf(
              stderr,
              "zero checkpoint: --world is \"%s\", expected a whole number from 1 to 4096\n",
              optarg);
          return kUsage;
        }
        request->world = static_cast<int32_t>(number);
        break;
      case 'd':
        for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_FP16, ZERO_DTYPE_BF16}) {
          if (std::strcmp(optarg, dtype_text(dtype)) == 0) request->dtype = dtype;
        }
        if (request->dtype == 0) {
          std::fprintf(stderr, "zero checkpoint: --dtype is \"%s\", expected fp32, fp16 or bf16\n",
                       optarg);
          return kUsage;
        }
        break;
      case 'm':
        if (!read_size(optarg, &request->max_file_bytes)) {
          std::fprintf(stderr,
                       "zero checkpoint: --max-file-size is \"%s\", expected a size such as 5GB\n",
                       optarg);
          return kUsage;
        }
        break;
      case 'h':
        std::fputs(kHelp, stdout);
        return kDone;
      default:
        std::fputs("zero checkpoint --help says what there is\n", stderr);
        return kUsage;
    }
  }
  for (int i = optind; i < argc; ++i) request->words.emplace_back(argv[i]);
  return -1;
}

void print_json(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "  ";
  builder["emitUTF8"] = true;
  builder["precision"] = 17;
  std::printf("%s\n", Json::writeString(builder, value).c_str());
}

Json::Value texts(const std::vector<std::string>& lines) {
  Json::Value list(Json::arrayValue);
  for (const std::string& line : lines) list.append(line);
  return list;
}

int inspect(const Request& request) {
  const CheckpointHandle checkpoint(request.words[0]);
  if (!checkpoint.ok()) return complain("inspect");
  if (!request.wants_json) {
    std::fputs(checkpoint.text().c_str(), stdout);
    return kDone;
  }
  const zero_checkpoint_info info = checkpoint.info();
  Json::Value root(Json::objectValue);
  root["format_version"] = info.format_version;
  root["step"] = Json::Int64{info.step};
  root["skipped_total"] = Json::Int64{info.skipped_total};
  root["loss_scale"] = info.loss_scale;
  root["world_size"] = info.world_size;
  root["stage"] = info.stage;
  root["bytes"] = Json::UInt64{info.bytes};
  root["weights_only"] = info.weights_only != 0;
  root["state_count"] = info.state_count;
  root["groups"] = texts(checkpoint.lines("group"));
  root["blobs"] = texts(checkpoint.lines("blob"));
  root["parameters"] = Json::Value(Json::arrayValue);
  for (int64_t i = 0; i < info.param_count; ++i) {
    const CheckpointParam param = checkpoint.param(i);
    Json::Value one(Json::objectValue);
    one["name"] = param.name;
    one["shape"] = Json::Value(Json::arrayValue);
    for (const int64_t extent : param.shape) one["shape"].append(Json::Int64{extent});
    one["dtype"] = dtype_text(param.dtype);
    one["role"] = role_text(param.role);
    one["group"] = param.group;
    one["updates"] = Json::Int64{param.steps};
    if (param.tied_to >= 0) one["tied_to"] = checkpoint.param(param.tied_to).name;
    root["parameters"].append(one);
  }
  print_json(root);
  return kDone;
}

int verify(const Request& request) {
  const CheckpointHandle checkpoint(request.words[0]);
  const auto report = [&](bool whole, const std::vector<std::string>& damaged) {
    if (request.wants_json) {
      Json::Value root(Json::objectValue);
      root["whole"] = whole;
      root["damaged"] = texts(damaged);
      print_json(root);
      return;
    }
    for (const std::string& line : damaged) std::printf("%s\n", line.c_str());
    if (whole) {
      const zero_checkpoint_info info = checkpoint.info();
      std::printf("whole: step %lld, %lld parameters, %llu bytes\n",
                  static_cast<long long>(info.step), static_cast<long long>(info.param_count),
                  static_cast<unsigned long long>(info.bytes));
    }
  };
  const auto is_damage = [](zero_status status) { return status >= 100 && status < 120; };
  zero_error_info error;
  zero_error_info_init(&error, sizeof error);
  if (!checkpoint.ok()) {
    zero_last_error(&error);
    if (!is_damage(error.status)) return complain("verify");
    report(false, {last_error_text()}); // a manifest that cannot be trusted
    return kDifferent;
  }
  zero_status status;
  {
    ProgressLine progress("verify");
    zero_checkpoint_progress(checkpoint.get(), progress.callback());
    status = zero_checkpoint_verify(checkpoint.get());
    zero_checkpoint_progress(checkpoint.get(), nullptr);
  }
  if (status == ZERO_OK) {
    report(true, {});
    return kDone;
  }
  if (!is_damage(status)) return complain("verify");
  std::vector<std::string> damaged = checkpoint.lines("damaged");
  if (damaged.empty()) damaged.push_back(last_error_text());
  report(false, damaged);
  return kDifferent;
}

int reshard(const Request& request) {
  if (request.world == 0) {
    std::fputs("zero checkpoint reshard: --world N says for how many ranks\n", stderr);
    return kUsage;
  }
  const CheckpointHandle checkpoint(request.words[0]);
  if (!checkpoint.ok()) return complain("reshard");
  ProgressLine progress("reshard");
  zero_checkpoint_progress(checkpoint.get(), progress.callback());
  const zero_status status =
      zero_checkpoint_reshard(checkpoint.get(), request.words[1].c_str(), request.world);
  zero_checkpoint_progress(checkpoint.get(), nullptr);
  return status == ZERO_OK ? kDone : complain("reshard");
}

int export_weights(const Request& request) {
  const CheckpointHandle checkpoint(request.words[0]);
  if (!checkpoint.ok()) return complain("export");
  ProgressLine progress("export");
  zero_checkpoint_progress(checkpoint.get(), progress.callback());
  const zero_status status = zero_checkpoint_export(checkpoint.get(), request.words[1].c_str(),
                                                    request.dtype, request.max_file_bytes);
  zero_checkpoint_progress(checkpoint.get(), nullptr);
  return status == ZERO_OK ? kDone : complain("export");
}

int diff(const Request& request) {
  const CheckpointHandle one(request.words[0]);
  if (!one.ok()) return complain("diff");
  const CheckpointHandle other(request.words[1]);
  if (!other.ok()) return complain("diff");
  std::vector<CheckpointDifference> differences;
  bool compared;
  {
    ProgressLine progress("diff");
    compared = compare_checkpoints(one, other, &progress, &differences);
  }
  if (!compared) return complain("diff");
  if (request.wants_json) {
    Json::Value root(Json::objectValue);
    root["equal"] = differences.empty();
    root["differences"] = Json::Value(Json::arrayValue);
    for (const CheckpointDifference& difference : differences) {
      Json::Value line(Json::objectValue);
      line["what"] = difference.what;
      line["how"] = difference.how;
      root["differences"].append(line);
    }
    print_json(root);
  } else if (differences.empty()) {
    std::puts("equal");
  } else {
    for (const CheckpointDifference& difference : differences) {
      std::printf("%s: %s\n", difference.what.c_str(), difference.how.c_str());
    }
  }
  return differences.empty() ? kDone : kDifferent;
}

int import_deepspeed(const Request& request) {
  ProgressLine progress("import");
  const zero_status status = zero_checkpoint_import_deepspeed(
      request.words[0].c_str(), request.words[1].c_str(), request.world, progress.callback());
  return status == ZERO_OK ? kDone : complain("import-deepspeed");
}

struct Subcommand {
  const char* name;
  size_t words;
  const char* usage;
  int (*call)(const Request& request);
};

constexpr Subcommand kSubcommands[] = {
    {"inspect", 1, "DIR [--json]", inspect},
    {"verify", 1, "DIR [--json]", verify},
    {"reshard", 2, "DIR OUT --world N", reshard},
    {"export", 2, "DIR OUT [--dtype fp32|fp16|bf16] [--max-file-size SIZE]", export_weights},
    {"diff", 2, "DIR DIR [--json]", diff},
    {"import-deepspeed", 2, "DIR OUT [--world N]", import_deepspeed},
};

} // namespace

int checkpoint_command(int argc, char** argv) {
  Request request;
  const int code = read_request(argc, argv, &request);
  if (code >= 0) return code;
  if (request.words.empty()) {
    std::fputs(kHelp, stderr);
    return kUsage;
  }
  const std::string name = request.words[0];
  request.words.erase(request.words.begin());
  for (const Subcommand& subcommand : kSubcommands) {
    if (name != subcommand.name) continue;
    if (request.words.size() == subcommand.words) return subcommand.call(request);
    std::fprintf(stderr, "usage: zero checkpoint %s %s\n", subcommand.name, subcommand.usage);
    return kUsage;
  }
  std::fprintf(stderr, "zero checkpoint: unknown subcommand \"%s\"; --help says what there is\n",
               name.c_str());
  return kUsage;
}

} // namespace zero::cli

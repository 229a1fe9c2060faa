// The command line of `zero plan`.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_command.h"

#include <getopt.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/plan_activations.h"
#include "cli/plan_chart.h"
#include "cli/plan_report.h"

namespace zero::cli {
namespace {

constexpr int kUsageError = 64;
constexpr int kRefused = 2;

constexpr char kHelp[] =
    R"(usage: zero plan --model FILE --config ds.json [options]

What a rank holds at each ZeRO stage, with and without offload, the largest
micro-batch that fits and what binds it. Nothing is allocated, no device asked.
FILE lists parameters: tab-separated (name, shape, dtype), a safetensors file,
an index, or a folder of them.

  --world N             ranks (default 1)
  --ranks-per-host N    of them on one machine (default: all, at most 8)
  --gpu-memory SIZE     of a rank: 24GB (10^9), 24GiB (2^30) or bytes
  --host-memory SIZE    of a machine
  --reserve SIZE        of the GPU: contexts, libraries, other programs
  --on-host             ranks train in host memory; --host-memory is what there is
  --dtype T             parameters: config (what fp16 and bf16 say; the default),
                        file, fp32, fp16, bf16
  --activation-bytes-per-sample N
  --transformer H,L,A,S,V   or: hidden, layers, heads, tokens, vocabulary
                        (0: no language head)
  --decoder L,S         an encoder-decoder: the decoder's layers and tokens
  --relative-positions R    DeBERTa's attention
  --activations HOW     paper (Korthikanti et al. 2022; the default), eager (a
                        16-bit model op by op) or autocast (mixed precision)
  --recompute WHAT      none (default), selective or full
  --deepspeed           DeepSpeed's own estimates beside ours, and why they differ
  --json                one JSON object instead of a table
  --svg FILE            stacked bars
Exit code: 0 planned, whether it fits or not; 2 config or model refused.
)";

enum Choice {
  kModel = 256,
  kConfig,
  kWorld,
  kRanksPerHost,
  kGpuMemory,
  kHostMemory,
  kReserve,
  kOnHost,
  kDtype,
  kActivationBytes,
  kTransformer,
  kDecoder,
  kRelative,
  kActivations,
  kRecompute,
  kDeepSpeed,
  kJson,
  kSvg
};

constexpr option kChoices[] = {
    {"model", required_argument, nullptr, kModel},
    {"config", required_argument, nullptr, kConfig},
    {"world", required_argument, nullptr, kWorld},
    {"ranks-per-host", required_argument, nullptr, kRanksPerHost},
    {"gpu-memory", required_argument, nullptr, kGpuMemory},
    {"host-memory", required_argument, nullptr, kHostMemory},
    {"reserve", required_argument, nullptr, kReserve},
    {"on-host", no_argument, nullptr, kOnHost},
    {"dtype", required_argument, nullptr, kDtype},
    {"activation-bytes-per-sample", required_argument, nullptr, kActivationBytes},
    {"transformer", required_argument, nullptr, kTransformer},
    {"decoder", required_argument, nullptr, kDecoder},
    {"relative-positions", required_argument, nullptr, kRelative},
    {"activations", required_argument, nullptr, kActivations},
    {"recompute", required_argument, nullptr, kRecompute},
    {"deepspeed", no_argument, nullptr, kDeepSpeed},
    {"json", no_argument, nullptr, kJson},
    {"svg", required_argument, nullptr, kSvg},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0}};

struct Request {
  std::string model;
  std::string config;
  std::string dtype = "config";
  std::string svg;
  PlanLimits limits;
  Transformer transformer;
  Keeping keeping = Keeping::kPaper;
  Recompute recompute = Recompute::kNone;
  bool has_transformer = false;
  bool wants_deepspeed = false;
  bool wants_json = false;
};

bool refuse(const char* name, const char* value, const char* expected) {
  std::fprintf(stderr, "zero plan: %s is \"%s\", expected %s\n", name, value, expected);
  return false;
}

bool read_count(const char* name, const char* text, int32_t* value) {
  char* end = nullptr;
  const long long number = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || number < 1 || number > INT32_MAX) {
    return refuse(name, text, "a whole number from 1 to 2147483647");
  }
  *value = static_cast<int32_t>(number);
  return true;
}

// "24GB", "1.5 GiB", "800MB" or bytes; units as in "libzero.memory_budget".
bool read_size(const char* name, const char* text, uint64_t* bytes) {
  constexpr struct {
    const char* unit;
    double bytes;
  } kUnits[] = {{"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
                {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  while (end != text && *end == ' ') ++end;
  for (const auto& one : kUnits) {
    if (end == text || std::strcmp(end, one.unit) != 0) continue;
    if (!(number >= 0) || number * one.bytes >= 0x1p63) break;
    *bytes = static_cast<uint64_t>(std::llround(number * one.bytes));
    return true;
  }
  return refuse(name, text, "a size such as 24GB, 24GiB or 24000000000");
}

// The index of text among words, -1 and a sentence if it is none.
template <size_t kCount>
int read_word(const char* name, const char* text, const char* const (&words)[kCount]) {
  std::string expected = "one of";
  for (size_t i = 0; i < kCount; ++i) {
    if (std::strcmp(text, words[i]) == 0) return static_cast<int>(i);
    expected += std::string(i == 0 ? " " : ", ") + words[i];
  }
  refuse(name, text, expected.c_str());
  return -1;
}

bool take(int choice, const char* value, Request* request) {
  constexpr const char* kDtypes[] = {"config", "file", "fp32", "fp16", "bf16"};
  constexpr const char* kKeepings[] = {"paper", "eager", "autocast"};
  constexpr const char* kRecomputes[] = {"none", "selective", "full"};
  PlanLimits& limits = request->limits;
  int word = 0;
  int32_t count = 0;
  switch (choice) {
    case kModel:
      request->model = value;
      return true;
    case kConfig:
      request->config = value;
      return true;
    case kSvg:
      request->svg = value;
      return true;
    case kJson:
      request->wants_json = true;
      return true;
    case kOnHost:
      limits.on_host = true;
      return true;
    case kDeepSpeed:
      request->wants_deepspeed = true;
      return true;
    case kWorld:
      return read_count("--world", value, &limits.world);
    case kRanksPerHost:
      return read_count("--ranks-per-host", value, &limits.ranks_per_host);
    case kGpuMemory:
      return read_size("--gpu-memory", value, &limits.gpu_bytes);
    case kHostMemory:
      return read_size("--host-memory", value, &limits.host_bytes);
    case kReserve:
      return read_size("--reserve", value, &limits.reserve_bytes);
    case kActivationBytes:
      return read_size("--activation-bytes-per-sample", value, &limits.activation_bytes);
    case kTransformer:
      request->has_transformer = true;
      return read_transformer(value, &request->transformer) ||
             refuse("--transformer", value, "hidden,layers,heads,tokens,vocabulary");
    case kDecoder:
      return read_decoder(value, &request->transformer) ||
             refuse("--decoder", value, "layers,tokens");
    case kRelative:
      if (!read_count("--relative-positions", value, &count)) return false;
      request->transformer.relative_positions = static_cast<uint64_t>(count);
      return true;
    case kDtype:
      request->dtype = value;
      return read_word("--dtype", value, kDtypes) >= 0;
    case kActivations:
      word = read_word("--activations", value, kKeepings);
      request->keeping = static_cast<Keeping>(word);
      return word >= 0;
    case kRecompute:
      word = read_word("--recompute", value, kRecomputes);
      request->recompute = static_cast<Recompute>(word);
      return word >= 0;
    default:
      std::fputs("zero plan --help says what there is\n", stderr);
      return false;
  }
}

bool is_complete(const Request& request) {
  const Transformer& shape = request.transformer;
  const char* why = nullptr;
  if (request.model.empty()) why = "--model FILE is needed";
  if (request.config.empty()) why = "--config FILE is needed";
  if (request.limits.on_host && request.limits.gpu_bytes > 0)
    why = "--on-host and --gpu-memory exclude each other";
  if (request.has_transformer && request.limits.activation_bytes > 0)
    why = "--transformer and --activation-bytes-per-sample exclude each other";
  if (!request.has_transformer && (shape.decoder_layers > 0 || shape.relative_positions > 0))
    why = "--decoder and --relative-positions need --transformer";
  if (why != nullptr) std::fprintf(stderr, "zero plan: %s\n", why);
  return why == nullptr;
}

// -1: go on; otherwise the exit code.
int read_request(int argc, char** argv, Request* request) {
  optind = 1;
  PlanLimits& limits = request->limits;
  limits.ranks_per_host = 0;
  for (int choice; (choice = ::getopt_long(argc, argv, "h", kChoices, nullptr)) != -1;) {
    if (choice == 'h') {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (!take(choice, optarg, request)) return kUsageError;
  }
  if (optind < argc) {
    std::fprintf(stderr, "zero plan: \"%s\" is no option; --model and --config name the files\n",
                 argv[optind]);
    return kUsageError;
  }
  if (limits.ranks_per_host == 0) limits.ranks_per_host = limits.world < 8 ? limits.world : 8;
  if (limits.ranks_per_host > limits.world) limits.ranks_per_host = limits.world;
  return is_complete(*request) ? -1 : kUsageError;
}

// What "auto" becomes: a front end would fill it, and none of it but hidden_size decides bytes.
zero_config_facts facts_of(const Request& request) {
  zero_config_facts facts;
  zero_config_facts_init(&facts, sizeof facts);
  facts.world_size = request.limits.world;
  facts.micro_batch_size = 1;
  facts.accumulation_steps = 1;
  facts.learning_rate = 1e-4;
  facts.beta1 = 0.9;
  facts.beta2 = 0.999;
  facts.epsilon = 1e-8;
  facts.weight_decay = 0.01;
  facts.gradient_clipping = 1;
  facts.warmup_steps = 100;
  facts.total_steps = 1000;
  facts.compute_dtype = ZERO_DTYPE_FP32;
  if (request.has_transformer) {
    facts.hidden_size = static_cast<int64_t>(request.transformer.hidden);
  }
  return facts;
}

std::shared_ptr<zero_config> read_config(const Request& request) {
  const CheckedConfig checked = check_file(request.config, facts_of(request));
  if (checked.verdict != Verdict::kReject) return checked.config;
  for (const Finding& finding : checked.findings) {
    if (!finding.is_error) continue;
    std::fprintf(stderr, "zero plan: %s:%d:%d: %s\n", request.config.c_str(), finding.line,
                 finding.column, finding.message.c_str());
  }
  return nullptr;
}

std::string activation_words(const Request& request) {
  if (!request.has_transformer) return "";
  constexpr const char* kKeepings[] = {"Korthikanti et al. 2022", "16 bits, op by op",
                                       "mixed precision, op by op"};
  constexpr const char* kRecomputes[] = {"", ", scores recomputed", ", layers recomputed"};
  return std::string(" (") + kKeepings[static_cast<size_t>(request.keeping)] +
         kRecomputes[static_cast<size_t>(request.recompute)] + ")";
}

bool write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

} // namespace

int plan_command(int argc, char** argv) {
  Request request;
  const int code = read_request(argc, argv, &request);
  if (code >= 0) return code;
  const std::shared_ptr<zero_config> config = read_config(request);
  if (config == nullptr) return kRefused;
  if (request.has_transformer) {
    request.limits.activation_bytes =
        activation_bytes(request.transformer, request.keeping, request.recompute);
  }

  PlanReport report;
  std::string error;
  if (!load_model(request.model, request.dtype, config.get(), &report.model, &error) ||
      !plan_rows(config.get(), report.model, request.limits, &report.rows, &error)) {
    std::fprintf(stderr, "zero plan: %s\n", error.c_str());
    return kRefused;
  }
  report.limits = request.limits;
  report.activation_words = activation_words(request);
  if (request.wants_deepspeed) {
    report.estimates = deepspeed_estimates(report.model.counts, request.limits);
  }
  std::fputs((request.wants_json ? plan_json(report) : plan_page(report)).c_str(), stdout);
  if (request.svg.empty() || write_file(request.svg, plan_svg(report))) return 0;
  std::fprintf(stderr, "zero plan: cannot write %s\n", request.svg.c_str());
  return kUsageError;
}

} // namespace zero::cli

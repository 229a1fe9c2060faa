// Keeps what a Config was told and judges it when somebody asks.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/config.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include <sys/stat.h>

#include "base/error.h"
#include "config/config_text.h"
#include "config/judgement.h"
#include "config/option_value.h"
#include "config/settings_of.h"

namespace zero::config {
namespace {

constexpr uint64_t kLargestFile = 64u << 20;

zero_config_facts unknown_facts() {
  zero_config_facts facts;
  std::memset(&facts, 0, sizeof facts);
  facts.struct_size = sizeof facts;
  facts.world_size = -1;
  facts.micro_batch_size = facts.accumulation_steps = facts.hidden_size = -1;
  facts.warmup_steps = facts.total_steps = -1;
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  facts.learning_rate = facts.beta1 = facts.beta2 = facts.epsilon = unknown;
  facts.weight_decay = facts.gradient_clipping = unknown;
  return facts;
}

template <typename Integer>
void merge_integer(Integer* known, Integer fact) {
  if (fact >= 0) *known = fact;
}

void merge_number(double* known, double fact) {
  if (!std::isnan(fact)) *known = fact;
}

void merge(zero_config_facts* known, const zero_config_facts& facts) {
  merge_integer(&known->world_size, facts.world_size);
  merge_integer(&known->micro_batch_size, facts.micro_batch_size);
  merge_integer(&known->accumulation_steps, facts.accumulation_steps);
  merge_integer(&known->hidden_size, facts.hidden_size);
  merge_integer(&known->warmup_steps, facts.warmup_steps);
  merge_integer(&known->total_steps, facts.total_steps);
  merge_number(&known->learning_rate, facts.learning_rate);
  merge_number(&known->beta1, facts.beta1);
  merge_number(&known->beta2, facts.beta2);
  merge_number(&known->epsilon, facts.epsilon);
  merge_number(&known->weight_decay, facts.weight_decay);
  merge_number(&known->gradient_clipping, facts.gradient_clipping);
  if (facts.compute_dtype != 0) known->compute_dtype = facts.compute_dtype;
}

class File {
 public:
  explicit File(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    if (file_ == nullptr) refuse(errno);
    struct stat status;
    if (::fstat(::fileno(file_), &status) != 0) refuse(errno);
    if (S_ISDIR(status.st_mode)) {
      std::fclose(file_);
      fail(ZERO_ERR_IO, "config file %s is a directory, expected a file", path_.c_str());
    }
  }
  ~File() { std::fclose(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string read() {
    std::string text;
    char block[65536];
    while (true) {
      const size_t got = std::fread(block, 1, sizeof block, file_);
      text.append(block, got);
      if (text.size() > kLargestFile) {
        fail(ZERO_ERR_CONFIG_SYNTAX, "config file %s is larger than 64 MiB", path_.c_str());
      }
      if (got < sizeof block) break;
    }
    if (std::ferror(file_) != 0) fail_os(errno, "reading config file %s", path_.c_str());
    return text;
  }

 private:
  [[noreturn]] void refuse(int error) {
    if (file_ != nullptr) std::fclose(file_);
    if (error == ENOENT) fail(ZERO_ERR_NOT_FOUND, "config file %s does not exist", path_.c_str());
    fail_os(error, "opening config file %s", path_.c_str());
  }

  std::string path_;
  FILE* file_;
};

std::string string_list(const std::vector<std::string>& items) {
  Node list;
  list.kind = NodeKind::kArray;
  for (const std::string& item : items) list.items.push_back(Node::string(item));
  return to_json(list);
}

// The canonical key, or CONFIG_UNKNOWN_KEY.
std::string canonical_key(const std::string& key) {
  std::string canonical = key;
  if (const Alias* alias = find_alias(key)) canonical = alias->target;
  if (find_option(canonical) != nullptr) return canonical;
  const std::string nearest = nearest_key(key);
  if (nearest.empty()) fail(ZERO_ERR_CONFIG_UNKNOWN_KEY, "%s: unknown key", key.c_str());
  fail(ZERO_ERR_CONFIG_UNKNOWN_KEY, "%s: unknown key, the nearest known one is %s", key.c_str(),
       nearest.c_str());
}

// A word that is no JSON is taken as a string: "zero_optimization.offload_param.device", "cpu".
Node value_from_text(const Option& option, const std::string& value) {
  try {
    return read_json(value, RootRule::kAnyValue).root;
  } catch (const Error&) {
    const bool is_word = option.kind == OptionKind::kText || option.kind == OptionKind::kChoice ||
                         option.kind == OptionKind::kBytes || value == "auto" || value == "all";
    if (!is_word || value.empty()) throw;
    return Node::string(value);
  }
}

} // namespace

class ConfigState {
 public:
  ConfigState() {
    source_.facts = unknown_facts();
    source_.document.root.kind = NodeKind::kObject;
  }
  ConfigState(const ConfigState& other) : findings(other.findings), source_(other.source_) {}
  ConfigState& operator=(const ConfigState&) = delete;

  const Source& source() const { return source_; }
  Source& change() {
    judgement_.reset();
    return source_;
  }
  // Judged once, by the first who asks; several threads may ask for a schedule.
  const Judgement& judged() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!judgement_) judgement_ = judge(source_);
    return *judgement_;
  }

  std::vector<Diagnostic> findings; // of the last check

 private:
  Source source_;
  std::mutex mutex_;
  std::optional<Judgement> judgement_;
};

Config::Config() : state_(std::make_unique<ConfigState>()) {}
Config::Config(const Config& other) : state_(std::make_unique<ConfigState>(*other.state_)) {}
Config& Config::operator=(const Config& other) {
  if (this != &other) state_ = std::make_unique<ConfigState>(*other.state_);
  return *this;
}
Config::~Config() = default;

Config Config::load_file(const std::string& path) {
  const std::string text = File(path).read();
  try {
    return load_text(text);
  } catch (const Error& error) {
    throw error.with_context("in config file " + path);
  }
}

Config Config::load_text(std::string_view text) {
  if (text.size() > kLargestFile) {
    fail(ZERO_ERR_CONFIG_SYNTAX, "a config of %llu bytes, expected at most 64 MiB",
         static_cast<unsigned long long>(text.size()));
  }
  Config config;
  Source& source = config.state_->change();
  source.document = read_json(text, RootRule::kObject);
  source.has_text = true;
  return config;
}

void Config::set(const std::string& key, const std::string& value) {
  const std::string canonical = canonical_key(key);
  Node node = value_from_text(*find_option(canonical), value);
  if (const Alias* alias = find_alias(key);
      alias != nullptr && find_option(canonical)->kind == OptionKind::kChoice) {
    // cpu_offload: a truth value that stands for a device.
    node = Node::string(node.truth || node.text == "true" ? "cpu" : "none");
  }
  node.position = Position();
  state_->change().sets.emplace_back(key, node);
}

void Config::fill_auto(const zero_config_facts& facts) {
  Source& source = state_->change();
  merge(&source.facts, facts);
  source.has_facts = true;
}

void Config::set_world_size(int32_t world_size) {
  if (state_->source().facts.world_size > 0) return;
  state_->change().facts.world_size = world_size;
}

zero_status Config::check() {
  state_->findings = state_->judged().diagnostics;
  for (const Diagnostic& one : state_->findings) {
    if (one.is_error) return one.status;
  }
  return ZERO_OK;
}

const std::vector<Diagnostic>& Config::diagnostics() const {
  return state_->findings;
}

std::string Config::value(const std::string& key) const {
  const Judgement& judgement = state_->judged();
  if (key == "libzero.notes") return string_list(judgement.notes);
  if (key == "libzero.not_in_this_build") return string_list(judgement.later);
  return to_json(judgement.at(canonical_key(key)));
}

const char* Config::origin(const std::string& key) const {
  const Judgement& judgement = state_->judged();
  if (key == "libzero.notes" || key == "libzero.not_in_this_build") return "derived";
  return judgement.values.at(canonical_key(key)).origin;
}

std::string Config::text() const {
  return config_text(state_->source(), state_->judged());
}

Settings Config::settings() const {
  const Judgement& judgement = state_->judged();
  zero_status status = ZERO_OK;
  std::string message;
  for (const Diagnostic& one : judgement.diagnostics) {
    if (!one.is_error || one.concerns_samples_only) continue;
    if (status == ZERO_OK) status = one.status;
    message += (message.empty() ? "" : "; ") + one.message;
    if (one.line > 0) message += format(" (line %d, column %d)", one.line, one.column);
  }
  if (status != ZERO_OK) throw Error(status, message);
  return settings_of(judgement);
}

int32_t option_count() {
  return static_cast<int32_t>(options().size());
}

void option_at(int32_t index, zero_option_info* info) {
  if (index < 0 || index >= option_count()) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "option index is %d, expected 0..%d", index,
         option_count() - 1);
  }
  const Option& option = options()[static_cast<size_t>(index)];
  info->key = option.key;
  info->default_value = option.default_json;
  info->choices = option.choices;
  info->help = option.help;
  info->minimum = option.minimum;
  info->maximum = option.maximum;
  switch (option.kind) {
    case OptionKind::kInteger:
    case OptionKind::kIntegerOrAll:
    case OptionKind::kIntegerOrNever:
      info->kind = ZERO_OPTION_INTEGER;
      break;
    case OptionKind::kNumber:
      info->kind = ZERO_OPTION_NUMBER;
      break;
    case OptionKind::kBoolean:
      info->kind = ZERO_OPTION_BOOLEAN;
      break;
    case OptionKind::kChoice:
      info->kind = ZERO_OPTION_CHOICE;
      break;
    case OptionKind::kBytes:
    case OptionKind::kText:
    case OptionKind::kPair:
    case OptionKind::kList:
      info->kind = ZERO_OPTION_TEXT;
  }
}

} // namespace zero::config

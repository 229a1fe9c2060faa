// One row a key: the types that read it.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/optimizer_rules.h"

#include "base/error.h"
#include "config/option_value.h"

namespace zero::config {
namespace {

struct Reader {
  const char* key;
  const char* types; // lower case, each with a blank around
};

const Reader kOptimizerReaders[] = {
    {"lr", " adam adamw sgd adagrad lion lamb muon "},
    {"betas", " adam adamw lion lamb muon "},
    {"eps", " adam adamw adagrad lamb muon "},
    {"weight_decay", " adam adamw sgd adagrad lion lamb muon "},
    {"bias_correction", " adam adamw lamb "},
    {"adam_w_mode", " adam "},
    {"torch_adam", " adam adamw "},
    {"amsgrad", " adam adamw lamb "},
    {"fp32_optimizer_states", " adam adamw adagrad lion "},
    {"set_grad_none", " adam adamw lion "},
    {"momentum", " sgd muon "},
    {"dampening", " sgd "},
    {"nesterov", " sgd "},
    {"lr_decay", " adagrad "},
    {"initial_accumulator_value", " adagrad "},
    {"maximize", " adam adamw sgd adagrad lion "},
    {"max_coeff", " lamb "},
    {"min_coeff", " lamb "},
    {"eps_inside_sqrt", " lamb "},
    {"muon_lr", " muon "},
    {"adam_lr", " muon "},
    {"ns_method", " muon "},
    {"states", " libzero.host "},
    {"max_grad_norm", " adam adamw sgd adagrad lion lamb muon "},
};

const Reader kScheduleReaders[] = {
    {"warmup_min_lr", " warmuplr warmupdecaylr "},
    {"warmup_max_lr", " warmuplr warmupdecaylr "},
    {"warmup_num_steps", " warmuplr warmupdecaylr warmupcosinelr "},
    {"warmup_type", " warmuplr warmupdecaylr warmupcosinelr "},
    {"total_num_steps", " warmupdecaylr warmupcosinelr "},
    {"warmup_min_ratio", " warmupcosinelr "},
    {"cos_min_ratio", " warmupcosinelr "},
    {"lr_range_test_min_lr", " lrrangetest "},
    {"lr_range_test_step_size", " lrrangetest "},
    {"lr_range_test_step_rate", " lrrangetest "},
    {"lr_range_test_staircase", " lrrangetest "},
    {"last_batch_iteration", " warmuplr warmupdecaylr warmupcosinelr onecycle lrrangetest "},
};

const char* const kOptimizerNames[] = {"",     "adam", "adamw", "sgd",         "adagrad",
                                       "lion", "lamb", "muon",  "libzero.host"};
const char* const kScheduleNames[] = {"",         "warmuplr",   "warmupdecaylr", "warmupcosinelr",
                                      "onecycle", "lrrangetest"};

std::string_view last_part(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

template <size_t kCount>
int index_of(const char* const (&names)[kCount], std::string_view name) {
  const std::string wanted = lower_case(name);
  for (size_t i = 1; i < kCount; ++i) {
    if (wanted == names[i]) return static_cast<int>(i);
  }
  return -1;
}

template <size_t kCount>
const char* types_of(const Reader (&readers)[kCount], std::string_view key) {
  for (const Reader& reader : readers) {
    if (last_part(key) == reader.key) return reader.types;
  }
  return nullptr;
}

bool lists(const char* types, const char* name) {
  return std::string_view(types).find(format(" %s ", name)) != std::string_view::npos;
}

} // namespace

std::optional<OptimizerType> optimizer_type(std::string_view name) {
  const int index = index_of(kOptimizerNames, name);
  if (index < 0) return std::nullopt;
  return static_cast<OptimizerType>(index);
}

std::optional<ScheduleType> schedule_type(std::string_view name) {
  const int index = index_of(kScheduleNames, name);
  if (index < 0) return std::nullopt;
  return static_cast<ScheduleType>(index);
}

bool is_one_bit(std::string_view name) {
  const std::string lower = lower_case(name);
  return lower == "onebitadam" || lower == "zerooneadam" || lower == "onebitlamb";
}

bool optimizer_reads(OptimizerType type, std::string_view key) {
  const char* types = types_of(kOptimizerReaders, key);
  return types != nullptr && lists(types, kOptimizerNames[static_cast<int>(type)]);
}

// What no row names is OneCycle's.
bool schedule_reads(ScheduleType type, std::string_view key) {
  const char* types = types_of(kScheduleReaders, key);
  if (types == nullptr) return type == ScheduleType::kOneCycle;
  return lists(types, kScheduleNames[static_cast<int>(type)]);
}

} // namespace zero::config

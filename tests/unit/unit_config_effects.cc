// No option is accepted and then ignored.  For every row of the option table: one that acts changes
// Settings; one that does not says so by a warning, an error, a note, or "not in this build".
// SPDX-License-Identifier: BSD-3-Clause
#include <map>
#include <sstream>
#include <string>

#include "config/option_table.h"
#include "config_help.h"

namespace {

using config_help::find;
using config_help::has;
using zero::config::Config;
using zero::config::Option;
using zero::config::OptionKind;
using zero::config::options;
using zero::config::Settings;
using zero::config::Standing;

// Every field, so that a difference in any is a difference in the text.
std::string fields(const Settings& s) {
  std::ostringstream out;
  out.precision(17);
  const auto put = [&](const auto&... values) { ((out << values << ' '), ...); };
  put(s.stage, s.train_batch, s.micro_batch, s.accumulation_steps, s.compute_dtype);
  put(s.accumulation_dtype, s.communication_dtype, s.check_grad_overflow, s.gradient_clipping);
  put(s.master_dtype, s.state_dtype, s.master_is_remainder);
  put(s.prescale_gradients, s.gradient_predivide_factor, s.reduce_is_sum);
  put(s.reduce_bucket_elements, s.prefetch_bucket_elements, s.persistence_threshold_elements);
  put(s.model_persistence_threshold_elements, s.max_live_elements, s.overlap_comm);
  put(s.open_buckets, s.live_elements, s.reproducible_stage, s.param_norms,
      s.checkpoint_background);
  put(s.missing_gradients_are_zero, static_cast<int>(s.initial_values), s.initial_rank, s.comm);
  put(s.comm_timeout_ns, s.threads, s.staging_segment_bytes, s.device_is_host, s.group);
  put(s.memory_budget, s.offload_optimizer, s.offload_param, s.offload_pinned);
  for (const std::string& later : s.not_in_this_build) put(later);
  const auto& o = s.optimizer;
  put('|', static_cast<int>(o.type), o.lr, o.beta1, o.beta2, o.epsilon, o.weight_decay, o.momentum);
  put(o.dampening, o.nesterov, o.decoupled_decay, o.bias_correction, o.max_coefficient);
  put(o.min_coefficient, o.epsilon_inside_sqrt, o.muon_lr, o.muon_adam_lr, o.host_states);
  const auto& c = s.schedule;
  put('|', static_cast<int>(c.type), c.warmup_is_linear, c.warmup_min_lr, c.warmup_max_lr);
  put(c.has_warmup_max_lr, c.warmup_steps, c.total_steps, c.warmup_min_ratio, c.cosine_min_ratio);
  put(c.cycle_min_lr, c.cycle_max_lr, c.decay_lr_rate, c.cycle_first_steps, c.cycle_second_steps);
  put(c.cycle_first_stairs, c.cycle_second_stairs, c.decay_steps, c.cycle_momentum);
  put(c.cycle_min_momentum, c.cycle_max_momentum, c.decay_momentum_rate, c.range_min_lr);
  put(c.range_step_rate, c.range_steps, c.range_staircase);
  const auto& l = s.loss_scale;
  put('|', l.enabled, l.dynamic, l.static_scale, l.initial_power, l.window, l.hysteresis);
  put(l.consecutive_hysteresis, l.min_scale);
  return out.str();
}

// Where an option is tried: the other keys that it needs, and a value that is not its default.
struct Trial {
  std::vector<std::pair<const char*, const char*>> context;
  const char* value;
};

using Context = std::vector<std::pair<const char*, const char*>>;

const Context kAdam = {{"optimizer.type", "Adam"}};
const Context kSgd = {{"optimizer.type", "SGD"}, {"optimizer.params.momentum", "0.9"}};
const Context kLamb = {{"optimizer.type", "Lamb"}};
const Context kMuon = {{"optimizer.type", "Muon"}};
const Context kHost = {{"optimizer.type", "libzero.host"}};
const Context kWarmup = {{"scheduler.type", "WarmupLR"}};
const Context kDecay = {{"scheduler.type", "WarmupDecayLR"},
                        {"scheduler.params.total_num_steps", "5000"}};
const Context kCosine = {{"scheduler.type", "WarmupCosineLR"},
                         {"scheduler.params.total_num_steps", "5000"}};
const Context kCycle = {{"scheduler.type", "OneCycle"},
                        {"scheduler.params.cycle_min_lr", "1e-4"},
                        {"scheduler.params.cycle_max_lr", "1e-3"}};
const Context kRange = {{"scheduler.type", "LRRangeTest"}};
const Context kFp16 = {{"fp16.enabled", "true"}};
const Context kStage3 = {{"zero_optimization.stage", "3"}};

const std::map<std::string, Trial> kTrials = {
    {"train_batch_size", {{}, "16"}},
    {"train_micro_batch_size_per_gpu", {{}, "4"}},
    {"gradient_accumulation_steps", {{}, "2"}},
    {"gradient_clipping", {{}, "0"}},
    {"prescale_gradients", {{}, "true"}},
    {"gradient_predivide_factor", {{}, "2"}},
    {"gradient_allreduce_op", {{}, "sum"}},
    {"communication_data_type", {{}, "fp32"}},
    {"fp16.enabled", {{}, "true"}},
    {"fp16.loss_scale", {kFp16, "128"}},
    {"fp16.initial_scale_power", {kFp16, "12"}},
    {"fp16.loss_scale_window", {kFp16, "500"}},
    {"fp16.hysteresis", {kFp16, "3"}},
    {"fp16.consecutive_hysteresis", {kFp16, "true"}},
    {"fp16.min_loss_scale", {kFp16, "4"}},
    {"bf16.enabled", {{}, "true"}},
    {"bf16.check_grad_overflow", {{{"bf16.enabled", "true"}}, "false"}},
    {"data_types.grad_accum_dtype", {{{"bf16.enabled", "true"}}, "bf16"}},
    {"optimizer.type", {{}, "AdamW"}},
    {"optimizer.params.lr", {kAdam, "0.5"}},
    {"optimizer.params.betas", {kAdam, "[0.8, 0.95]"}},
    {"optimizer.params.eps", {kAdam, "1e-6"}},
    {"optimizer.params.weight_decay", {kAdam, "0.125"}},
    {"optimizer.params.bias_correction", {kAdam, "false"}},
    {"optimizer.params.adam_w_mode", {kAdam, "false"}},
    {"optimizer.params.torch_adam", {kAdam, "true"}},
    {"optimizer.params.momentum", {kSgd, "0.5"}},
    {"optimizer.params.dampening", {kSgd, "0.5"}},
    {"optimizer.params.nesterov", {kSgd, "true"}},
    {"optimizer.params.max_coeff", {kLamb, "5"}},
    {"optimizer.params.min_coeff", {kLamb, "0.5"}},
    {"optimizer.params.eps_inside_sqrt", {kLamb, "true"}},
    {"optimizer.params.muon_lr", {kMuon, "0.5"}},
    {"optimizer.params.adam_lr", {kMuon, "0.5"}},
    {"optimizer.params.states", {kHost, "2"}},
    {"scheduler.type", {{}, "WarmupLR"}},
    {"scheduler.params.warmup_min_lr", {kWarmup, "1e-5"}},
    {"scheduler.params.warmup_max_lr", {kWarmup, "0.5"}},
    {"scheduler.params.warmup_num_steps", {kWarmup, "10"}},
    {"scheduler.params.warmup_type", {kWarmup, "linear"}},
    {"scheduler.params.total_num_steps", {kDecay, "6000"}},
    {"scheduler.params.warmup_min_ratio", {kCosine, "0.5"}},
    {"scheduler.params.cos_min_ratio", {kCosine, "0.5"}},
    {"scheduler.params.cycle_min_lr", {kCycle, "2e-4"}},
    {"scheduler.params.cycle_max_lr", {kCycle, "2e-3"}},
    {"scheduler.params.decay_lr_rate", {kCycle, "0.5"}},
    {"scheduler.params.cycle_first_step_size", {kCycle, "10"}},
    {"scheduler.params.cycle_second_step_size", {kCycle, "10"}},
    {"scheduler.params.cycle_first_stair_count", {kCycle, "10"}},
    {"scheduler.params.cycle_second_stair_count", {kCycle, "10"}},
    {"scheduler.params.decay_step_size", {kCycle, "10"}},
    {"scheduler.params.cycle_momentum", {kCycle, "false"}},
    {"scheduler.params.cycle_min_mom", {kCycle, "0.5"}},
    {"scheduler.params.cycle_max_mom", {kCycle, "0.95"}},
    {"scheduler.params.decay_mom_rate", {kCycle, "0.5"}},
    {"scheduler.params.lr_range_test_min_lr", {kRange, "0.5"}},
    {"scheduler.params.lr_range_test_step_size", {kRange, "10"}},
    {"scheduler.params.lr_range_test_step_rate", {kRange, "0.5"}},
    {"scheduler.params.lr_range_test_staircase", {kRange, "true"}},
    {"zero_optimization.stage", {{}, "2"}},
    {"zero_optimization.reduce_bucket_size", {{}, "1000"}},
    {"zero_optimization.overlap_comm", {{}, "false"}},
    {"zero_optimization.stage3_prefetch_bucket_size", {kStage3, "1000"}},
    {"zero_optimization.stage3_param_persistence_threshold", {kStage3, "1000"}},
    {"zero_optimization.stage3_model_persistence_threshold", {kStage3, "1000"}},
    {"zero_optimization.stage3_max_live_parameters", {kStage3, "1000"}},
    {"zero_optimization.offload_optimizer.device", {kStage3, "cpu"}},
    {"zero_optimization.offload_optimizer.pin_memory", {kStage3, "true"}},
    {"zero_optimization.offload_param.device", {kStage3, "cpu"}},
    {"libzero.open_buckets", {{}, "all"}},
    {"libzero.live_parameters", {kStage3, "1000"}},
    {"libzero.memory_budget", {{}, "24GB"}},
    {"libzero.reproducible", {{}, "stage"}},
    {"libzero.param_norms", {{}, "true"}},
    {"libzero.checkpoint_background", {{}, "true"}},
    {"fp16.fp16_master_weights_and_grads", {{{"fp16.enabled", "true"}}, "true"}},
    {"bf16.bf16_master_weights_and_grads", {{{"bf16.enabled", "true"}}, "true"}},
    {"bf16.bf16_optimizer_states", {{{"bf16.enabled", "true"}}, "true"}},
    {"libzero.master_weights", {{}, "remainder"}},
    {"libzero.missing_gradients", {{}, "zero"}},
    {"libzero.initial_values", {{}, "rank:2"}},
    {"libzero.comm", {{}, "local"}},
    {"libzero.comm_timeout_seconds", {{}, "2.5"}},
    {"libzero.threads", {{}, "2"}},
    {"libzero.staging_segment_bytes", {{}, "65536"}},
    {"libzero.device", {{}, "cuda"}},
    {"libzero.group", {{}, "meet"}},
};

Config in_context(const Context& context) {
  Config config;
  for (const auto& [key, value] : context) config.set(key, value);
  return config;
}

// A value other than the default, for options that need no context.
const char* other_value(const Option& option) {
  switch (option.kind) {
    case OptionKind::kBoolean:
      return std::string(option.default_json) == "true" ? "false" : "true";
    case OptionKind::kInteger:
    case OptionKind::kIntegerOrAll:
    case OptionKind::kIntegerOrNever:
      return "7";
    case OptionKind::kNumber:
      return "0.5";
    case OptionKind::kChoice:
      return std::string(option.key) == "optimizer.params.ns_method"  ? "gram"
             : std::string(option.key) == "checkpoint.tag_validation" ? "Fail"
             : std::string(option.key) == "data_types.param_dtype"    ? "fp32"
                                                                      : "bf16";
    case OptionKind::kList:
      return "[\"x\"]";
    default:
      return "word";
  }
}

std::vector<const Option*> with(Standing standing) {
  std::vector<const Option*> rows;
  for (const Option& option : options()) {
    if (option.standing == standing) rows.push_back(&option);
  }
  assert_false(rows.empty());
  return rows;
}

void each_option_that_acts_changes_settings(void**) {
  for (const Option* option : with(Standing::kActs)) {
    const auto trial = kTrials.find(option->key);
    if (trial == kTrials.end()) fail_msg("%s acts and is not tried here", option->key);
    Config config = in_context(trial->second.context);
    const std::string before = fields(config.settings());
    config.set(option->key, trial->second.value);
    const std::string after = fields(config.settings());
    if (before == after) fail_msg("%s = %s changes nothing", option->key, trial->second.value);
    assert_int_equal(config.check(), ZERO_OK);
    assert_int_equal(config_help::count(config, false), 0);
  }
}

void each_trial_is_of_an_option_that_acts(void**) {
  for (const auto& [key, trial] : kTrials) {
    const Option* option = zero::config::find_option(key);
    assert_non_null(option);
    assert_true(option->standing == Standing::kActs);
  }
}

void each_option_that_is_only_warned_about_is_named_in_a_warning(void**) {
  for (const Option* option : with(Standing::kWarn)) {
    Config config = in_context(kStage3);
    config.set(option->key, other_value(*option));
    assert_int_equal(config.check(), ZERO_OK);
    if (find(config, false, option->key) == nullptr) fail_msg("%s: no warning", option->key);
  }
}

void each_option_that_is_not_done_is_refused_by_name(void**) {
  for (const Option* option : with(Standing::kRefuse)) {
    const bool is_adagrad = has(option->key, "lr_decay") || has(option->key, "accumulator");
    Config config = in_context(kAdam);
    if (is_adagrad) config.set("optimizer.type", "Adagrad");
    if (has(option->key, "scheduler.")) config.set("scheduler.type", "WarmupLR");
    config.set(option->key, other_value(*option));
    assert_true(config.check() != ZERO_OK);
    if (find(config, true, option->key) == nullptr) fail_msg("%s: no error", option->key);
    const auto refused = config_help::caught([&] { config.settings(); });
    config_help::assert_has(refused.message, option->key);
  }
}

void each_option_without_effect_here_is_in_the_notes(void**) {
  for (const Option* option : with(Standing::kQuiet)) {
    Config config = in_context(kAdam);
    const std::string before = fields(config.settings());
    config.set(option->key, other_value(*option));
    assert_int_equal(config.check(), ZERO_OK);
    config_help::assert_has(config.value("libzero.notes"), option->key);
    assert_string_equal(fields(config.settings()).c_str(), before.c_str());
  }
}

void each_option_still_to_come_is_named_as_not_in_this_build(void**) {
  for (const Option* option : with(Standing::kLater)) {
    const bool is_muon = has(option->key, "ns_method");
    Config config = in_context(is_muon ? kMuon : kAdam);
    config.set(option->key, other_value(*option));
    assert_int_equal(config.check(), ZERO_OK);
    config_help::assert_has(config.value("libzero.not_in_this_build"), option->key);
    bool is_named = false;
    for (const std::string& later : config.settings().not_in_this_build) {
      is_named = is_named || has(later, option->key);
    }
    assert_true(is_named);
  }
}

// "params" of one optimizer or schedule are not read by another.
void a_parameter_that_the_type_does_not_read_is_warned_about(void**) {
  for (const auto& [key, trial] : kTrials) {
    const bool is_optimizers = key.starts_with("optimizer.params.");
    if (!is_optimizers && !key.starts_with("scheduler.params.")) continue;
    Config config;
    config.set(key, trial.value);
    assert_int_equal(config.check(), ZERO_OK);
    const auto* found = find(config, false, key);
    if (found == nullptr) fail_msg("%s: no warning without a type", key.c_str());
    assert_true(has(found->message, "no effect"));
  }
}

void each_section_that_is_switched_on_and_not_done_is_named(void**) {
  int sections = 0;
  for (const auto& section : zero::config::sections()) {
    if (section.standing == Standing::kActs) continue;
    const std::string name = section.key;
    const bool nested = has(name, ".");
    const std::string leaf = nested ? name.substr(name.find('.') + 1) : name;
    const auto body = [&](const char* truth) {
      const std::string own = "\"" + leaf + "\": {\"enabled\": " + truth + "}";
      return nested ? "\"zero_optimization\": {" + own + "}" : own;
    };
    Config on = config_help::config_of(body("true"));
    Config off = config_help::config_of(body("false"));
    const bool is_error = section.standing == Standing::kRefuse;
    assert_int_equal(on.check() != ZERO_OK, is_error);
    if (find(on, is_error, name) == nullptr) fail_msg("%s: no finding", name.c_str());
    // A feature that is asked for and switched off is no finding.
    assert_int_equal(off.check(), ZERO_OK);
    assert_int_equal(off.diagnostics().size(), 0);
    ++sections;
  }
  assert_true(sections > 20);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_option_that_acts_changes_settings),
      cmocka_unit_test(each_trial_is_of_an_option_that_acts),
      cmocka_unit_test(each_option_that_is_only_warned_about_is_named_in_a_warning),
      cmocka_unit_test(each_option_that_is_not_done_is_refused_by_name),
      cmocka_unit_test(each_option_without_effect_here_is_in_the_notes),
      cmocka_unit_test(each_option_still_to_come_is_named_as_not_in_this_build),
      cmocka_unit_test(a_parameter_that_the_type_does_not_read_is_warned_about),
      cmocka_unit_test(each_section_that_is_switched_on_and_not_done_is_named),
  };
  return cmocka_run_group_tests_name("config_effects", tests, nullptr, nullptr);
}

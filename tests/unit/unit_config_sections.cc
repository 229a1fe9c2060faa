// What single sections mean: precision, optimizers, offload, schedules, libzero's own keys; each
// case written from the user reports, not from our output.
// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "config_help.h"

namespace {

using config_help::adamw;
using config_help::assert_has;
using config_help::assert_value_refused;
using config_help::caught;
using config_help::config_of;
using config_help::find;
using config_help::has;
using config_help::no_facts;
using config_help::only_error;
using config_help::settings_of;
using config_help::zero_key;
using zero::config::Config;
using zero::config::OptimizerType;
using zero::config::Settings;

// ---- R124, R127: precision ----

void r124_fp16_and_bf16_together_are_a_conflict(void**) {
  assert_int_equal(
      only_error("\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}", "bf16.enabled"),
      ZERO_ERR_CONFIG_CONFLICT);
}
void r124_two_holes_are_decided_by_the_host(void**) {
  const char* body = "\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}";
  for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_FP16, ZERO_DTYPE_BF16}) {
    zero_config_facts facts = no_facts();
    facts.compute_dtype = dtype;
    Config config = config_of(body);
    config.fill_auto(facts);
    assert_int_equal(config.check(), ZERO_OK);
    assert_int_equal(config.settings().compute_dtype, dtype);
  }
}
void r124_a_host_that_contradicts_the_file_is_a_conflict(void**) {
  zero_config_facts facts = no_facts();
  facts.compute_dtype = ZERO_DTYPE_BF16;
  Config config = config_of("\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": \"auto\"}");
  config.fill_auto(facts);
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_CONFLICT);
}
void r127_loss_scale_defaults(void**) {
  const auto scale = settings_of("\"fp16\": {\"enabled\": true}").loss_scale;
  assert_true(scale.enabled && scale.dynamic && !scale.consecutive_hysteresis);
  assert_int_equal(scale.initial_power, 16);
  assert_int_equal(scale.window, 1000);
  assert_int_equal(scale.hysteresis, 2);
  assert_true(scale.min_scale == 1);
}
void r127_loss_scale_bounds(void**) {
  for (const char* pair : {"\"loss_scale_window\": 0", "\"min_loss_scale\": 0",
                           "\"loss_scale\": -1", "\"loss_scale\": NaN", "\"loss_scale\": true",
                           "\"loss_scale\": Infinity", "\"loss_scale_window\": 1.5"}) {
    const std::string text(pair);
    const std::string key = "fp16." + text.substr(1, text.find('"', 1) - 1);
    assert_value_refused("\"fp16\": {\"enabled\": true, " + text + "}", key);
  }
  // Only enforced where the scale is dynamic.
  assert_int_equal(
      config_of("\"fp16\": {\"enabled\": true, \"loss_scale\": 8, \"loss_scale_window\": 0}")
          .check(),
      ZERO_OK);
  assert_int_equal(config_of("\"fp16\": {\"enabled\": false, \"min_loss_scale\": 0}").check(),
                   ZERO_OK);
}
void param_dtype_must_agree_with_the_mode(void**) {
  assert_int_equal(only_error("\"bf16\": {\"enabled\": true}, \"data_types\": {\"param_dtype\": "
                              "\"fp16\"}",
                              "data_types.param_dtype"),
                   ZERO_ERR_CONFIG_CONFLICT);
  assert_int_equal(config_of("\"bf16\": {\"enabled\": true}, \"data_types\": {\"param_dtype\": "
                             "\"bfloat16\"}")
                       .check(),
                   ZERO_OK);
}

// ---- R030, R067, R128, R130 and the like ----

void r030_clipping_values(void**) {
  assert_true(settings_of("\"gradient_clipping\": 0").gradient_clipping == 0);
  assert_true(settings_of("\"gradient_clipping\": 1e30").gradient_clipping == 1e30);
  for (const char* wrong : {"-1", "NaN", "-Infinity", "Infinity", "true", "\"much\""}) {
    assert_value_refused("\"gradient_clipping\": " + std::string(wrong), "gradient_clipping");
  }
}
void hyper_parameters_out_of_range_are_named(void**) {
  for (const char* wrong : {"\"lr\": -1", "\"lr\": NaN", "\"eps\": -1e-8", "\"weight_decay\": -0.1",
                            "\"betas\": [0.9, 1.0]", "\"betas\": [-0.1, 0.9]",
                            "\"betas\": [0.9, NaN]", "\"betas\": [0.9]", "\"betas\": 0.9"}) {
    const std::string text(wrong);
    assert_value_refused(adamw(text), "optimizer.params." + text.substr(1, text.find('"', 1) - 1));
  }
}
void r067_adam_decays_like_adamw_unless_told_otherwise(void**) {
  const auto decoupled = [](const char* type, const char* params) {
    return settings_of("\"optimizer\": {\"type\": \"" + std::string(type) + "\", \"params\": {" +
                       params + "}}")
        .optimizer;
  };
  assert_true(decoupled("Adam", "").decoupled_decay);
  assert_true(decoupled("adam", "\"adam_w_mode\": true").decoupled_decay);
  assert_false(decoupled("Adam", "\"adam_w_mode\": false").decoupled_decay);
  assert_true(decoupled("AdamW", "\"adam_w_mode\": false").decoupled_decay);
  assert_true(decoupled("AdamW", "").weight_decay == 0);
  assert_true(decoupled("AdamW", "\"torch_adam\": true").weight_decay == 0.01);
  assert_true(decoupled("Adam", "\"torch_adam\": true, \"adam_w_mode\": false").weight_decay == 0);
}
void optimizer_names_are_read_in_any_case(void**) {
  const std::pair<const char*, OptimizerType> names[] = {
      {"adam", OptimizerType::kAdam}, {"ADAMW", OptimizerType::kAdamW},
      {"SGD", OptimizerType::kSgd},   {"Adagrad", OptimizerType::kAdagrad},
      {"lion", OptimizerType::kLion}, {"Lamb", OptimizerType::kLamb},
      {"Muon", OptimizerType::kMuon}, {"libzero.host", OptimizerType::kHost}};
  for (const auto& [name, type] : names) {
    const Settings settings =
        settings_of("\"optimizer\": {\"type\": \"" + std::string(name) + "\"}");
    assert_true(settings.optimizer.type == type);
  }
}
void the_one_bit_family_and_unknown_optimizers_are_refused_by_name(void**) {
  for (const char* name :
       {"OneBitAdam", "OnebitAdam", "ZeroOneAdam", "OneBitLamb", "MuAdam", "RMSprop", "Adamw2"}) {
    only_error("\"optimizer\": {\"type\": \"" + std::string(name) + "\"}", "optimizer.type");
    Config config = config_of("\"optimizer\": {\"type\": \"" + std::string(name) + "\"}");
    config.check();
    assert_has(config.diagnostics()[0].message, name);
  }
}
void r128_offload_at_a_stage_that_has_none(void**) {
  const auto body = [](const char* stage, const char* section) {
    return zero_key("\"stage\": " + std::string(stage) + ", \"" + section +
                    "\": {\"device\": \"cpu\"}");
  };
  Config works = config_of(body("1", "offload_optimizer"));
  assert_int_equal(works.check(), ZERO_OK);
  assert_int_equal(works.diagnostics().size(), 0);
  for (const auto& [stage, section] :
       {std::pair("0", "offload_optimizer"), std::pair("2", "offload_param")}) {
    Config ignored = config_of(body(stage, section));
    assert_int_equal(ignored.check(), ZERO_OK);
    assert_non_null(find(ignored, false, "zero_optimization." + std::string(section) + ".device"));
  }
}
void nvme_needs_stage_3_and_a_path(void**) {
  const auto body = [](const char* stage, const char* more) {
    return zero_key("\"stage\": " + std::string(stage) +
                    ", \"offload_optimizer\": {\"device\": \"nvme\"" + more + "}");
  };
  const char* key = "zero_optimization.offload_optimizer.device";
  assert_int_equal(only_error(body("2", ", \"nvme_path\": \"/n\""), key), ZERO_ERR_CONFIG_CONFLICT);
  assert_int_equal(only_error(body("3", ""), key), ZERO_ERR_CONFIG_VALUE);
  Config config = config_of(body("3", ", \"nvme_path\": \"/n\""));
  assert_int_equal(config.check(), ZERO_OK);
  assert_has(config.value("libzero.not_in_this_build"), "nvme");
}
void cpu_offload_asks_for_nothing_more_where_all_memory_is_the_hosts(void**) {
  const std::string body = zero_key("\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}");
  assert_true(settings_of(body).not_in_this_build.empty());
  const Settings on_device = settings_of(body + ", \"libzero\": {\"device\": \"cuda\"}");
  bool is_named = false;
  for (const auto& later : on_device.not_in_this_build) is_named |= has(later, "offload_optimizer");
  assert_true(is_named);
}
void r130_max_grad_norm_in_the_optimizer_is_refused_with_its_new_place(void**) {
  Config config = config_of(adamw("\"max_grad_norm\": 1.0"));
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_VALUE);
  assert_string_equal(find(config, true, "optimizer.params.max_grad_norm")->suggestion.c_str(),
                      "gradient_clipping");
}
void sum_is_not_for_stage_3(void**) {
  assert_int_equal(only_error("\"gradient_allreduce_op\": \"SUM\", " + zero_key("\"stage\": 3"),
                              "gradient_allreduce_op"),
                   ZERO_ERR_CONFIG_CONFLICT);
  assert_true(settings_of("\"gradient_allreduce_op\": \"SUM\"").reduce_is_sum);
  assert_value_refused("\"gradient_allreduce_op\": \"max\"", "gradient_allreduce_op");
}

// ---- schedules ----

std::string scheduler(const char* type, const std::string& params) {
  return "\"scheduler\": {\"type\": \"" + std::string(type) + "\", \"params\": {" + params + "}}";
}

// DeepSpeed refuses them since 2025; before, 0 was taken as 2.
void r073_a_warmup_of_0_or_less_is_refused(void**) {
  for (const char* steps : {"0", "-3"}) {
    for (const char* type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}) {
      assert_value_refused(
          scheduler(type, "\"total_num_steps\": 10, \"warmup_num_steps\": " + std::string(steps)),
          "scheduler.params.warmup_num_steps");
    }
  }
}
void r074_an_unknown_warmup_type_warns_and_is_log(void**) {
  Config config = config_of(scheduler("WarmupLR", "\"warmup_type\": \"cubic\""));
  assert_int_equal(config.check(), ZERO_OK);
  assert_non_null(find(config, false, "scheduler.params.warmup_type"));
  assert_false(config.settings().schedule.warmup_is_linear);
}
void r076_warmup_lr_keeps_the_optimizers_rate_and_decay_warns(void**) {
  const std::string optimizer = adamw("\"lr\": 5e-7") + ", ";
  Config plain = config_of(optimizer + scheduler("WarmupLR", "\"warmup_num_steps\": 1"));
  assert_int_equal(plain.check(), ZERO_OK);
  assert_int_equal(plain.diagnostics().size(), 0);
  assert_false(plain.settings().schedule.has_warmup_max_lr);
  assert_string_equal(plain.value("scheduler.params.warmup_max_lr").c_str(), "5e-7");
  Config decay = config_of(optimizer + scheduler("WarmupDecayLR", "\"total_num_steps\": 2000"));
  assert_int_equal(decay.check(), ZERO_OK);
  assert_non_null(find(decay, false, "scheduler.params.warmup_max_lr"));
  assert_true(decay.settings().schedule.warmup_max_lr == 1e-3);
}
void r078_a_run_shorter_than_its_warmup_warns(void**) {
  Config config =
      config_of(scheduler("WarmupDecayLR", "\"total_num_steps\": 5, \"warmup_num_steps\": 10"));
  assert_int_equal(config.check(), ZERO_OK);
  assert_non_null(find(config, false, "scheduler.params.total_num_steps"));
}
void what_a_schedule_needs_is_named_when_it_is_missing(void**) {
  assert_value_refused(scheduler("WarmupDecayLR", ""), "scheduler.params.total_num_steps");
  assert_value_refused(scheduler("WarmupCosineLR", ""), "scheduler.params.total_num_steps");
  assert_value_refused(scheduler("OneCycle", "\"cycle_min_lr\": 1"),
                       "scheduler.params.cycle_max_lr");
  assert_value_refused(scheduler("StepLR", ""), "scheduler.type");
}
void the_fall_of_a_cycle_is_as_long_as_its_rise_unless_told(void**) {
  const auto schedule = settings_of(scheduler("OneCycle",
                                              "\"cycle_min_lr\": 1e-4, \"cycle_max_lr\": 1e-3, "
                                              "\"cycle_first_step_size\": 30, "
                                              "\"cycle_first_stair_count\": 3"))
                            .schedule;
  assert_int_equal(schedule.cycle_second_steps, 30);
  assert_int_equal(schedule.cycle_second_stairs, 3);
}
void a_list_of_one_rate_is_that_rate(void**) {
  const std::string list = "\"lr_range_test_min_lr\": [1e-4]";
  assert_true(settings_of(scheduler("LRRangeTest", list)).schedule.range_min_lr == 1e-4);
  assert_value_refused(scheduler("LRRangeTest", "\"lr_range_test_min_lr\": [1e-4, 1e-3]"),
                       "scheduler.params.lr_range_test_min_lr");
}

// ---- libzero's own keys, set, get ----

void own_keys_are_judged(void**) {
  const Settings settings = settings_of(
      "\"libzero\": {\"open_buckets\": \"all\", \"initial_values\": \"verify\", \"comm\": "
      "\"local\", "
      "\"comm_timeout_seconds\": 1.5, \"live_parameters\": 1e6}");
  assert_int_equal(settings.open_buckets, 0);
  assert_true(settings.initial_values == zero::config::InitialValues::kVerify);
  assert_string_equal(settings.comm.c_str(), "local");
  assert_int_equal(settings.comm_timeout_ns, 1500000000);
  assert_int_equal(settings.live_elements, 1000000);
  for (const char* wrong :
       {"\"open_buckets\": 0", "\"open_buckets\": \"some\"", "\"initial_values\": \"rank:x\"",
        "\"initial_values\": \"rank:-1\"", "\"comm\": \"mpi\"", "\"comm_timeout_seconds\": 0",
        "\"comm_timeout_seconds\": -1", "\"device\": \"tpu\"", "\"reproducible\": \"yes\""}) {
    const std::string text(wrong);
    assert_value_refused("\"libzero\": {" + text + "}",
                         "libzero." + text.substr(1, text.find('"', 1) - 1));
  }
}
void a_wrong_choice_suggests_the_nearest(void**) {
  Config config = config_of("\"libzero\": {\"comm\": \"locel\"}");
  config.check();
  assert_string_equal(config.diagnostics()[0].suggestion.c_str(), "local");
}
void set_overrides_the_file_and_says_so(void**) {
  Config config = config_of(zero_key("\"stage\": 1"));
  config.set("zero_optimization.stage", "3");
  config.set("optimizer.type", "AdamW");
  config.set("optimizer.params.betas", "[0.8, 0.9]");
  assert_int_equal(config.settings().stage, 3);
  assert_true(config.settings().optimizer.beta1 == 0.8);
  assert_string_equal(config.origin("zero_optimization.stage"), "set");
  assert_string_equal(config.value("optimizer.type").c_str(), "\"AdamW\"");
  config.set("zero_optimization.stage", "2");
  assert_int_equal(config.settings().stage, 2);
}
void set_refuses_unknown_keys_and_malformed_values(void**) {
  Config config;
  const auto unknown = caught([&] { config.set("zero_optimization.stagee", "1"); });
  assert_int_equal(unknown.status, ZERO_ERR_CONFIG_UNKNOWN_KEY);
  assert_has(unknown.message, "zero_optimization.stage");
  assert_int_equal(caught([&] { config.set("zero_optimization.stage", "1x"); }).status,
                   ZERO_ERR_CONFIG_SYNTAX);
  assert_int_equal(caught([&] { config.value("nothing"); }).status, ZERO_ERR_CONFIG_UNKNOWN_KEY);
  // A well-formed value is judged by check.
  config.set("zero_optimization.stage", "9");
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_VALUE);
}
void a_copy_is_independent(void**) {
  Config first = config_of(zero_key("\"stage\": 1"));
  Config second = first;
  second.set("zero_optimization.stage", "2");
  assert_int_equal(first.settings().stage, 1);
  first = second;
  assert_int_equal(first.settings().stage, 2);
}

void every_option_can_be_listed(void**) {
  const int32_t n = zero::config::option_count();
  assert_true(n > 100);
  for (int32_t i = 0; i < n; ++i) {
    zero_option_info info;
    zero::config::option_at(i, &info);
    assert_true(info.kind >= ZERO_OPTION_INTEGER && info.kind <= ZERO_OPTION_CHOICE);
    assert_true(std::strlen(info.help) > 8);
    assert_int_equal(info.kind == ZERO_OPTION_CHOICE, info.choices[0] != '\0');
    const std::string value = Config().value(info.key);
    // Defaults that follow from other values aside, the empty config holds the default.
    if (!has(info.key, "cycle_second")) assert_string_equal(value.c_str(), info.default_value);
  }
  zero_option_info info;
  assert_int_equal(caught([&] { zero::config::option_at(n, &info); }).status,
                   ZERO_ERR_INVALID_ARGUMENT);
  assert_int_equal(caught([&] { zero::config::option_at(-1, &info); }).status,
                   ZERO_ERR_INVALID_ARGUMENT);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r124_fp16_and_bf16_together_are_a_conflict),
      cmocka_unit_test(r124_two_holes_are_decided_by_the_host),
      cmocka_unit_test(r124_a_host_that_contradicts_the_file_is_a_conflict),
      cmocka_unit_test(r127_loss_scale_defaults),
      cmocka_unit_test(r127_loss_scale_bounds),
      cmocka_unit_test(param_dtype_must_agree_with_the_mode),
      cmocka_unit_test(r030_clipping_values),
      cmocka_unit_test(hyper_parameters_out_of_range_are_named),
      cmocka_unit_test(r067_adam_decays_like_adamw_unless_told_otherwise),
      cmocka_unit_test(optimizer_names_are_read_in_any_case),
      cmocka_unit_test(the_one_bit_family_and_unknown_optimizers_are_refused_by_name),
      cmocka_unit_test(r128_offload_at_a_stage_that_has_none),
      cmocka_unit_test(nvme_needs_stage_3_and_a_path),
      cmocka_unit_test(cpu_offload_asks_for_nothing_more_where_all_memory_is_the_hosts),
      cmocka_unit_test(r130_max_grad_norm_in_the_optimizer_is_refused_with_its_new_place),
      cmocka_unit_test(sum_is_not_for_stage_3),
      cmocka_unit_test(r073_a_warmup_of_0_or_less_is_refused),
      cmocka_unit_test(r074_an_unknown_warmup_type_warns_and_is_log),
      cmocka_unit_test(r076_warmup_lr_keeps_the_optimizers_rate_and_decay_warns),
      cmocka_unit_test(r078_a_run_shorter_than_its_warmup_warns),
      cmocka_unit_test(what_a_schedule_needs_is_named_when_it_is_missing),
      cmocka_unit_test(the_fall_of_a_cycle_is_as_long_as_its_rise_unless_told),
      cmocka_unit_test(a_list_of_one_rate_is_that_rate),
      cmocka_unit_test(own_keys_are_judged),
      cmocka_unit_test(a_wrong_choice_suggests_the_nearest),
      cmocka_unit_test(set_overrides_the_file_and_says_so),
      cmocka_unit_test(set_refuses_unknown_keys_and_malformed_values),
      cmocka_unit_test(a_copy_is_independent),
      cmocka_unit_test(every_option_can_be_listed),
  };
  return cmocka_run_group_tests_name("config_sections", tests, nullptr, nullptr);
}

// The rules of deciding: the batch equation, "auto", unknown keys; each
// case written from the user reports, not from our output.
// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <vector>

#include "config_help.h"

namespace {

using config_help::adamw;
using config_help::assert_has;
using config_help::assert_value_refused;
using config_help::caught;
using config_help::config_of;
using config_help::count;
using config_help::find;
using config_help::has;
using config_help::no_facts;
using config_help::zero_key;
using zero::config::Config;
using zero::config::OptimizerType;
using zero::config::Settings;

// ---- the whole ----

void an_empty_config_is_stage_0_fp32_without_optimizer(void**) {
  Config config;
  assert_int_equal(config.check(), ZERO_OK);
  const Settings settings = config.settings();
  assert_int_equal(settings.stage, 0);
  assert_int_equal(settings.compute_dtype, ZERO_DTYPE_FP32);
  assert_true(settings.optimizer.type == OptimizerType::kNone);
  assert_int_equal(settings.accumulation_steps, 1);
  assert_true(settings.gradient_clipping == 1.0);
  assert_true(settings.not_in_this_build.empty());
  assert_has(config.value("libzero.notes"), "optimizer.type");
}

// A runtime counts no samples; the check of a file does.
void a_file_without_a_batch_size_is_rejected_but_runs(void**) {
  Config config = Config::load_text("{" + zero_key("\"stage\": 2") + "}");
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_VALUE);
  assert_has(config.diagnostics()[0].message, "train_micro_batch_size_per_gpu");
  assert_int_equal(config.settings().stage, 2);
  assert_int_equal(config.settings().accumulation_steps, 1);
}

void all_findings_are_reported_in_file_order(void**) {
  Config config = Config::load_text(
      "{\n \"zero_optimization\": {\"stage\": 4,\n  \"nonsense\": 1},\n \"train_batch_size\": -1,\n"
      " \"odd\": true,\n \"gradient_clipping\": \"x\"\n}");
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_VALUE);
  const auto& all = config.diagnostics();
  const char* keys[] = {"zero_optimization.stage", "zero_optimization.nonsense", "train_batch_size",
                        "odd", "gradient_clipping"};
  const int lines[] = {2, 3, 4, 5, 6};
  for (size_t i = 0; i < 5; ++i) {
    assert_string_equal(all[i].key.c_str(), keys[i]);
    assert_int_equal(all[i].line, lines[i]);
    assert_int_equal(all[i].is_error, i != 3);
  }
  const auto error = caught([&] { config.settings(); });
  assert_int_equal(error.status, ZERO_ERR_CONFIG_VALUE);
  assert_has(error.message, "zero_optimization.stage");
  assert_has(error.message, "gradient_clipping");
  assert_has(error.message, "line 6");
}

void stage_4_is_a_value_error_that_names_the_key_and_the_range(void**) {
  assert_value_refused(zero_key("\"stage\": 4"), "zero_optimization.stage");
  Config config = config_of(zero_key("\"stage\": 4"));
  config.check();
  const auto* found = find(config, true, "zero_optimization.stage");
  assert_has(found->message, "0..3");
  assert_string_equal(found->value.c_str(), "4");
}

// ---- R118: the batch equation, 8 ranks ----

struct BatchCase {
  const char* keys;
  const char* expected; // "train=microxaccumulation", or "" for a refusal
};

void r118_the_batch_equation(void**) {
  const BatchCase cases[] = {
      {"\"train_batch_size\": 64", "64=8x1"},
      {"\"train_micro_batch_size_per_gpu\": 4", "32=4x1"},
      {"\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4", "64=4x2"},
      {"\"train_batch_size\": 64, \"gradient_accumulation_steps\": 2", "64=4x2"},
      {"\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2", "64=4x2"},
      {"\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, "
       "\"gradient_accumulation_steps\": 2",
       "64=4x2"},
      {"\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, "
       "\"gradient_accumulation_steps\": 8",
       ""},
      {"\"train_batch_size\": 15", ""},
      {"\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 16", ""},
      {"\"gradient_accumulation_steps\": 4", ""},
      {"\"train_batch_size\": 0", ""},
      {"\"train_batch_size\": 9223372036854775807, \"train_micro_batch_size_per_gpu\": "
       "9223372036854775807",
       ""},
  };
  for (const BatchCase& one : cases) {
    Config config = Config::load_text("{" + std::string(one.keys) + "}");
    config.set_world_size(8);
    const bool accepted = config.check() == ZERO_OK;
    const std::string got = config.value("train_batch_size") + "=" +
                            config.value("train_micro_batch_size_per_gpu") + "x" +
                            config.value("gradient_accumulation_steps");
    if (accepted != (one.expected[0] != '\0')) fail_msg("%s: accepted %d", one.keys, accepted);
    if (accepted) assert_string_equal(got.c_str(), one.expected);
  }
}

void r118_a_broken_equation_shows_all_four_numbers(void**) {
  Config config = Config::load_text(
      "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, "
      "\"gradient_accumulation_steps\": 7}");
  config.set_world_size(8);
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_CONFLICT);
  for (const char* number : {"64", "4", "7", "8"}) {
    assert_has(config.diagnostics()[0].message, number);
  }
  assert_int_equal(caught([&] { config.settings(); }).status, ZERO_ERR_CONFIG_CONFLICT);
}

// DeepSpeed's own table, two ranks.
void the_batch_table_of_deepspeeds_tests(void**) {
  const int cases[][4] = {{32, 16, 1, 1}, {32, 8, 2, 1}, {33, 17, 2, 0}, {32, 18, 1, 0}};
  for (const auto& [train, micro, accumulation, is_right] : cases) {
    Config config = Config::load_text(
        "{\"train_batch_size\": " + std::to_string(train) +
        ", \"train_micro_batch_size_per_gpu\": " + std::to_string(micro) +
        ", \"gradient_accumulation_steps\": " + std::to_string(accumulation) + "}");
    config.set_world_size(2);
    assert_int_equal(config.check() == ZERO_OK, is_right);
  }
}

// ---- R119: holes ----

void r119_holes_without_a_safe_default_are_listed_in_one_error(void**) {
  Config config = config_of("\"gradient_clipping\": \"auto\", " +
                            zero_key("\"stage\": \"auto\", \"reduce_bucket_size\": \"auto\"") +
                            ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                            "{\"warmup_num_steps\": \"auto\"}}");
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_VALUE);
  assert_int_equal(count(config, true), 1);
  const std::string message = config.diagnostics()[0].message;
  for (const char* key :
       {"gradient_clipping", "zero_optimization.stage", "scheduler.params.warmup_num_steps"}) {
    assert_has(message, key);
  }
  assert_false(has(message, "reduce_bucket_size"));
  assert_string_equal(config.value("zero_optimization.reduce_bucket_size").c_str(), "500000000");
  assert_string_equal(config.origin("zero_optimization.reduce_bucket_size"), "default");
}
void r119_a_hole_with_a_capital_is_refused_with_a_hint(void**) {
  Config config = config_of("\"gradient_clipping\": \"Auto\"");
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_VALUE);
  assert_string_equal(config.diagnostics()[0].suggestion.c_str(), "auto");
}

void facts_fill_holes_and_never_override(void**) {
  zero_config_facts facts = no_facts();
  facts.hidden_size = 768;
  facts.learning_rate = 3e-4;
  facts.gradient_clipping = 0.5;
  facts.total_steps = 500;
  Config config = config_of(
      "\"gradient_clipping\": \"auto\", " + adamw("\"lr\": \"auto\", \"weight_decay\": 0.25") +
      "," + zero_key("\"reduce_bucket_size\": 77, \"stage3_prefetch_bucket_size\": \"auto\"") +
      ", \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": \"auto\", "
      "\"total_num_steps\": \"auto\", \"warmup_num_steps\": 5}}");
  facts.weight_decay = 0.5;
  config.fill_auto(facts);
  assert_int_equal(config.check(), ZERO_OK);
  const Settings settings = config.settings();
  assert_true(settings.gradient_clipping == 0.5);
  assert_true(settings.optimizer.lr == 3e-4);
  assert_true(settings.optimizer.weight_decay == 0.25);
  assert_true(settings.schedule.warmup_max_lr == 3e-4);
  assert_int_equal(settings.schedule.total_steps, 500);
  assert_int_equal(settings.reduce_bucket_elements, 77);
  assert_int_equal(settings.prefetch_bucket_elements, 530841); // 0.9 x 768 x 768, cut
  assert_string_equal(config.origin("gradient_clipping"), "facts");
  assert_string_equal(config.origin("zero_optimization.reduce_bucket_size"), "file");
}

// Accelerate's rule: the schedule goes to the optimizer's own rate.
void a_hole_in_the_peak_takes_the_rate_that_the_file_has(void**) {
  zero_config_facts facts = no_facts();
  facts.learning_rate = 3e-4;
  Config config = config_of(adamw("\"lr\": 1e-5") +
                            ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                            "{\"warmup_max_lr\": \"auto\", \"warmup_min_lr\": \"auto\"}}");
  config.fill_auto(facts);
  assert_true(config.settings().schedule.warmup_max_lr == 1e-5);
  assert_true(config.settings().schedule.warmup_min_lr == 0);
}

void a_wrong_fact_is_refused_like_a_wrong_value(void**) {
  zero_config_facts facts = no_facts();
  facts.learning_rate = -1;
  Config config = config_of(adamw("\"lr\": \"auto\""));
  config.fill_auto(facts);
  assert_int_equal(config.check(), ZERO_ERR_CONFIG_VALUE);
  assert_non_null(find(config, true, "optimizer.params.lr"));
}

void an_open_batch_that_the_rest_determines_is_no_hole(void**) {
  Config config = Config::load_text(
      "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 4, "
      "\"gradient_accumulation_steps\": 2}");
  config.set_world_size(8);
  assert_int_equal(config.check(), ZERO_OK);
  assert_string_equal(config.value("train_batch_size").c_str(), "64");
  assert_string_equal(config.origin("train_batch_size"), "derived");
}

// ---- R120: misspelt keys ----

void r120_misspelt_keys_are_named_with_the_nearest_known_one(void**) {
  Config top = config_of("\"gradient_clipp1ng\": 1");
  assert_int_equal(top.check(), ZERO_OK);
  assert_string_equal(find(top, false, "gradient_clipp1ng")->suggestion.c_str(),
                      "gradient_clipping");

  Config strict = config_of(zero_key("\"stage\": 2, \"stage3_param_persitence_threshold\": 1"));
  assert_int_equal(strict.check(), ZERO_ERR_CONFIG_UNKNOWN_KEY);
  assert_string_equal(
      find(strict, true, "zero_optimization.stage3_param_persitence_threshold")->suggestion.c_str(),
      "zero_optimization.stage3_param_persistence_threshold");

  Config section = config_of("\"lr_scheduler\": {}");
  assert_int_equal(section.check(), ZERO_OK);
  assert_string_equal(find(section, false, "lr_scheduler")->suggestion.c_str(), "scheduler");

  Config elsewhere = config_of("\"fp16\": {\"opt_level\": \"O2\"}");
  assert_int_equal(elsewhere.check(), ZERO_ERR_CONFIG_UNKNOWN_KEY);
  assert_string_equal(find(elsewhere, true, "fp16.opt_level")->suggestion.c_str(), "amp.opt_level");
}
void unknown_keys_are_errors_in_every_strict_section(void**) {
  for (const char* section :
       {"fp16", "bf16", "zero_optimization", "libzero", "tensorboard", "wandb", "csv_monitor",
        "comet", "comms_logger", "compile", "hybrid_engine"}) {
    Config config = config_of("\"" + std::string(section) + "\": {\"qqqqqqqq\": 0}");
    assert_int_equal(config.check(), ZERO_ERR_CONFIG_UNKNOWN_KEY);
  }
  for (const char* section : {"offload_param", "offload_optimizer", "leaf_module"}) {
    Config config = config_of(zero_key("\"" + std::string(section) + "\": {\"qqqqqqqq\": 0}"));
    assert_int_equal(config.check(), ZERO_ERR_CONFIG_UNKNOWN_KEY);
  }
}
void unknown_keys_are_warnings_in_the_lax_sections(void**) {
  for (const char* section : {"data_types", "checkpoint", "optimizer", "scheduler"}) {
    Config config = config_of("\"" + std::string(section) + "\": {\"qqqqqqqq\": 0}");
    assert_int_equal(config.check(), ZERO_OK);
    assert_non_null(find(config, false, std::string(section) + ".qqqqqqqq"));
  }
}
void a_key_with_a_dot_in_it_is_no_path(void**) {
  Config config = config_of("\"zero_optimization.stage\": 3");
  assert_int_equal(config.check(), ZERO_OK);
  assert_string_equal(config.value("zero_optimization.stage").c_str(), "0");
  assert_int_equal(count(config, false), 1);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_config_is_stage_0_fp32_without_optimizer),
      cmocka_unit_test(a_file_without_a_batch_size_is_rejected_but_runs),
      cmocka_unit_test(all_findings_are_reported_in_file_order),
      cmocka_unit_test(stage_4_is_a_value_error_that_names_the_key_and_the_range),
      cmocka_unit_test(r118_the_batch_equation),
      cmocka_unit_test(r118_a_broken_equation_shows_all_four_numbers),
      cmocka_unit_test(the_batch_table_of_deepspeeds_tests),
      cmocka_unit_test(r119_holes_without_a_safe_default_are_listed_in_one_error),
      cmocka_unit_test(r119_a_hole_with_a_capital_is_refused_with_a_hint),
      cmocka_unit_test(facts_fill_holes_and_never_override),
      cmocka_unit_test(a_hole_in_the_peak_takes_the_rate_that_the_file_has),
      cmocka_unit_test(a_wrong_fact_is_refused_like_a_wrong_value),
      cmocka_unit_test(an_open_batch_that_the_rest_determines_is_no_hole),
      cmocka_unit_test(r120_misspelt_keys_are_named_with_the_nearest_known_one),
      cmocka_unit_test(unknown_keys_are_errors_in_every_strict_section),
      cmocka_unit_test(unknown_keys_are_warnings_in_the_lax_sections),
      cmocka_unit_test(a_key_with_a_dot_in_it_is_no_path),
  };
  return cmocka_run_group_tests_name("config_rules", tests, nullptr, nullptr);
}

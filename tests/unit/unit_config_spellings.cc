// One value in its many spellings: integers as floats, strings, null, Infinity; old names and
// double names of keys. SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <utility>

#include "config_help.h"

namespace {

using config_help::assert_value_refused;
using config_help::config_of;
using config_help::count;
using config_help::find;
using config_help::only_error;
using config_help::settings_of;
using config_help::zero_key;
using zero::config::Config;

// ---- R121 and the coercions of behaviour 1.0 ----

void r121_integers_written_as_floats(void**) {
  const std::string key = "zero_optimization.stage3_prefetch_bucket_size";
  const auto body = [](const char* text) {
    return zero_key("\"stage3_prefetch_bucket_size\": " + std::string(text));
  };
  const std::pair<const char*, const char*> accepted[] = {
      {"0.94e6", "940000"},
      {"5e8", "500000000"},
      {"1e14", "100000000000000"},
      {"9223372036854775807", "9223372036854775807"},
      {"3.0", "3"}};
  for (const auto& [written, value] : accepted) {
    Config config = config_of(body(written));
    assert_int_equal(config.check(), ZERO_OK);
    assert_int_equal(config.diagnostics().size(), 0);
    assert_string_equal(config.value(key).c_str(), value);
  }
  for (const char* written : {"3774873.6", "1e30", "-1", "9223372036854775808", "true", "[1]", "{}",
                              "\"x\"", "NaN", "Infinity", "null"}) {
    assert_value_refused(body(written), key);
  }
  Config text = config_of(body("\"5e8\""));
  assert_int_equal(text.check(), ZERO_OK);
  assert_string_equal(text.value(key).c_str(), "500000000");
  assert_non_null(find(text, false, key));
}

void truth_values_may_be_strings_and_numbers(void**) {
  for (const char* yes :
       {"true", "\"true\"", "\"True\"", "\"yes\"", "\"ON\"", "1", "\"1\"", "\"y\"", "\"t\""}) {
    Config config = config_of("\"fp16\": {\"enabled\": " + std::string(yes) + "}");
    assert_int_equal(config.check(), ZERO_OK);
    assert_int_equal(config.diagnostics().size(), 0);
    assert_int_equal(config.settings().compute_dtype, ZERO_DTYPE_FP16);
  }
  for (const char* no : {"false", "\"false\"", "\"no\"", "\"off\"", "0", "\"0\"", "\"n\""}) {
    assert_int_equal(settings_of("\"fp16\": {\"enabled\": " + std::string(no) + "}").compute_dtype,
                     ZERO_DTYPE_FP32);
  }
  for (const char* neither : {"2", "\"maybe\"", "null", "[]"}) {
    assert_value_refused("\"fp16\": {\"enabled\": " + std::string(neither) + "}", "fp16.enabled");
  }
}
// In a lax section DeepSpeed takes any string for true.
void a_truth_value_as_a_string_in_a_lax_section_is_warned_about(void**) {
  Config config = config_of("\"prescale_gradients\": \"false\"");
  assert_int_equal(config.check(), ZERO_OK);
  assert_non_null(find(config, false, "prescale_gradients"));
}
void null_is_as_good_as_absent_where_a_value_is_optional(void**) {
  Config config =
      config_of("\"steps_per_print\": null, \"gradient_clipping\": null, " +
                zero_key("\"overlap_comm\": null, \"offload_param\": {\"nvme_path\": null}, "
                         "\"offload_optimizer\": null"));
  assert_int_equal(config.check(), ZERO_OK);
  assert_int_equal(config.diagnostics().size(), 0);
  assert_int_equal(config.settings().overlap_comm, -1);
}
void steps_per_print_may_be_infinite(void**) {
  Config config = config_of("\"steps_per_print\": Infinity");
  assert_int_equal(config.check(), ZERO_OK);
  assert_int_equal(config.diagnostics().size(), 0);
}
void a_section_must_be_an_object(void**) {
  for (const char* section : {"optimizer", "fp16", "libzero", "zero_optimization"}) {
    assert_value_refused("\"" + std::string(section) + "\": [1]", section);
  }
}

// ---- deprecated and double spellings ----

void the_bare_boolean_zero_optimization_is_stage_1_or_0(void**) {
  for (const auto& [text, stage] : {std::pair("true", 1), std::pair("false", 0)}) {
    Config config = config_of("\"zero_optimization\": " + std::string(text));
    assert_int_equal(config.check(), ZERO_OK);
    assert_int_equal(config.settings().stage, stage);
    assert_non_null(find(config, false, "zero_optimization"));
  }
}
void old_spellings_are_mapped_with_a_warning(void**) {
  Config config = config_of("\"bfloat16\": {\"enabled\": true}, " +
                            zero_key("\"stage\": 3, \"cpu_offload\": true, "
                                     "\"cpu_offload_param\": true, "
                                     "\"stage3_gather_fp16_weights_on_model_save\": true"));
  assert_int_equal(config.check(), ZERO_OK);
  assert_int_equal(count(config, false), 4);
  assert_string_equal(config.value("bf16.enabled").c_str(), "true");
  assert_string_equal(config.value("zero_optimization.offload_optimizer.device").c_str(),
                      "\"cpu\"");
  assert_string_equal(config.value("zero_optimization.offload_param.device").c_str(), "\"cpu\"");
  assert_string_equal(
      config.value("zero_optimization.stage3_gather_16bit_weights_on_model_save").c_str(), "true");
}
void both_names_of_a_field_are_read_silently(void**) {
  Config config =
      config_of(zero_key("\"stage\": 3, \"max_live_parameters\": 5, "
                         "\"prefetch_bucket_size\": 6, "
                         "\"param_persistence_threshold\": 7"));
  assert_int_equal(config.check(), ZERO_OK);
  assert_int_equal(config.diagnostics().size(), 0);
  assert_int_equal(config.settings().max_live_elements, 5);
  assert_int_equal(config.settings().prefetch_bucket_elements, 6);
  assert_int_equal(config.settings().persistence_threshold_elements, 7);
}
void old_and_new_spelling_together_are_a_conflict(void**) {
  assert_int_equal(only_error(zero_key("\"max_live_parameters\": 5, "
                                       "\"stage3_max_live_parameters\": 5"),
                              "zero_optimization.stage3_max_live_parameters"),
                   ZERO_ERR_CONFIG_CONFLICT);
  assert_int_equal(only_error("\"bf16\": {}, \"bfloat16\": {}", "bfloat16"),
                   ZERO_ERR_CONFIG_CONFLICT);
  assert_int_equal(
      only_error(zero_key("\"stage\": 1, \"cpu_offload\": true, \"offload_optimizer\": "
                          "{\"device\": \"cpu\"}"),
                 "zero_optimization.offload_optimizer.device"),
      ZERO_ERR_CONFIG_CONFLICT);
}

// A number of bytes, plain or with a unit; what is listed and saved are the bytes.
void a_memory_budget_may_be_written_with_a_unit(void**) {
  const std::string key = "libzero.memory_budget";
  const auto body = [](const std::string& text) {
    return "\"libzero\": {\"memory_budget\": " + text + "}";
  };
  const std::pair<const char*, uint64_t> accepted[] = {{"\"24GB\"", 24000000000},
                                                       {"\"24 GB\"", 24000000000},
                                                       {"\"24gib\"", 25769803776},
                                                       {"\"1.5TB\"", 1500000000000},
                                                       {"\"1TiB\"", 1099511627776},
                                                       {"\"0.5KiB\"", 512},
                                                       {"\"3kB\"", 3000},
                                                       {"\"2MB\"", 2000000},
                                                       {"\"2MiB\"", 2097152},
                                                       {"\"77\"", 77},
                                                       {"\"77 B\"", 77},
                                                       {"1e6", 1000000},
                                                       {"12345678901", 12345678901},
                                                       {"null", 0}};
  for (const auto& [written, bytes] : accepted) {
    Config config = config_of(body(written));
    assert_int_equal(config.check(), ZERO_OK);
    assert_int_equal(config.diagnostics().size(), 0);
    assert_int_equal(config.settings().memory_budget, bytes);
    const std::string again = config.text();
    assert_int_equal(Config::load_text(again).settings().memory_budget, bytes);
  }
  for (const char* written : {"0", "-1", "\"-1GB\"", "\"24 G\"", "\"24GBs\"", "\"GB\"", "\"\"",
                              "1.5", "\"1e30\"", "\"9e7TB\"", "true", "[1]", "{}", "\"24 GB \""}) {
    assert_value_refused(body(written), key);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r121_integers_written_as_floats),
      cmocka_unit_test(truth_values_may_be_strings_and_numbers),
      cmocka_unit_test(a_truth_value_as_a_string_in_a_lax_section_is_warned_about),
      cmocka_unit_test(null_is_as_good_as_absent_where_a_value_is_optional),
      cmocka_unit_test(steps_per_print_may_be_infinite),
      cmocka_unit_test(a_section_must_be_an_object),
      cmocka_unit_test(the_bare_boolean_zero_optimization_is_stage_1_or_0),
      cmocka_unit_test(old_spellings_are_mapped_with_a_warning),
      cmocka_unit_test(a_memory_budget_may_be_written_with_a_unit),
      cmocka_unit_test(both_names_of_a_field_are_read_silently),
      cmocka_unit_test(old_and_new_spelling_together_are_a_conflict),
  };
  return cmocka_run_group_tests_name("config_spellings", tests, nullptr, nullptr);
}

// Configuration through the C interface: the option table, values and their origin, findings.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

static const char* value_of(const zero_config* config, const char* key) {
  static char text[512];
  uint64_t length = 0;
  OK(zero_config_get(config, key, text, sizeof text, &length));
  return text;
}

static void every_option_can_be_listed_and_read_back(void** state) {
  (void)state;
  zero_config* config = NULL;
  OK(zero_config_create(&config));
  const int32_t count = zero_option_count();
  assert_true(count > 100);
  int found_stage = 0;
  for (int32_t i = 0; i < count; i++) {
    zero_option_info info;
    zero_option_info_init(&info, sizeof info);
    OK(zero_option_at(i, &info));
    assert_true(strlen(info.key) > 0 && strlen(info.help) > 0);
    assert_in_range(info.kind, ZERO_OPTION_INTEGER, ZERO_OPTION_CHOICE);
    char text[512];
    uint64_t length = 0;
    const zero_status status = zero_config_get(config, info.key, text, sizeof text, &length);
    if (status != ZERO_OK) print_error("%s: %s\n", info.key, last_message());
    assert_int_equal(status, ZERO_OK);
    assert_string_equal(zero_config_origin(config, info.key), "default");
    if (strcmp(info.key, "zero_optimization.stage") != 0) continue;
    found_stage = 1;
    assert_int_equal(info.kind, ZERO_OPTION_INTEGER);
    assert_string_equal(info.default_value, "0");
    assert_true(info.minimum == 0 && info.maximum == 3);
  }
  assert_true(found_stage);
  zero_option_info info;
  zero_option_info_init(&info, sizeof info);
  BAD_ARGUMENT(zero_option_at(count, &info), "index", "");
  BAD_ARGUMENT(zero_option_at(-1, &info), "index", "-1");
  assert_string_equal(info.key, "");
  zero_config_destroy(config);
}

static void a_value_says_where_it_comes_from(void** state) {
  (void)state;
  zero_config* config = config_of(
      "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2}, \"optimizer\": {\"type\": "
      "\"AdamW\", \"params\":"
      " {\"lr\": \"auto\"}}}");
  zero_config_facts facts;
  zero_config_facts_init(&facts, sizeof facts);
  facts.learning_rate = 0.25;
  facts.accumulation_steps = 4;
  OK(zero_config_fill_auto(config, &facts));
  OK(zero_config_set(config, "gradient_clipping", "0.5"));
  assert_string_equal(value_of(config, "zero_optimization.stage"), "2");
  assert_string_equal(zero_config_origin(config, "zero_optimization.stage"), "file");
  assert_string_equal(value_of(config, "gradient_clipping"), "0.5");
  assert_string_equal(zero_config_origin(config, "gradient_clipping"), "set");
  assert_string_equal(value_of(config, "optimizer.params.lr"), "0.25");
  assert_string_equal(zero_config_origin(config, "optimizer.params.lr"), "facts");
  assert_string_equal(zero_config_origin(config, "steps_per_print"), "default");
  OK(zero_config_check(config));
  zero_config_destroy(config);
}

static void an_unknown_key_is_refused_with_the_nearest_known_one(void** state) {
  (void)state;
  zero_config* config = config_of("{}");
  uint64_t length = 77;
  REFUSED(zero_config_set(config, "zero_optimization.stag", "1"), ZERO_ERR_CONFIG_UNKNOWN_KEY,
          "zero_optimization.stag", "zero_optimization.stage");
  REFUSED(zero_config_get(config, "no.such.key", NULL, 0, &length), ZERO_ERR_CONFIG_UNKNOWN_KEY,
          "no.such.key", "");
  assert_int_equal(length, 77);
  zero_config_destroy(config);
}

static void stage_4_is_refused(void** state) {
  (void)state;
  zero_config* config =
      config_of("{\"train_batch_size\": 8,\n  \"zero_optimization\": {\"stage\": 4}\n}");
  zero_runtime* runtime = NULL;
  REFUSED(zero_config_check(config), ZERO_ERR_CONFIG_VALUE, "zero_optimization.stage", "4");
  zero_diagnostic found;
  zero_diagnostic_init(&found, sizeof found);
  assert_int_equal(zero_config_diagnostic_count(config), 1);
  OK(zero_config_diagnostic_at(config, 0, &found));
  assert_int_equal(found.is_error, 1);
  assert_int_equal(found.line, 2);
  assert_string_equal(found.key, "zero_optimization.stage");
  assert_string_equal(found.value, "4");
  BAD_ARGUMENT(zero_config_diagnostic_at(config, 1, &found), "index", "1");
  BAD_ARGUMENT(zero_config_diagnostic_at(config, -1, &found), "index", "-1");
  REFUSED(zero_init(config, NULL, &runtime), ZERO_ERR_CONFIG_VALUE, "zero_optimization.stage", "4");
  assert_null(runtime);
  zero_config_destroy(config);
}

static void nan_hyper_parameters_are_refused(void** state) {
  (void)state;
  static const char* const keys[] = {"optimizer.params.lr", "optimizer.params.eps",
                                     "optimizer.params.weight_decay", "gradient_clipping"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    static const char* const values[] = {"NaN", "nan", "Infinity", "1e999", "-1"};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      zero_config* config = config_of("{\"optimizer\": {\"type\": \"AdamW\"}}");
      zero_set_last_error(ZERO_OK, "");
      zero_status status = zero_config_set(config, keys[k], values[v]);
      if (status == ZERO_OK) status = zero_config_check(config);
      if (status < ZERO_ERR_CONFIG_SYNTAX || status > ZERO_ERR_CONFIG_CONFLICT) {
        print_error("%s = %s: %s\n", keys[k], values[v], zero_status_name(status));
        fail();
      }
      assert_true(strlen(last_message()) > 10);
      zero_config_destroy(config);
    }
  }
  // In a group NaN means the config's value; what is no number at all is refused.
  zero_model* model = new_model();
  for (int field = 0; field < 7; field++) {
    static const double bad[] = {INFINITY, -INFINITY, -0.5};
    static const char* const names[] = {"lr",    "lr_scale", "weight_decay", "beta1",
                                        "beta2", "epsilon",  "momentum"};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
      zero_group_options options;
      zero_group_options_init(&options, sizeof options);
      double* const fields[] = {&options.lr,      &options.lr_scale, &options.weight_decay,
                                &options.beta1,   &options.beta2,    &options.epsilon,
                                &options.momentum};
      *fields[field] = bad[b];
      zero_group_id group = 77;
      BAD_ARGUMENT(zero_group_add(model, "heads", &options, &group), "heads", names[field]);
      assert_int_equal(group, 77);
    }
  }
  zero_model_destroy(model);
}

static void text_and_file_say_where_they_are_wrong(void** state) {
  (void)state;
  zero_config* config = NULL;
  const char* text = "{\n  \"zero_optimization\": {\"stage\": }\n}";
  REFUSED(zero_config_load_text(text, strlen(text), &config), ZERO_ERR_CONFIG_SYNTAX, "line 2", "");
  REFUSED(zero_config_load_text("", 0, &config), ZERO_ERR_CONFIG_SYNTAX, "", "");
  REFUSED(zero_config_load_file("/no/such/file.json", &config), ZERO_ERR_NOT_FOUND,
          "/no/such/file.json", "does not exist");
  assert_null(config);
  char path[] = "/tmp/libzero-contract-XXXXXX";
  const int file = mkstemp(path);
  assert_true(file >= 0);
  FILE* out = fdopen(file, "w");
  fputs("{\"gradient_clipping\": 0.125}", out);
  fclose(out);
  OK(zero_config_load_file(path, &config));
  remove(path);
  assert_string_equal(value_of(config, "gradient_clipping"), "0.125");
  zero_config_destroy(config);
}

static void the_text_of_a_config_makes_the_same_config(void** state) {
  (void)state;
  zero_config* config =
      config_of(sgd_text(3, ", \"train_batch_size\": 8, \"libzero\": {\"open_buckets\": \"all\"}"));
  char first[16384], second[16384];
  uint64_t length = 0;
  OK(zero_config_text(config, first, sizeof first, &length));
  zero_config* again = config_of(first);
  OK(zero_config_check(again));
  OK(zero_config_text(again, second, sizeof second, &length));
  assert_string_equal(first, second);
  assert_string_equal(value_of(again, "zero_optimization.stage"), "3");
  zero_config_destroy(again);
  zero_config_destroy(config);
}

// Update k runs the schedule's iteration k-2, as in DeepSpeed; a linear warm-up of 4 steps.
static void a_schedule_is_a_function_of_the_update_s_number(void** state) {
  (void)state;
  zero_config* config = config_of(
      "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 7, \"betas\": [0.75, 0.9]}},"
      " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0,"
      " \"warmup_max_lr\": 0.5, \"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}}}");
  double lr = -1, momentum = -1;
  OK(zero_schedule_at(config, 4, &lr, &momentum)); // iteration 2 of 4
  assert_true(lr == 0.25);
  assert_true(momentum == 0.75);
  OK(zero_schedule_at(config, 1000, &lr, &momentum));
  assert_true(lr == 0.5);
  lr = -1;
  BAD_ARGUMENT(zero_schedule_at(config, 0, &lr, &momentum), "update", "0");
  BAD_ARGUMENT(zero_schedule_at(config, -3, &lr, &momentum), "update", "-3");
  assert_true(lr == -1);
  zero_config_destroy(config);
  config = config_of("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.125}}}");
  OK(zero_schedule_at(config, 12345, &lr, &momentum));
  assert_true(lr == 0.125);
  zero_config_destroy(config);
}

static void a_runtime_keeps_its_own_copy_of_the_config(void** state) {
  (void)state;
  zero_config* config = config_of("{\"libzero\": {\"comm\": \"self\"}, \"gradient_clipping\": 2}");
  zero_runtime* runtime = NULL;
  OK(zero_init(config, NULL, &runtime));
  OK(zero_config_set(config, "gradient_clipping", "3"));
  zero_config_destroy(config);
  assert_true(atof(value_of(zero_runtime_config(runtime), "gradient_clipping")) == 2);
  zero_runtime_destroy(runtime);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_option_can_be_listed_and_read_back),
      cmocka_unit_test(a_value_says_where_it_comes_from),
      cmocka_unit_test(an_unknown_key_is_refused_with_the_nearest_known_one),
      cmocka_unit_test(stage_4_is_refused),
      cmocka_unit_test(nan_hyper_parameters_are_refused),
      cmocka_unit_test(text_and_file_say_where_they_are_wrong),
      cmocka_unit_test(the_text_of_a_config_makes_the_same_config),
      cmocka_unit_test(a_schedule_is_a_function_of_the_update_s_number),
      cmocka_unit_test(a_runtime_keeps_its_own_copy_of_the_config),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// The step: its options and report, groups that change, norms, what a non-finite gradient does.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

enum { N = 5 };

static zero_runtime* run_at(int stage, const char* more) {
  zero_model* model = new_model();
  zero_group_id slow = -1;
  zero_group_options group;
  zero_group_options_init(&group, sizeof group);
  group.lr_scale = 0.5;
  OK(zero_group_add(model, "slow", &group, &slow));
  add_vector(model, "a", N, NULL);
  zero_param_options options = param_options(NULL);
  options.group = slow;
  add_with(model, "b", N, &options);
  return run_of(sgd_text(stage, more), model);
}

static void the_report_says_what_was_done(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    for (int step = 1; step <= 3; step++) {
      give(runtime, 0, 3);
      give(runtime, 1, 4);
      const zero_step_info info = step_of(runtime);
      assert_int_equal(info.step, step);
      assert_int_equal(zero_step_count(runtime), step);
      assert_true(info.skipped == 0 && info.skipped_total == 0);
      assert_true(info.lr == 1 && info.clip_scale == 1 && info.loss_scale == 1);
      assert_float_equal(info.grad_norm, sqrt(5 * 9 + 5 * 16), 1e-12);
      assert_true(info.nonfinite_param == -1 && info.nonfinite_rank == -1);
      assert_true(info.reduce_ns >= 0 && info.update_ns >= 0 && info.gather_ns >= 0);
      assert_int_equal(info.bytes_sent, 0); // one rank sends nothing
    }
    assert_true(first_of(runtime, 0, N) == -9);
    assert_true(first_of(runtime, 1, N) == -6); // half the rate
    end(runtime);
  }
}

static void a_rate_of_the_step_s_own_replaces_the_schedule_s(void** state) {
  (void)state;
  zero_runtime* runtime = run_at(1, "");
  zero_step_options options;
  zero_step_options_init(&options, sizeof options);
  zero_step_info info;
  zero_step_info_init(&info, sizeof info);
  info.step = 77;
  give(runtime, 0, 1);
  give(runtime, 1, 1);
  const double bad[] = {-1, INFINITY, -INFINITY};
  for (size_t i = 0; i < 3; i++) {
    options.lr = bad[i];
    BAD_ARGUMENT(zero_step(runtime, &options, NULL, &info), "options.lr", "");
  }
  assert_int_equal(info.step, 77);
  options.lr = 0.25;
  OK(zero_step(runtime, &options, NULL, &info));
  assert_true(info.lr == 0.25);
  assert_true(first_of(runtime, 0, N) == -0.25f);
  assert_true(first_of(runtime, 1, N) == -0.125f);
  options.lr = 0; // a step that moves nothing is a step
  give(runtime, 0, 1);
  OK(zero_step(runtime, &options, NULL, &info));
  assert_int_equal(info.step, 2);
  assert_true(first_of(runtime, 0, N) == -0.25f);
  end(runtime);
}

static void a_group_s_values_change_between_steps(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    zero_group_options group;
    zero_group_options_init(&group, sizeof group);
    group.lr = 0.125;
    group.weight_decay = 0.5;
    OK(zero_group_set(runtime, 1, &group));
    give(runtime, 0, 1);
    give(runtime, 1, 8);
    step_of(runtime);
    assert_true(first_of(runtime, 0, N) == -1);
    assert_true(first_of(runtime, 1, N) == -1);
    give(runtime, 1, 1);
    step_of(runtime); // g = 1 + 0.5 x -1
    assert_true(first_of(runtime, 1, N) == -1.0625f);
    zero_group_options_init(&group, sizeof group); // and back to the config's
    OK(zero_group_set(runtime, 1, &group));
    give(runtime, 1, 1);
    step_of(runtime);
    assert_true(first_of(runtime, 1, N) == -2.0625f);
    BAD_ARGUMENT(zero_group_set(runtime, 2, &group), "group 2", "0 to 1");
    BAD_ARGUMENT(zero_group_set(runtime, -1, &group), "group -1", "0 to 1");
    group.lr = INFINITY;
    BAD_ARGUMENT(zero_group_set(runtime, 1, &group), "group \"slow\": lr", "");
    zero_group_options_init(&group, sizeof group);
    group.frozen = 1;
    BAD_ARGUMENT(zero_group_set(runtime, 1, &group), "group \"slow\": frozen", "cannot change");
    zero_group_options_init(&group, sizeof group);
    group.momentum = 0.9; // its memory was not planned
    BAD_ARGUMENT(zero_group_set(runtime, 1, &group), "group \"slow\": momentum", "planned");
    give(runtime, 1, 1);
    step_of(runtime);
    assert_true(first_of(runtime, 1, N) == -3.0625f);
    end(runtime);
  }
}

static void a_frozen_group_is_not_trained(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_model* model = new_model();
    zero_group_options group;
    zero_group_options_init(&group, sizeof group);
    group.frozen = 1;
    zero_group_id still = -1;
    OK(zero_group_add(model, "still", &group, &still));
    const float seven[2] = {7, 7};
    zero_param_options options = param_options(seven);
    options.group = still;
    add_with(model, "f", 2, &options);
    add_vector(model, "w", 2, seven);
    zero_runtime* runtime = run_of(sgd_text(stage, ""), model);
    zero_buffer buffer;
    int32_t add = 0;
    BAD_ARGUMENT(zero_grad_buffer(runtime, 0, NULL, &buffer, &add), "\"f\" is frozen", "");
    give(runtime, 1, 1);
    step_of(runtime);
    assert_true(first_of(runtime, 0, 2) == 7);
    assert_true(first_of(runtime, 1, 2) == 6);
    end(runtime);
  }
}

static void norms_of_single_parameters_are_kept_where_asked_for(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    double norm = 77;
    zero_runtime* runtime = run_at(stage, "");
    BAD_STATE(zero_param_grad_norm(runtime, 0, &norm), "param_norms", "true");
    end(runtime);
    runtime = run_at(stage, ", \"libzero\": {\"param_norms\": true}");
    BAD_STATE(zero_param_grad_norm(runtime, 0, &norm), "no step", "");
    assert_true(norm == 77);
    give(runtime, 0, 3);
    give(runtime, 1, -4);
    step_of(runtime);
    OK(zero_param_grad_norm(runtime, 0, &norm));
    assert_float_equal(norm, sqrt(5 * 9), 1e-12);
    OK(zero_param_grad_norm(runtime, 1, &norm));
    assert_float_equal(norm, sqrt(5 * 16), 1e-12);
    norm = 77;
    BAD_ARGUMENT(zero_param_grad_norm(runtime, 2, &norm), "2", "0 to 1");
    BAD_ARGUMENT(zero_param_grad_norm(runtime, -1, &norm), "-1", "0 to 1");
    assert_true(norm == 77);
    give(runtime, 1, 1);
    step_of(runtime);
    OK(zero_param_grad_norm(runtime, 0, &norm)); // none came
    assert_true(norm == 0);
    end(runtime);
  }
}

// The element is the 4th of b; an infinity as well as a NaN.
static void a_gradient_that_is_not_finite_skips_the_step_and_is_found(void** state) {
  (void)state;
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    give(runtime, 0, 1);
    give(runtime, 1, 1);
    step_of(runtime);
    for (int i = 0; i < 3; i++) {
      float values[N] = {1, 1, 1, bad[i], 1};
      const zero_buffer gradient = {values, 4 * N, N, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
      OK(zero_grad_submit(runtime, 1, &gradient, NULL));
      give(runtime, 0, 5);
      const zero_step_info info = step_of(runtime);
      assert_int_equal(info.skipped, 1);
      assert_int_equal(info.step, 1);
      assert_int_equal(info.skipped_total, i + 1);
      assert_int_equal(info.nonfinite_param, 1);
      assert_int_equal(info.nonfinite_rank, 0);
      assert_int_equal(info.nonfinite_element, 3);
      assert_true(first_of(runtime, 0, N) == -1);
      assert_true(first_of(runtime, 1, N) == -0.5f);
    }
    give(runtime, 0, 1); // the next one is sound
    assert_int_equal(step_of(runtime).skipped, 0);
    assert_true(first_of(runtime, 0, N) == -2);
    assert_true(first_of(runtime, 1, N) == -0.5f);
    end(runtime);
  }
}

static void the_loss_scale_is_1_and_lies_where_the_runtime_lives(void** state) {
  (void)state;
  zero_runtime* runtime = run_at(0, "");
  zero_buffer buffer;
  OK(zero_loss_scale_buffer(runtime, &buffer));
  assert_true(buffer.bytes == 4 && buffer.count == 1 && buffer.dtype == ZERO_DTYPE_FP32);
  assert_true(buffer.place == ZERO_PLACE_HOST && buffer.device == -1);
  assert_true(*(float*)buffer.data == 1 && zero_loss_scale(runtime) == 1);
  end(runtime);
}

static void without_an_optimizer_nothing_can_be_trained(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  zero_runtime* runtime = start("{}");
  REFUSED(zero_shard_params(runtime, model), ZERO_ERR_CONFIG_VALUE, "optimizer.type", "AdamW");
  assert_int_equal(zero_runtime_status(runtime), ZERO_OK);
  zero_model_destroy(model);
  model = new_model(); // what is not trained needs none
  zero_param_options options = param_options(NULL);
  options.role = ZERO_PARAM_FROZEN;
  add_with(model, "w", 4, &options);
  OK(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  end(runtime);
}

static void a_16_bit_parameter_that_the_config_did_not_enable_is_a_conflict(void** state) {
  (void)state;
  static const zero_dtype dtypes[] = {ZERO_DTYPE_FP16, ZERO_DTYPE_BF16};
  static const char* const names[] = {"fp16", "bf16"};
  zero_runtime* runtime = start(sgd_text(1, ""));
  for (int i = 0; i < 2; i++) {
    zero_model* model = new_model();
    zero_param_options options = param_options(NULL);
    options.dtype = dtypes[i];
    add_with(model, "half", 4, &options);
    REFUSED(zero_shard_params(runtime, model), ZERO_ERR_CONFIG_CONFLICT, "param \"half\"",
            names[i]);
    zero_model_destroy(model);
  }
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  OK(zero_shard_params(runtime, model)); // the runtime is as it was
  zero_model_destroy(model);
  end(runtime);
}

static void initial_values_from_a_rank_that_is_not_there_are_refused(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  zero_runtime* runtime = start(sgd_text(0, ", \"libzero\": {\"initial_values\": \"rank:1\"}"));
  REFUSED(zero_shard_params(runtime, model), ZERO_ERR_CONFIG_VALUE, "initial_values", "rank:1");
  assert_int_equal(zero_runtime_status(runtime), ZERO_OK);
  zero_runtime_destroy(runtime);
  static const char* const bad[] = {"rank:-1", "rank:x", "everybody", "rank:"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char more[100];
    snprintf(more, sizeof more, ", \"libzero\": {\"initial_values\": \"%s\"}", bad[i]);
    zero_config* config = config_of(sgd_text(0, more));
    runtime = NULL;
    REFUSED(zero_init(config, NULL, &runtime), ZERO_ERR_CONFIG_VALUE, "initial_values", bad[i]);
    assert_null(runtime);
    zero_config_destroy(config);
  }
  zero_model_destroy(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_report_says_what_was_done),
      cmocka_unit_test(a_rate_of_the_step_s_own_replaces_the_schedule_s),
      cmocka_unit_test(a_group_s_values_change_between_steps),
      cmocka_unit_test(a_frozen_group_is_not_trained),
      cmocka_unit_test(norms_of_single_parameters_are_kept_where_asked_for),
      cmocka_unit_test(a_gradient_that_is_not_finite_skips_the_step_and_is_found),
      cmocka_unit_test(the_loss_scale_is_1_and_lies_where_the_runtime_lives),
      cmocka_unit_test(without_an_optimizer_nothing_can_be_trained),
      cmocka_unit_test(a_16_bit_parameter_that_the_config_did_not_enable_is_a_conflict),
      cmocka_unit_test(initial_values_from_a_rank_that_is_not_there_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

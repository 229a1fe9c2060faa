// The life of handles: calls before their time and after it, parents destroyed first, failure.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

// Everything that needs a model, on a runtime without one, or a closed one.
static void refuse_all_work(zero_runtime* runtime, const char* word) {
  const zero_param_id param = 0;
  float values[4] = {0};
  int32_t add = 77;
  double norm = 77;
  zero_buffer buffer;
  zero_group_options group;
  zero_group_options_init(&group, sizeof group);
  BAD_STATE(zero_micro_begin(runtime, -1), "zero_micro_begin", word);
  BAD_STATE(zero_grad_buffer(runtime, 0, NULL, &buffer, &add), "zero_grad_buffer", word);
  BAD_STATE(zero_grad_ready(runtime, &param, 1, NULL), "zero_grad_ready", word);
  zero_buffer gradient = {values, 16, 4, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
  BAD_STATE(zero_grad_submit(runtime, 0, &gradient, NULL), "zero_grad_submit", word);
  BAD_STATE(zero_grads_close(runtime, &param, 1, NULL), "zero_grads_close", word);
  BAD_STATE(zero_micro_end(runtime, NULL), "zero_micro_end", word);
  BAD_STATE(zero_grads_clear(runtime, NULL), "zero_grads_clear", word);
  BAD_STATE(zero_params_acquire(runtime, &param, 1, NULL, &buffer), "zero_params_acquire", word);
  BAD_STATE(zero_params_release(runtime, &param, 1, 0, NULL), "zero_params_release", word);
  BAD_STATE(zero_params_prefetch(runtime, &param, 1), "zero_params_prefetch", word);
  BAD_STATE(zero_params_broadcast(runtime, 0), "zero_params_broadcast", word);
  BAD_STATE(zero_step(runtime, NULL, NULL, NULL), "zero_step", word);
  BAD_STATE(zero_step_begin(runtime, NULL, NULL, NULL), "zero_step_begin", word);
  BAD_STATE(zero_step_end(runtime, NULL), "zero_step_end", word);
  BAD_STATE(zero_param_grad_norm(runtime, 0, &norm), "zero_param_grad_norm", word);
  BAD_STATE(zero_group_set(runtime, 0, &group), "zero_group_set", word);
  BAD_STATE(zero_shard_buffer(runtime, 0, ZERO_PART_VALUE, 0, &buffer), "zero_shard_buffer", word);
  BAD_STATE(zero_param_get(runtime, 0, ZERO_PART_VALUE, 0, values, 16), "zero_param_get", word);
  BAD_STATE(zero_param_set(runtime, 0, ZERO_PART_VALUE, 0, values, 16), "zero_param_set", word);
  assert_int_equal(add, 77);
  assert_true(norm == 77);
}

static void calls_in_the_wrong_order_are_refused(void** state) {
  (void)state;
  zero_runtime* runtime = start(sgd_text(1, ""));
  refuse_all_work(runtime, "expected zero_shard_params before");
  zero_buffer buffer;
  zero_span span;
  zero_param_id id = 77;
  zero_param_info info;
  zero_param_info_init(&info, sizeof info);
  BAD_STATE(zero_param_find(runtime, "w", &id), "zero_param_find", "zero_shard_params");
  BAD_STATE(zero_param_describe(runtime, 0, &info), "zero_param_describe", "zero_shard_params");
  BAD_STATE(zero_param_buffer(runtime, 0, &buffer), "zero_param_buffer", "zero_shard_params");
  BAD_STATE(zero_param_shard(runtime, 0, 0, &span), "zero_param_shard", "zero_shard_params");
  assert_int_equal(zero_param_count(runtime), 0);
  assert_null(zero_runtime_plan(runtime));
  assert_int_equal(zero_step_count(runtime), 0);
  assert_true(zero_loss_scale(runtime) == 1);
  // All that changed nothing.
  zero_model* model = new_model();
  const zero_param_id w = add_vector(model, "w", 4, NULL);
  OK(zero_shard_params(runtime, model));
  BAD_STATE(zero_shard_params(runtime, model), "zero_shard_params", "already has a model");
  zero_model_destroy(model);
  assert_non_null(zero_runtime_plan(runtime));
  give(runtime, w, 1);
  assert_int_equal(step_of(runtime).step, 1);
  assert_true(first_of(runtime, w, 4) == -1);
  end(runtime);
}

static void a_closed_runtime_does_no_more_work(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  zero_runtime* runtime = start(sgd_text(2, ""));
  OK(zero_shard_params(runtime, model));
  OK(zero_runtime_close(runtime));
  refuse_all_work(runtime, "closed");
  BAD_STATE(zero_runtime_close(runtime), "zero_runtime_close", "closed already");
  BAD_STATE(zero_shard_params(runtime, model), "zero_shard_params", "closed");
  assert_int_equal(zero_runtime_status(runtime), ZERO_OK);
  char text[500];
  uint64_t length = 0;
  OK(zero_runtime_text(runtime, text, sizeof text, &length));
  assert_non_null(strstr(text, "closed"));
  zero_model_destroy(model);
  zero_runtime_destroy(runtime);
  runtime = start(sgd_text(2, "")); // one without a model may be closed as well
  OK(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
}

static void a_step_without_gradients_steps_nothing_and_counts(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_model* model = new_model();
    const float one = 1;
    const zero_param_id w = add_vector(model, "w", 1, &one);
    zero_runtime* runtime = run_of(sgd_text(stage, ""), model);
    give(runtime, w, 0.5f);
    assert_int_equal(step_of(runtime).step, 1);
    const zero_step_info again = step_of(runtime); // twice: nothing has come since
    assert_int_equal(again.step, 2);
    assert_true(again.grad_norm == 0 && again.skipped == 0);
    assert_true(first_of(runtime, w, 1) == 0.5f);
    assert_int_equal(zero_step_count(runtime), 2);
    end(runtime);
  }
}

static void handles_may_be_destroyed_in_every_order(void** state) {
  (void)state;
  // Every order of destroying model, config, communicator, plan and runtime: 120.
  enum { kHandles = 5 };
  for (int code = 0; code < 120; code++) {
    int left[kHandles] = {0, 1, 2, 3, 4}, order[kHandles], rest = code;
    for (int i = 0; i < kHandles; i++) {
      const int at = rest % (kHandles - i);
      rest /= kHandles - i;
      order[i] = left[at];
      memmove(&left[at], &left[at + 1], sizeof(int) * (size_t)(kHandles - i - at - 1));
    }
    zero_model* model = new_model();
    zero_config* config = config_of(sgd_text(code % 4, ""));
    zero_plan* plan = NULL;
    zero_runtime* runtime = NULL;
    zero_init_options options = init_options();
    const zero_param_id w = add_vector(model, "w", 40, NULL);
    OK(zero_plan_create(config, model, NULL, &plan));
    OK(zero_comm_create_self(&options.comm));
    OK(zero_init(config, &options, &runtime));
    OK(zero_shard_params(runtime, model));
    for (int i = 0; i < kHandles; i++) {
      if (order[i] == 0) zero_model_destroy(model);
      if (order[i] == 1) zero_config_destroy(config);
      if (order[i] == 2) zero_comm_destroy(options.comm);
      if (order[i] == 3) zero_plan_destroy(plan);
      if (order[i] == 4) {
        give(runtime, w, 1); // works whatever is gone
        zero_step_info info = step_of(runtime);
        assert_int_equal(info.step, 1);
        assert_true(first_of(runtime, w, 40) == -1);
        assert_int_equal(zero_comm_size(zero_runtime_comm(runtime)), 1);
        zero_runtime_destroy(runtime); // without close
      }
    }
  }
}

static void a_runtime_is_destroyed_at_any_moment(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    for (int moment = 0; moment < 5; moment++) {
      zero_model* model = new_model();
      const zero_param_id w = add_vector(model, "w", 40, NULL);
      zero_runtime* runtime = start(sgd_text(stage, ""));
      zero_buffer buffer;
      int32_t add = 0;
      if (moment >= 1) OK(zero_shard_params(runtime, model));
      zero_model_destroy(model);
      if (moment >= 2) OK(zero_micro_begin(runtime, 0));
      if (moment >= 3) OK(zero_params_acquire(runtime, &w, 1, NULL, &buffer));
      if (moment >= 4) OK(zero_grad_buffer(runtime, w, NULL, &buffer, &add));
      zero_runtime_destroy(runtime);
    }
  }
}

static void a_failed_runtime_answers_failed(void** state) {
  (void)state;
  zero_model* model = new_model();
  const zero_param_id w = add_vector(model, "w", 4, NULL);
  zero_runtime* runtime = run_of(sgd_text(0, ""), model);
  give(runtime, w, 1);
  step_of(runtime);
  zero_comm_abort(zero_runtime_comm(runtime));
  OK(zero_micro_begin(runtime, /*is_last=*/0)); // so that nothing is reduced before the step
  give(runtime, w, 1);
  zero_step_info info;
  zero_step_info_init(&info, sizeof info);
  info.step = 77;
  const zero_status first = zero_step(runtime, NULL, NULL, &info);
  assert_int_equal(first, ZERO_ERR_COMM_ABORTED);
  assert_int_equal(info.step, 77);
  assert_int_equal(zero_runtime_status(runtime), ZERO_ERR_COMM_ABORTED);
  zero_buffer buffer;
  int32_t add = 77;
  float values[4];
  REFUSED(zero_grad_buffer(runtime, w, NULL, &buffer, &add), ZERO_ERR_FAILED, "abort", "");
  REFUSED(zero_step(runtime, NULL, NULL, NULL), ZERO_ERR_FAILED, "abort", "earlier error");
  REFUSED(zero_micro_end(runtime, NULL), ZERO_ERR_FAILED, "abort", "");
  REFUSED(zero_params_acquire(runtime, &w, 1, NULL, &buffer), ZERO_ERR_FAILED, "abort", "");
  REFUSED(zero_param_get(runtime, w, ZERO_PART_VALUE, 0, values, 16), ZERO_ERR_FAILED, "", "");
  REFUSED(zero_runtime_close(runtime), ZERO_ERR_FAILED, "abort", "");
  assert_int_equal(add, 77);
  // What reports still works.
  char text[1000];
  uint64_t length = 0;
  OK(zero_runtime_text(runtime, text, sizeof text, &length));
  assert_non_null(strstr(text, "abort"));
  assert_int_equal(zero_step_count(runtime), 1);
  assert_int_equal(zero_runtime_status(runtime), ZERO_ERR_COMM_ABORTED);
  OK(zero_param_buffer(runtime, w, &buffer));
  assert_true(((float*)buffer.data)[0] == -1);
  zero_runtime_destroy(runtime);
}

static void two_runtimes_of_one_process_do_not_touch_each_other(void** state) {
  (void)state;
  zero_runtime* runtimes[2];
  for (int i = 0; i < 2; i++) {
    zero_model* model = new_model();
    add_vector(model, "w", 4, NULL);
    runtimes[i] = run_of(sgd_text(i == 0 ? 0 : 3, ""), model);
  }
  for (int step = 0; step < 3; step++) {
    for (int i = 0; i < 2; i++) give(runtimes[i], 0, (float)(i + 1)); // both windows open at once
    for (int i = 0; i < 2; i++) step_of(runtimes[i]);
  }
  zero_comm_abort(zero_runtime_comm(runtimes[1]));
  assert_true(first_of(runtimes[0], 0, 4) == -3);
  assert_int_equal(zero_runtime_status(runtimes[0]), ZERO_OK);
  zero_runtime_destroy(runtimes[1]);
  end(runtimes[0]);
}

static void a_stream_or_a_device_of_a_host_runtime_is_refused(void** state) {
  (void)state;
  zero_model* model = new_model();
  const zero_param_id w = add_vector(model, "w", 4, NULL);
  zero_runtime* runtime = run_of(sgd_text(0, ""), model);
  int token = 0;
  void* stream = &token;
  zero_buffer buffer;
  int32_t add = 0;
  float values[4] = {0};
  const zero_buffer gradient = {values, 16, 4, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
  BAD_ARGUMENT(zero_grad_buffer(runtime, w, stream, &buffer, &add), "stream", "NULL");
  BAD_ARGUMENT(zero_grad_ready(runtime, &w, 1, stream), "stream", "NULL");
  BAD_ARGUMENT(zero_grad_submit(runtime, w, &gradient, stream), "stream", "NULL");
  BAD_ARGUMENT(zero_grads_close(runtime, &w, 1, stream), "stream", "NULL");
  BAD_ARGUMENT(zero_micro_end(runtime, stream), "stream", "NULL");
  BAD_ARGUMENT(zero_grads_clear(runtime, stream), "stream", "NULL");
  BAD_ARGUMENT(zero_params_acquire(runtime, &w, 1, stream, &buffer), "stream", "NULL");
  BAD_ARGUMENT(zero_params_release(runtime, &w, 1, 0, stream), "stream", "NULL");
  BAD_ARGUMENT(zero_step(runtime, NULL, stream, NULL), "stream", "NULL");
  BAD_ARGUMENT(zero_step_begin(runtime, NULL, stream, NULL), "stream", "NULL");
  BAD_ARGUMENT(zero_step_end(runtime, stream), "stream", "NULL");
  end(runtime);
  zero_config* config = config_of("{}");
  zero_init_options options = init_options();
  options.device = 0;
  runtime = NULL;
  REFUSED(zero_init(config, &options, &runtime), ZERO_ERR_UNSUPPORTED, "device is 0", "-1");
  OK(zero_config_set(config, "libzero.device", "\"cuda\""));
  options.device = -1;
  REFUSED(zero_init(config, &options, &runtime), ZERO_ERR_UNSUPPORTED, "cuda", "libzero.device");
  assert_null(runtime);
  zero_config_destroy(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_in_the_wrong_order_are_refused),
      cmocka_unit_test(a_closed_runtime_does_no_more_work),
      cmocka_unit_test(a_step_without_gradients_steps_nothing_and_counts),
      cmocka_unit_test(handles_may_be_destroyed_in_every_order),
      cmocka_unit_test(a_runtime_is_destroyed_at_any_moment),
      cmocka_unit_test(a_failed_runtime_answers_failed),
      cmocka_unit_test(two_runtimes_of_one_process_do_not_touch_each_other),
      cmocka_unit_test(a_stream_or_a_device_of_a_host_runtime_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Gradients: who may hand over what, when; windows of micro-batches; what is missing.
// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>

#include "contract_help.h"

enum { N = 5 };

struct run {
  zero_runtime* runtime;
  zero_param_id a, b, frozen, mean;
};

// Two trained vectors of zeros, a frozen one and a buffer; SGD of rate 1.
static struct run run_at(int stage, const char* more) {
  zero_model* model = new_model();
  struct run run;
  run.a = add_vector(model, "a", N, NULL);
  run.b = add_vector(model, "b", N, NULL);
  zero_param_options options = param_options(NULL);
  options.role = ZERO_PARAM_FROZEN;
  run.frozen = add_with(model, "frozen", N, &options);
  options.role = ZERO_PARAM_BUFFER;
  run.mean = add_with(model, "mean", N, &options);
  run.runtime = run_of(sgd_text(stage, more), model);
  return run;
}

static zero_status ask(zero_runtime* runtime, zero_param_id param) {
  zero_buffer buffer = {0};
  int32_t add = 77;
  const zero_status status = zero_grad_buffer(runtime, param, NULL, &buffer, &add);
  if (status != ZERO_OK) {
    assert_int_equal(add, 77);
    assert_null(buffer.data);
  }
  return status;
}

static zero_status submit(zero_runtime* runtime, zero_param_id param, float* values) {
  const zero_buffer buffer = {values, N * 4, N, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
  return zero_grad_submit(runtime, param, &buffer, NULL);
}

// After whatever was refused a step still does what it says.
static void expect_sound(struct run run) {
  give(run.runtime, run.a, 1);
  give(run.runtime, run.b, 2);
  const zero_step_info info = step_of(run.runtime);
  assert_float_equal(info.grad_norm, 5, 1e-12); // sqrt(5 x 1 + 5 x 4)
  assert_true(first_of(run.runtime, run.a, N) == -1);
  assert_true(first_of(run.runtime, run.b, N) == -2);
  assert_true(first_of(run.runtime, run.frozen, N) == 0);
  end(run.runtime);
}

static void a_gradient_handed_over_twice_is_refused(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    struct run run = run_at(stage, "");
    float values[N] = {1, 1, 1, 1, 1};
    OK(ask(run.runtime, run.a));
    BAD_STATE(ask(run.runtime, run.a), "param \"a\"", "handed out");
    BAD_STATE(submit(run.runtime, run.a, values), "param \"a\"", "handed out");
    BAD_STATE(zero_grads_close(run.runtime, &run.a, 1, NULL), "param \"a\"", "handed out");
    OK(zero_grad_ready(run.runtime, &run.a, 1, NULL));
    BAD_STATE(zero_grad_ready(run.runtime, &run.a, 1, NULL), "param \"a\"", "already complete");
    BAD_STATE(ask(run.runtime, run.a), "param \"a\"", "already complete");
    BAD_STATE(submit(run.runtime, run.a, values), "param \"a\"", "already complete");
    OK(submit(run.runtime, run.b, values));
    BAD_STATE(submit(run.runtime, run.b, values), "param \"b\"", "already complete");
    OK(zero_grads_clear(run.runtime, NULL)); // and once more from the start
    const zero_param_id twice[] = {run.a, run.b, run.a};
    OK(ask(run.runtime, run.a));
    OK(ask(run.runtime, run.b));
    BAD_ARGUMENT(zero_grad_ready(run.runtime, twice, 3, NULL), "param \"a\"", "twice");
    OK(zero_grads_clear(run.runtime, NULL));
    OK(zero_grads_close(run.runtime, &run.a, 1, NULL));
    OK(zero_grads_close(run.runtime, &run.a, 1, NULL)); // closing what is closed says nothing new
    BAD_STATE(ask(run.runtime, run.a), "param \"a\"", "already closed");
    OK(zero_grads_clear(run.runtime, NULL));
    expect_sound(run);
  }
}

static void a_gradient_of_a_frozen_parameter_is_refused(void** state) {
  (void)state;
  struct run run = run_at(2, "");
  float values[N] = {0};
  const zero_param_id unasked[] = {run.a, run.frozen};
  BAD_ARGUMENT(ask(run.runtime, run.frozen), "param \"frozen\" is frozen", "trained");
  BAD_ARGUMENT(submit(run.runtime, run.frozen, values), "param \"frozen\" is frozen", "trained");
  BAD_ARGUMENT(zero_grad_ready(run.runtime, &run.frozen, 1, NULL), "frozen", "trained");
  BAD_ARGUMENT(zero_grads_close(run.runtime, unasked, 2, NULL), "\"frozen\"", "trained");
  BAD_ARGUMENT(ask(run.runtime, run.mean), "param \"mean\" is a buffer", "trained");
  expect_sound(run);
}

static void a_parameter_that_does_not_exist_is_refused(void** state) {
  (void)state;
  struct run run = run_at(1, "");
  float values[N] = {0};
  const zero_param_id bad[] = {-1, 4, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < 4; i++) {
    char number[16];
    snprintf(number, sizeof number, "%d", bad[i]);
    BAD_ARGUMENT(ask(run.runtime, bad[i]), number, "0 to 3");
    BAD_ARGUMENT(submit(run.runtime, bad[i], values), number, "0 to 3");
    BAD_ARGUMENT(zero_grad_ready(run.runtime, &bad[i], 1, NULL), number, "0 to 3");
    BAD_ARGUMENT(zero_grads_close(run.runtime, &bad[i], 1, NULL), number, "0 to 3");
  }
  expect_sound(run);
}

static void a_gradient_of_another_dtype_is_refused(void** state) {
  (void)state;
  struct run run = run_at(0, "");
  float values[2 * N] = {0};
  const zero_buffer good = {values, N * 4, N, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
  zero_buffer bad = good;
  bad.dtype = ZERO_DTYPE_BF16;
  BAD_ARGUMENT(zero_grad_submit(run.runtime, run.a, &bad, NULL), "param \"a\" has dtype bf16",
               "expected fp32");
  bad = good;
  bad.count = N + 1;
  BAD_ARGUMENT(zero_grad_submit(run.runtime, run.a, &bad, NULL), "6 elements", "expected 5");
  bad = good;
  bad.bytes = 16;
  BAD_ARGUMENT(zero_grad_submit(run.runtime, run.a, &bad, NULL), "16 bytes", "expected 20");
  bad = good;
  bad.data = NULL;
  BAD_ARGUMENT(zero_grad_submit(run.runtime, run.a, &bad, NULL), "param \"a\"", "no data");
  bad = good;
  bad.place = ZERO_PLACE_DEVICE;
  BAD_ARGUMENT(zero_grad_submit(run.runtime, run.a, &bad, NULL), "place 3", "host");
  expect_sound(run);
}

static void ready_without_a_buffer_is_refused_and_a_buffer_without_ready_too(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    struct run run = run_at(stage, "");
    BAD_STATE(zero_grad_ready(run.runtime, &run.b, 1, NULL), "param \"b\"", "zero_grad_buffer");
    OK(ask(run.runtime, run.a));
    BAD_STATE(zero_grad_ready(run.runtime, &run.b, 1, NULL), "param \"b\"", "zero_grad_buffer");
    BAD_STATE(zero_micro_end(run.runtime, NULL), "param \"a\"", "zero_grad_ready");
    BAD_STATE(zero_step(run.runtime, NULL, NULL, NULL), "param \"a\"", "zero_grad_ready");
    OK(zero_grads_clear(run.runtime, NULL));
    expect_sound(run);
  }
}

static void micro_begin_is_refused_out_of_turn(void** state) {
  (void)state;
  struct run run = run_at(1, ", \"gradient_accumulation_steps\": 2");
  BAD_ARGUMENT(zero_micro_begin(run.runtime, 2), "is_last is 2", "1, 0 or -1");
  BAD_ARGUMENT(zero_micro_begin(run.runtime, -2), "is_last is -2", "");
  OK(zero_micro_begin(run.runtime, 0));
  BAD_STATE(zero_micro_begin(run.runtime, 0), "micro-batch 1 is still open", "zero_micro_end");
  give(run.runtime, run.a, 3);
  OK(zero_micro_end(run.runtime, NULL));
  OK(zero_micro_begin(run.runtime, -1)); // the second of two
  BAD_STATE(zero_step(run.runtime, NULL, NULL, NULL), "micro-batch 2 is still open", "");
  give(run.runtime, run.a, 1);
  OK(zero_micro_end(run.runtime, NULL));
  BAD_STATE(zero_micro_begin(run.runtime, 0), "last", "zero_step");
  BAD_STATE(ask(run.runtime, run.a), "last", "zero_step");
  step_of(run.runtime);
  assert_true(first_of(run.runtime, run.a, N) == -2); // (3 + 1) / 2
  OK(zero_micro_begin(run.runtime, 0));
  end(run.runtime);
}

// The config says 4 micro-batches, the step comes after 2: the mean is over 2.
static void a_window_of_2_of_4_micro_batches_divides_by_2(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    for (int said = 0; said <= 1; said++) { // whether micro_begin says which is the last
      struct run run = run_at(stage, ", \"gradient_accumulation_steps\": 4");
      for (int micro = 0; micro < 2; micro++) {
        if (said) OK(zero_micro_begin(run.runtime, micro == 1));
        give(run.runtime, run.a, micro == 0 ? 3 : 5);
        if (micro == 1) give(run.runtime, run.b, 1);
        OK(zero_micro_end(run.runtime, NULL));
      }
      const zero_step_info info = step_of(run.runtime);
      assert_true(first_of(run.runtime, run.a, N) == -4);
      assert_true(first_of(run.runtime, run.b, N) == -0.5f);
      assert_float_equal(info.grad_norm, sqrt(5 * 16 + 5 * 0.25), 1e-12);
      end(run.runtime);
    }
  }
}

static void a_divisor_replaces_the_mean(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    struct run run = run_at(stage, ", \"gradient_accumulation_steps\": 2");
    for (int micro = 0; micro < 2; micro++) {
      give(run.runtime, run.a, 6); // sums, over 3 and 5 tokens
      OK(zero_micro_end(run.runtime, NULL));
    }
    zero_step_options options;
    zero_step_options_init(&options, sizeof options);
    const double bad[] = {0, -8, INFINITY};
    for (size_t i = 0; i < 3; i++) {
      options.gradient_divisor = bad[i];
      BAD_ARGUMENT(zero_step(run.runtime, &options, NULL, NULL), "gradient_divisor", "");
    }
    options.gradient_divisor = 8;
    OK(zero_step(run.runtime, &options, NULL, NULL));
    assert_true(first_of(run.runtime, run.a, N) == -1.5f);
    end(run.runtime);
  }
}

static void a_missing_gradient_is_left_alone_or_taken_for_zeros(void** state) {
  (void)state;
  const char* momentum =
      "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1, \"momentum\": 0.5}},"
      " \"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": %d},"
      " \"libzero\": {\"missing_gradients\": \"%s\"}}";
  for (int stage = 0; stage <= 3; stage++) {
    for (int zero = 0; zero <= 1; zero++) {
      char text[400];
      snprintf(text, sizeof text, momentum, stage, zero ? "zero" : "leave");
      zero_model* model = new_model();
      const zero_param_id a = add_vector(model, "a", N, NULL);
      const zero_param_id b = add_vector(model, "b", N, NULL);
      zero_runtime* runtime = run_of(text, model);
      give(runtime, a, 2);
      give(runtime, b, 2);
      step_of(runtime); // both at -2, momentum 2
      give(runtime, b, 2);
      OK(zero_grads_close(runtime, &a, 1, NULL));
      step_of(runtime);
      // With zeros the momentum rolls on: 0.5 x 2 more.
      assert_true(first_of(runtime, a, N) == (zero ? -3 : -2));
      assert_true(first_of(runtime, b, N) == -5);
      assert_true(element_of(runtime, a, ZERO_PART_STATE, 0, 0, N) == (zero ? 1 : 2));
      end(runtime);
    }
  }
}

static void clear_forgets_what_came_since_the_last_step(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    struct run run = run_at(stage, ", \"gradient_accumulation_steps\": 3");
    give(run.runtime, run.a, 100);
    give(run.runtime, run.b, 100);
    OK(zero_micro_end(run.runtime, NULL));
    give(run.runtime, run.a, 100);
    OK(zero_grads_clear(run.runtime, NULL));
    OK(zero_grads_clear(run.runtime, NULL));
    give(run.runtime, run.a, 4); // the first of a new window
    OK(zero_micro_end(run.runtime, NULL));
    step_of(run.runtime);
    assert_true(first_of(run.runtime, run.a, N) == -4);
    assert_true(first_of(run.runtime, run.b, N) == 0);
    end(run.runtime);
  }
}

struct other_thread {
  zero_runtime* runtime;
  zero_param_id param;
  zero_status seen, text;
};

static void* call_ready(void* user_data) {
  struct other_thread* call = user_data;
  uint64_t length = 0;
  call->text = zero_runtime_text(call->runtime, NULL, 0, &length);
  call->seen = zero_grad_ready(call->runtime, &call->param, 1, NULL);
  return NULL;
}

static void a_gradient_may_become_ready_on_another_thread(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    struct run run = run_at(stage, "");
    struct other_thread calls[] = {{run.runtime, run.a, -1, -1}, {run.runtime, run.b, -1, -1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
      zero_buffer buffer;
      int32_t add = -1;
      OK(zero_grad_buffer(run.runtime, calls[i].param, NULL, &buffer, &add));
      for (int e = 0; e < N; e++) ((float*)buffer.data)[e] = (float)(i + 1);
    }
    for (int i = 0; i < 2; i++) {
      assert_int_equal(pthread_create(&threads[i], NULL, call_ready, &calls[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(calls[i].seen, ZERO_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(calls[i].text, ZERO_ERR_BUFFER_TOO_SMALL);
    step_of(run.runtime);
    assert_true(first_of(run.runtime, run.a, N) == -1);
    assert_true(first_of(run.runtime, run.b, N) == -2);
    end(run.runtime);
  }
}

static void an_order_that_needs_more_open_buckets_changes_nothing(void** state) {
  (void)state;
  // One parameter a bucket, one open bucket: the order of registration is the wrong one.
  const char* more = ", \"libzero\": {\"open_buckets\": 1}";
  zero_model* model = new_model();
  char name[8];
  for (int i = 0; i < 3; i++) {
    snprintf(name, sizeof name, "p%d", i);
    add_vector(model, name, 64, NULL);
  }
  zero_runtime* runtime = NULL;
  zero_config* config = config_of(sgd_text(2, more));
  OK(zero_config_set(config, "zero_optimization.reduce_bucket_size", "64"));
  zero_init_options options = init_options();
  OK(zero_comm_create_self(&options.comm));
  OK(zero_init(config, &options, &runtime));
  OK(zero_shard_params(runtime, model));
  OK(ask(runtime, 1)); // open, not ready
  REFUSED(ask(runtime, 0), ZERO_ERR_NO_OPEN_BUCKET, "\"p1\"", "open_buckets\" is 1, at least 2");
  OK(zero_grads_clear(runtime, NULL));
  for (zero_param_id p = 2; p >= 0; p--) give(runtime, p, 1);
  step_of(runtime);
  for (zero_param_id p = 0; p < 3; p++) assert_true(first_of(runtime, p, 64) == -1);
  end(runtime);
  zero_model_destroy(model);
  zero_comm_destroy(options.comm);
  zero_config_destroy(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_gradient_handed_over_twice_is_refused),
      cmocka_unit_test(a_gradient_of_a_frozen_parameter_is_refused),
      cmocka_unit_test(a_parameter_that_does_not_exist_is_refused),
      cmocka_unit_test(a_gradient_of_another_dtype_is_refused),
      cmocka_unit_test(ready_without_a_buffer_is_refused_and_a_buffer_without_ready_too),
      cmocka_unit_test(micro_begin_is_refused_out_of_turn),
      cmocka_unit_test(a_window_of_2_of_4_micro_batches_divides_by_2),
      cmocka_unit_test(a_divisor_replaces_the_mean),
      cmocka_unit_test(a_missing_gradient_is_left_alone_or_taken_for_zeros),
      cmocka_unit_test(clear_forgets_what_came_since_the_last_step),
      cmocka_unit_test(a_gradient_may_become_ready_on_another_thread),
      cmocka_unit_test(an_order_that_needs_more_open_buckets_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Parameters on loan: counted, named, and what is written into them.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

enum { N = 40 };

static zero_runtime* run_at(int stage, const char* more) {
  float first[N];
  for (int i = 0; i < N; i++) first[i] = (float)i;
  zero_model* model = new_model();
  add_vector(model, "a", N, first);
  add_vector(model, "b", N, NULL);
  return run_of(sgd_text(stage, more), model); // first is read in here
}

static const zero_param_id kBoth[] = {0, 1};

static void acquired_twice_is_released_twice(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    zero_buffer once[2], again;
    OK(zero_params_acquire(runtime, kBoth, 2, NULL, once));
    OK(zero_params_acquire(runtime, kBoth, 1, NULL, &again));
    assert_ptr_equal(again.data, once[0].data);
    assert_true(again.count == N && again.bytes == 4 * N && again.dtype == ZERO_DTYPE_FP32);
    assert_true(again.place == ZERO_PLACE_HOST && again.device == -1);
    for (int i = 0; i < N; i++) assert_true(((float*)again.data)[i] == (float)i);
    OK(zero_params_release(runtime, kBoth, 1, 0, NULL));
    assert_true(((float*)again.data)[7] == 7); // still on loan
    BAD_STATE(zero_step(runtime, NULL, NULL, NULL), "\"a\"", "zero_params_release");
    OK(zero_params_release(runtime, kBoth, 2, 0, NULL));
    BAD_STATE(zero_params_release(runtime, kBoth, 1, 0, NULL), "\"a\"", "not on loan");
    step_of(runtime);
    end(runtime);
  }
}

static void a_step_with_open_loans_names_them(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    zero_buffer buffers[2];
    give(runtime, 0, 1);
    OK(zero_params_acquire(runtime, kBoth, 2, NULL, buffers));
    OK(zero_params_acquire(runtime, &kBoth[1], 1, NULL, buffers));
    zero_step_info info;
    zero_step_info_init(&info, sizeof info);
    info.step = 77;
    BAD_STATE(zero_step(runtime, NULL, NULL, &info), "\"a\", \"b\" (2 loans)",
              "zero_params_release");
    assert_int_equal(info.step, 77);
    float values[N] = {0};
    BAD_STATE(zero_param_set(runtime, 0, ZERO_PART_VALUE, 0, values, sizeof values), "\"a\"",
              "zero_params_release");
    OK(zero_params_release(runtime, kBoth, 2, 0, NULL));
    OK(zero_params_release(runtime, &kBoth[1], 1, 0, NULL));
    OK(zero_step(runtime, NULL, NULL, &info)); // the gradient is still there
    assert_true(first_of(runtime, 0, N) == -1);
    end(runtime);
  }
}

static void a_release_without_a_loan_changes_nothing(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    zero_buffer buffers[3];
    const zero_param_id thrice[] = {0, 1, 1};
    BAD_STATE(zero_params_release(runtime, kBoth, 1, 0, NULL), "\"a\"", "not on loan");
    OK(zero_params_acquire(runtime, kBoth, 1, NULL, buffers));
    BAD_STATE(zero_params_release(runtime, kBoth, 2, 0, NULL), "\"b\"", "not on loan");
    OK(zero_params_acquire(runtime, &kBoth[1], 1, NULL, &buffers[1]));
    BAD_STATE(zero_params_release(runtime, thrice, 3, 0, NULL), "\"b\"", "as often");
    OK(zero_params_release(runtime, kBoth, 2, 0, NULL)); // both loans are still there
    step_of(runtime);
    end(runtime);
  }
}

static void a_loan_of_what_does_not_exist_is_refused(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage += 3) {
    zero_runtime* runtime = run_at(stage, "");
    zero_buffer buffers[2] = {{0}};
    const zero_param_id bad[] = {0, 2};
    BAD_ARGUMENT(zero_params_acquire(runtime, bad, 2, NULL, buffers), "parameter 2", "0 to 1");
    BAD_ARGUMENT(zero_params_release(runtime, bad, 2, 0, NULL), "parameter 2", "0 to 1");
    BAD_ARGUMENT(zero_params_prefetch(runtime, bad, 2), "parameter 2", "0 to 1");
    assert_null(buffers[0].data);
    OK(zero_params_acquire(runtime, NULL, 0, NULL, NULL));
    OK(zero_params_release(runtime, NULL, 0, 0, NULL));
    OK(zero_params_prefetch(runtime, NULL, 0));
    step_of(runtime); // nothing is on loan
    end(runtime);
  }
}

static void what_is_written_into_a_loan_becomes_the_value(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    zero_buffer buffer;
    OK(zero_params_acquire(runtime, kBoth, 1, NULL, &buffer));
    for (int i = 0; i < N; i++) ((float*)buffer.data)[i] = (float)(1000 + i);
    OK(zero_params_release(runtime, kBoth, 1, /*keep_changes=*/1, NULL));
    OK(zero_params_acquire(runtime, kBoth, 1, NULL, &buffer));
    for (int i = 0; i < N; i++) assert_true(((float*)buffer.data)[i] == (float)(1000 + i));
    OK(zero_params_release(runtime, kBoth, 1, 0, NULL));
    for (uint64_t i = 0; i < N; i++) {
      assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, i, N) == (float)(1000 + i));
    }
    assert_true(first_of(runtime, 1, N) == 0); // its neighbour is as it was
    give(runtime, 0, 1); // the update starts from there
    step_of(runtime);
    assert_true(element_of(runtime, 0, ZERO_PART_VALUE, 0, N - 1, N) == 1000 + N - 2);
    OK(zero_params_acquire(runtime, kBoth, 1, NULL, &buffer));
    for (int i = 0; i < N; i++) assert_true(((float*)buffer.data)[i] == (float)(999 + i));
    OK(zero_params_release(runtime, kBoth, 1, 0, NULL));
    end(runtime);
  }
}

static void at_stage_3_a_parameter_has_no_place_of_its_own(void** state) {
  (void)state;
  zero_runtime* runtime = run_at(3, "");
  zero_buffer buffer = {0};
  BAD_STATE(zero_param_buffer(runtime, 0, &buffer), "param \"a\"", "zero_params_acquire");
  assert_null(buffer.data);
  BAD_ARGUMENT(zero_param_buffer(runtime, 2, &buffer), "2", "0 to 1");
  REFUSED(zero_params_broadcast(runtime, 0), ZERO_ERR_UNSUPPORTED, "stage 3", "initial_values");
  end(runtime);
  for (int stage = 0; stage <= 2; stage++) {
    runtime = run_at(stage, "");
    zero_buffer loan;
    OK(zero_param_buffer(runtime, 0, &buffer));
    OK(zero_params_acquire(runtime, kBoth, 1, NULL, &loan));
    assert_ptr_equal(loan.data, buffer.data);
    OK(zero_params_release(runtime, kBoth, 1, 0, NULL));
    OK(zero_params_broadcast(runtime, 0));
    BAD_ARGUMENT(zero_params_broadcast(runtime, 1), "root is 1", "0 to 0");
    assert_true(element_of(runtime, 0, ZERO_PART_VALUE, 0, 9, N) == 9);
    end(runtime);
  }
}

static void too_much_on_loan_names_the_loans_and_the_number_that_would_do(void** state) {
  (void)state;
  zero_model* model = new_model();
  char name[8];
  zero_param_id ids[8];
  for (int i = 0; i < 8; i++) {
    snprintf(name, sizeof name, "p%d", i);
    ids[i] = add_vector(model, name, 64, NULL);
  }
  zero_runtime* runtime = run_of(sgd_text(3, ", \"libzero\": {\"live_parameters\": 128}"), model);
  zero_buffer buffers[8] = {{0}};
  OK(zero_params_acquire(runtime, ids, 2, NULL, buffers));
  REFUSED(zero_params_acquire(runtime, ids, 8, NULL, buffers), ZERO_ERR_OUT_OF_MEMORY,
          "on loan: \"p0\", \"p1\"", "\"libzero.live_parameters\" is 128");
  assert_null(buffers[7].data);
  OK(zero_params_release(runtime, ids, 2, 0, NULL));
  OK(zero_params_acquire(runtime, &ids[6], 2, NULL, buffers)); // what was refused took no room
  OK(zero_params_release(runtime, &ids[6], 2, 0, NULL));
  step_of(runtime);
  end(runtime);
}

static void a_prefetch_is_a_hint_only(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_at(stage, "");
    zero_buffer buffers[2];
    for (int round = 0; round < 3; round++) {
      OK(zero_params_prefetch(runtime, kBoth, 2));
      OK(zero_params_prefetch(runtime, kBoth, 2));
      OK(zero_params_acquire(runtime, kBoth, 2, NULL, buffers));
      assert_true(((float*)buffers[0].data)[5] == (float)(5 - round));
      OK(zero_params_release(runtime, kBoth, 2, 0, NULL));
      OK(zero_params_prefetch(runtime, kBoth, 2)); // and never used before the step
      give(runtime, 0, 1);
      step_of(runtime);
    }
    end(runtime);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(acquired_twice_is_released_twice),
      cmocka_unit_test(a_step_with_open_loans_names_them),
      cmocka_unit_test(a_release_without_a_loan_changes_nothing),
      cmocka_unit_test(a_loan_of_what_does_not_exist_is_refused),
      cmocka_unit_test(what_is_written_into_a_loan_becomes_the_value),
      cmocka_unit_test(at_stage_3_a_parameter_has_no_place_of_its_own),
      cmocka_unit_test(too_much_on_loan_names_the_loans_and_the_number_that_would_do),
      cmocka_unit_test(a_prefetch_is_a_hint_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Versions, features, statuses, the last error and text out.
// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>

#include "contract_help.h"

static void the_version_number_and_string_agree(void** state) {
  (void)state;
  char expected[32];
  const int32_t number = zero_version_number();
  snprintf(expected, sizeof expected, "%d.%d.%d+", number / 10000, number / 100 % 100,
           number % 100);
  assert_int_equal(number,
                   ZERO_VERSION_MAJOR * 10000 + ZERO_VERSION_MINOR * 100 + ZERO_VERSION_PATCH);
  assert_memory_equal(zero_version_string(), expected, strlen(expected));
}

static void a_feature_says_where_it_comes_from_or_why_it_is_not_there(void** state) {
  (void)state;
  for (zero_feature feature = ZERO_FEATURE_CUDA; feature <= ZERO_FEATURE_LOCAL; feature++) {
    char text[256];
    uint64_t length = 0;
    OK(zero_feature_text(feature, text, sizeof text, &length));
    assert_int_equal(strlen(text), length);
    if (!zero_has_feature(feature)) assert_non_null(strstr(text, "not "));
  }
  assert_int_equal(zero_has_feature(ZERO_FEATURE_LOCAL), 1);
  assert_int_equal(zero_has_feature(99), 0);
  uint64_t length = 77;
  BAD_ARGUMENT(zero_feature_text(99, NULL, 0, &length), "feature", "99");
  assert_int_equal(length, 77);
}

static void a_status_has_its_own_name_and_an_unknown_one_a_question_mark(void** state) {
  (void)state;
  assert_string_equal(zero_status_name(ZERO_OK), "ZERO_OK");
  assert_string_equal(zero_status_name(ZERO_ERR_COMM_TIMEOUT), "ZERO_ERR_COMM_TIMEOUT");
  assert_string_equal(zero_status_name(ZERO_ERR_INTERNAL), "ZERO_ERR_INTERNAL");
  assert_string_equal(zero_status_name(9), "ZERO_ERR_?");
  assert_string_equal(zero_status_name(-1), "ZERO_ERR_?");
}

static void a_failed_call_leaves_its_sentence_in_the_last_error(void** state) {
  (void)state;
  zero_comm* comm = (zero_comm*)(void*)&state;
  assert_int_equal(zero_comm_create_local("group", 5, 3, 0, &comm), ZERO_ERR_INVALID_ARGUMENT);
  assert_ptr_equal(comm, &state);
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  OK(zero_last_error(&info));
  assert_int_equal(info.status, ZERO_ERR_INVALID_ARGUMENT);
  assert_int_equal(info.rank, -1);
  assert_int_equal(info.native_code, 0);
  assert_string_equal(info.origin, "libzero");
  assert_non_null(strstr(info.message, "rank is 5"));
  assert_non_null(strstr(info.message, "0 to 2"));
  // A success does not clear it.
  zero_model* model = NULL;
  OK(zero_model_create(&model));
  zero_model_destroy(model);
  zero_error_info_init(&info, sizeof info);
  OK(zero_last_error(&info));
  assert_int_equal(info.status, ZERO_ERR_INVALID_ARGUMENT);
}

static void* look_for_an_error(void* found) {
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  *(zero_status*)found = info.status;
  return NULL;
}

static void the_last_error_belongs_to_its_thread(void** state) {
  (void)state;
  BAD_ARGUMENT(zero_model_create(NULL), "model", "NULL");
  zero_status found = -1;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, look_for_an_error, &found), 0);
  pthread_join(thread, NULL);
  assert_int_equal(found, ZERO_OK);
}

static void a_callback_may_say_why_and_a_long_text_is_had_whole(void** state) {
  (void)state;
  char text[3000];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  zero_set_last_error(ZERO_ERR_USER, text);
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  OK(zero_last_error(&info));
  assert_int_equal(info.status, ZERO_ERR_USER);
  assert_string_equal(info.origin, "callback");
  assert_int_equal(strlen(info.message), sizeof info.message - 1);
  uint64_t length = 0;
  assert_int_equal(zero_last_error_text(NULL, 0, &length), ZERO_ERR_BUFFER_TOO_SMALL);
  assert_int_equal(length, sizeof text - 1);
  char whole[sizeof text];
  assert_int_equal(zero_last_error_text(whole, sizeof whole - 1, &length),
                   ZERO_ERR_BUFFER_TOO_SMALL);
  OK(zero_last_error_text(whole, sizeof whole, &length));
  assert_string_equal(whole, text);
  // Asking does not replace it, even when the question is wrong.
  assert_int_equal(zero_last_error(NULL), ZERO_ERR_INVALID_ARGUMENT);
  assert_int_equal(zero_last_error_text(NULL, 5, &length), ZERO_ERR_INVALID_ARGUMENT);
  assert_int_equal(zero_last_error_text(whole, sizeof whole, NULL), ZERO_ERR_INVALID_ARGUMENT);
  OK(zero_last_error(&info));
  assert_int_equal(info.status, ZERO_ERR_USER);
  zero_set_last_error(ZERO_ERR_USER, NULL); // no reason given
  OK(zero_last_error(&info));
  assert_string_equal(info.message, "");
}

// Every function with text out, on one small run.
struct source {
  zero_config* config;
  zero_runtime* runtime;
  const zero_plan* plan;
  int which;
};

static zero_status text_of(const struct source* from, char* buffer, uint64_t capacity,
                           uint64_t* length) {
  zero_log_level level = 0;
  switch (from->which) {
    case 0:
      return zero_config_text(from->config, buffer, capacity, length);
    case 1:
      return zero_config_get(from->config, "zero_optimization.stage", buffer, capacity, length);
    case 2:
      return zero_plan_text(from->plan, buffer, capacity, length);
    case 3:
      return zero_runtime_text(from->runtime, buffer, capacity, length);
    case 4:
      return zero_feature_text(ZERO_FEATURE_LOCAL, buffer, capacity, length);
    default:
      return zero_log_read(from->runtime, &level, buffer, capacity, length);
  }
}

static void text_that_does_not_fit_says_its_length_and_writes_nothing(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 3, NULL);
  struct source from = {config_of(sgd_text(1, "")), run_of(sgd_text(1, ""), model), NULL, 0};
  from.plan = zero_runtime_plan(from.runtime);
  for (from.which = 0; from.which < 6; from.which++) {
    uint64_t length = 0, again = 0;
    REFUSED(text_of(&from, NULL, 0, &length), ZERO_ERR_BUFFER_TOO_SMALL, "capacity", "0");
    assert_true(length > 0);
    char* buffer = malloc(length + 1);
    memset(buffer, '#', length + 1);
    REFUSED(text_of(&from, buffer, length, &again), ZERO_ERR_BUFFER_TOO_SMALL, "capacity", "");
    assert_int_equal(again, length);
    for (uint64_t i = 0; i <= length; i++) assert_int_equal(buffer[i], '#');
    BAD_ARGUMENT(text_of(&from, NULL, 5, &again), "buffer", "5");
    BAD_ARGUMENT(text_of(&from, buffer, length + 1, NULL), "length", "NULL");
    OK(text_of(&from, buffer, length + 1, &again));
    assert_int_equal(again, length);
    assert_int_equal(strlen(buffer), length);
    free(buffer);
  }
  zero_config_destroy(from.config);
  end(from.runtime);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_version_number_and_string_agree),
      cmocka_unit_test(a_feature_says_where_it_comes_from_or_why_it_is_not_there),
      cmocka_unit_test(a_status_has_its_own_name_and_an_unknown_one_a_question_mark),
      cmocka_unit_test(a_failed_call_leaves_its_sentence_in_the_last_error),
      cmocka_unit_test(the_last_error_belongs_to_its_thread),
      cmocka_unit_test(a_callback_may_say_why_and_a_long_text_is_had_whole),
      cmocka_unit_test(text_that_does_not_fit_says_its_length_and_writes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

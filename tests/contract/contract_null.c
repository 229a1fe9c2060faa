// NULL for every pointer of every function: refused by name, nothing written.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

// name is the argument that is NULL.
#define NULL_REFUSED(call, name) BAD_ARGUMENT(call, name, "NULL")

static void null_handles_are_destroyed_and_aborted_without_harm(void** state) {
  (void)state;
  zero_config_destroy(NULL);
  zero_model_destroy(NULL);
  zero_plan_destroy(NULL);
  zero_comm_destroy(NULL);
  zero_comm_abort(NULL);
  zero_runtime_destroy(NULL);
  zero_checkpoint_destroy(NULL);
}

static void null_is_filled_by_no_init_function(void** state) {
  (void)state;
  zero_error_info_init(NULL, 100);
  zero_config_facts_init(NULL, 100);
  zero_diagnostic_init(NULL, 100);
  zero_option_info_init(NULL, 100);
  zero_group_options_init(NULL, 100);
  zero_param_options_init(NULL, 100);
  zero_plan_options_init(NULL, 100);
  zero_comm_callbacks_init(NULL, 100);
  zero_allocator_init(NULL, 100);
  zero_init_options_init(NULL, 100);
  zero_param_info_init(NULL, 100);
  zero_step_options_init(NULL, 100);
  zero_step_info_init(NULL, 100);
  zero_memory_info_init(NULL, 100);
  zero_save_options_init(NULL, 100);
  zero_load_options_init(NULL, 100);
  zero_checkpoint_info_init(NULL, 100);
  zero_progress_init(NULL, 100);
}

static void null_is_refused_by_every_function_of_the_configuration(void** state) {
  (void)state;
  uint64_t length = 0;
  double number = 0;
  zero_config* made = NULL;
  zero_config* config = config_of("{}");
  zero_config_facts facts;
  zero_config_facts_init(&facts, sizeof facts);
  zero_diagnostic diagnostic;
  zero_diagnostic_init(&diagnostic, sizeof diagnostic);
  NULL_REFUSED(zero_config_create(NULL), "config");
  NULL_REFUSED(zero_config_load_file(NULL, &made), "path");
  NULL_REFUSED(zero_config_load_file("/nowhere", NULL), "config");
  NULL_REFUSED(zero_config_load_text(NULL, 0, &made), "text");
  NULL_REFUSED(zero_config_load_text("{}", 2, NULL), "config");
  assert_null(made);
  NULL_REFUSED(zero_config_set(NULL, "steps_per_print", "1"), "config");
  NULL_REFUSED(zero_config_set(config, NULL, "1"), "key");
  NULL_REFUSED(zero_config_set(config, "steps_per_print", NULL), "value");
  NULL_REFUSED(zero_config_get(NULL, "steps_per_print", NULL, 0, &length), "config");
  NULL_REFUSED(zero_config_get(config, NULL, NULL, 0, &length), "key");
  NULL_REFUSED(zero_config_get(config, "steps_per_print", NULL, 0, NULL), "length");
  assert_string_equal(zero_config_origin(NULL, "steps_per_print"), "");
  assert_string_equal(zero_config_origin(config, NULL), "");
  NULL_REFUSED(zero_config_fill_auto(NULL, &facts), "config");
  NULL_REFUSED(zero_config_fill_auto(config, NULL), "facts");
  NULL_REFUSED(zero_config_check(NULL), "config");
  assert_int_equal(zero_config_diagnostic_count(NULL), 0);
  NULL_REFUSED(zero_config_diagnostic_at(NULL, 0, &diagnostic), "config");
  NULL_REFUSED(zero_config_diagnostic_at(config, 0, NULL), "diagnostic");
  NULL_REFUSED(zero_config_text(NULL, NULL, 0, &length), "config");
  NULL_REFUSED(zero_config_text(config, NULL, 0, NULL), "length");
  NULL_REFUSED(zero_option_at(0, NULL), "info");
  NULL_REFUSED(zero_schedule_at(NULL, 1, &number, &number), "config");
  NULL_REFUSED(zero_feature_text(ZERO_FEATURE_LOCAL, NULL, 0, NULL), "length");
  zero_config_destroy(config);
}

static void null_is_refused_by_every_function_of_model_and_plan(void** state) {
  (void)state;
  const int64_t shape[] = {4};
  const zero_param_id order[] = {0};
  zero_group_id group = 77;
  zero_param_id param = 77;
  zero_model* made = NULL;
  zero_plan* plan = NULL;
  uint64_t number = 77;
  zero_model* model = new_model();
  zero_config* config = config_of("{}");
  NULL_REFUSED(zero_model_create(NULL), "model");
  NULL_REFUSED(zero_model_load(NULL, &made), "path");
  NULL_REFUSED(zero_model_load("/nowhere", NULL), "model");
  NULL_REFUSED(zero_group_add(NULL, "g", NULL, &group), "model");
  NULL_REFUSED(zero_group_add(model, NULL, NULL, &group), "name");
  NULL_REFUSED(zero_group_add(model, "g", NULL, NULL), "group");
  NULL_REFUSED(zero_param_add(NULL, "w", shape, 1, NULL, &param), "model");
  NULL_REFUSED(zero_param_add(model, NULL, shape, 1, NULL, &param), "name");
  NULL_REFUSED(zero_param_add(model, "w", NULL, 1, NULL, &param), "shape");
  NULL_REFUSED(zero_param_add(model, "w", shape, 1, NULL, NULL), "param");
  NULL_REFUSED(zero_model_backward_order(NULL, order, 1), "model");
  NULL_REFUSED(zero_model_backward_order(model, NULL, 1), "params");
  OK(zero_model_backward_order(model, NULL, 0));
  NULL_REFUSED(zero_plan_create(NULL, model, NULL, &plan), "config");
  NULL_REFUSED(zero_plan_create(config, NULL, NULL, &plan), "model");
  NULL_REFUSED(zero_plan_create(config, model, NULL, NULL), "plan");
  assert_null(plan);
  assert_null(made);
  assert_int_equal(group, 77);
  assert_int_equal(param, 77);
  // None of the refused ones was added: the names are free.
  OK(zero_group_add(model, "g", NULL, &group));
  assert_int_equal(group, 1);
  OK(zero_param_add(model, "w", shape, 1, NULL, &param));
  assert_int_equal(param, 0);
  OK(zero_plan_create(config, model, NULL, &plan));
  NULL_REFUSED(zero_plan_memory(NULL, 0, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, &number), "plan");
  NULL_REFUSED(zero_plan_memory(plan, 0, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, NULL), "bytes");
  NULL_REFUSED(zero_plan_text(NULL, NULL, 0, &number), "plan");
  NULL_REFUSED(zero_plan_text(plan, NULL, 0, NULL), "length");
  assert_int_equal(number, 77);
  zero_plan_destroy(plan);
  zero_model_destroy(model);
  zero_config_destroy(config);
}

static zero_status no_gather(void* user_data, int32_t channel, const void* send, void* recv,
                             uint64_t bytes_each, zero_place place, void* stream) {
  (void)user_data, (void)channel, (void)send, (void)recv, (void)bytes_each, (void)place;
  (void)stream;
  return ZERO_OK;
}

static void null_is_refused_by_every_function_of_communicators(void** state) {
  (void)state;
  zero_comm* comm = NULL;
  zero_comm_callbacks callbacks;
  zero_comm_callbacks_init(&callbacks, sizeof callbacks);
  NULL_REFUSED(zero_comm_create_self(NULL), "comm");
  NULL_REFUSED(zero_comm_create_local(NULL, 0, 1, 0, &comm), "group_name");
  NULL_REFUSED(zero_comm_create_local("group", 0, 1, 0, NULL), "comm");
  NULL_REFUSED(zero_comm_create_from_config(NULL, &comm), "config");
  zero_config* config = config_of("{}");
  NULL_REFUSED(zero_comm_create_from_config(config, NULL), "comm");
  zero_config_destroy(config);
  NULL_REFUSED(zero_comm_create_user(0, 1, NULL, NULL, &comm), "callbacks");
  NULL_REFUSED(zero_comm_create_user(0, 1, &callbacks, NULL, &comm), "all_gather");
  callbacks.all_gather = no_gather;
  NULL_REFUSED(zero_comm_create_user(0, 1, &callbacks, NULL, &comm), "all_to_all");
  callbacks.all_to_all = no_gather;
  NULL_REFUSED(zero_comm_create_user(0, 1, &callbacks, NULL, NULL), "comm");
  assert_null(comm);
  assert_int_equal(zero_comm_rank(NULL), -1);
  assert_int_equal(zero_comm_size(NULL), -1);
  double value = 1;
  NULL_REFUSED(zero_comm_all_reduce(NULL, &value, 1, ZERO_REDUCE_SUM), "comm");
  NULL_REFUSED(zero_comm_broadcast(NULL, &value, 8, 0), "comm");
  NULL_REFUSED(zero_comm_barrier(NULL), "comm");
  OK(zero_comm_create_self(&comm));
  NULL_REFUSED(zero_comm_all_reduce(comm, NULL, 1, ZERO_REDUCE_SUM), "values");
  NULL_REFUSED(zero_comm_broadcast(comm, NULL, 8, 0), "bytes");
  OK(zero_comm_all_reduce(comm, NULL, 0, ZERO_REDUCE_SUM));
  OK(zero_comm_broadcast(comm, NULL, 0, 0));
  OK(zero_comm_barrier(comm));
  zero_comm_destroy(comm);
}

static void a_null_runtime_is_refused_by_every_function(void** state) {
  (void)state;
  const zero_param_id param = 0;
  zero_param_id found = 0;
  uint64_t length = 0;
  int32_t add = 0;
  double norm = 0;
  float values[4] = {0};
  zero_log_level level = 0;
  zero_buffer buffer;
  zero_span span;
  zero_group_options group;
  zero_group_options_init(&group, sizeof group);
  zero_param_info info;
  zero_param_info_init(&info, sizeof info);
  zero_memory_info memory;
  zero_memory_info_init(&memory, sizeof memory);
  zero_model* model = new_model();
  NULL_REFUSED(zero_shard_params(NULL, model), "runtime");
  zero_model_destroy(model);
  NULL_REFUSED(zero_runtime_close(NULL), "runtime");
  NULL_REFUSED(zero_runtime_status(NULL), "runtime");
  NULL_REFUSED(zero_runtime_text(NULL, NULL, 0, &length), "runtime");
  assert_null(zero_runtime_comm(NULL));
  assert_null(zero_runtime_config(NULL));
  assert_null(zero_runtime_plan(NULL));
  assert_int_equal(zero_param_count(NULL), 0);
  NULL_REFUSED(zero_param_find(NULL, "w", &found), "runtime");
  NULL_REFUSED(zero_param_describe(NULL, 0, &info), "runtime");
  assert_int_equal(zero_model_param_count(NULL), 0);
  NULL_REFUSED(zero_model_param_at(NULL, 0, &info), "model");
  NULL_REFUSED(zero_model_cast(NULL, ZERO_DTYPE_BF16), "model");
  NULL_REFUSED(zero_param_buffer(NULL, 0, &buffer), "runtime");
  NULL_REFUSED(zero_param_shard(NULL, 0, 0, &span), "runtime");
  NULL_REFUSED(zero_group_set(NULL, 0, &group), "runtime");
  NULL_REFUSED(zero_micro_begin(NULL, -1), "runtime");
  NULL_REFUSED(zero_grad_buffer(NULL, 0, NULL, &buffer, &add), "runtime");
  NULL_REFUSED(zero_grad_ready(NULL, &param, 1, NULL), "runtime");
  NULL_REFUSED(zero_grad_submit(NULL, 0, &buffer, NULL), "runtime");
  NULL_REFUSED(zero_grads_close(NULL, &param, 1, NULL), "runtime");
  NULL_REFUSED(zero_micro_end(NULL, NULL), "runtime");
  NULL_REFUSED(zero_grads_clear(NULL, NULL), "runtime");
  NULL_REFUSED(zero_params_acquire(NULL, &param, 1, NULL, &buffer), "runtime");
  NULL_REFUSED(zero_params_release(NULL, &param, 1, 0, NULL), "runtime");
  NULL_REFUSED(zero_params_prefetch(NULL, &param, 1), "runtime");
  NULL_REFUSED(zero_params_broadcast(NULL, 0), "runtime");
  NULL_REFUSED(zero_step(NULL, NULL, NULL, NULL), "runtime");
  NULL_REFUSED(zero_step_begin(NULL, NULL, NULL, NULL), "runtime");
  NULL_REFUSED(zero_step_end(NULL, NULL), "runtime");
  assert_int_equal(zero_step_count(NULL), 0);
  assert_true(zero_loss_scale(NULL) == 1);
  NULL_REFUSED(zero_loss_scale_buffer(NULL, &buffer), "runtime");
  NULL_REFUSED(zero_param_grad_norm(NULL, 0, &norm), "runtime");
  NULL_REFUSED(zero_shard_buffer(NULL, 0, ZERO_PART_VALUE, 0, &buffer), "runtime");
  NULL_REFUSED(zero_param_get(NULL, 0, ZERO_PART_VALUE, 0, values, 16), "runtime");
  NULL_REFUSED(zero_param_set(NULL, 0, ZERO_PART_VALUE, 0, values, 16), "runtime");
  NULL_REFUSED(zero_memory_usage(NULL, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, &memory), "runtime");
  NULL_REFUSED(zero_memory_reset_peak(NULL), "runtime");
  void* block = NULL;
  NULL_REFUSED(zero_memory_allocate(NULL, ZERO_PLACE_HOST, 8, 8, &block), "runtime");
  zero_memory_free(NULL, NULL);
  NULL_REFUSED(zero_memory_explain(NULL, ZERO_PLACE_HOST, 1, NULL, 0, &length), "runtime");
  NULL_REFUSED(zero_log_read(NULL, &level, NULL, 0, &length), "runtime");
}

static void null_outputs_and_inputs_leave_a_runtime_as_it_was(void** state) {
  (void)state;
  zero_buffer buffer;
  int32_t add = 0;
  uint64_t length = 0;
  zero_param_id found = 77;
  zero_runtime* runtime = NULL;
  zero_config* config = config_of("{}");
  NULL_REFUSED(zero_init(NULL, NULL, &runtime), "config");
  NULL_REFUSED(zero_init(config, NULL, NULL), "runtime");
  assert_null(runtime);
  zero_config_destroy(config);
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  runtime = start(sgd_text(0, ""));
  NULL_REFUSED(zero_shard_params(runtime, NULL), "model");
  NULL_REFUSED(zero_model_param_at(model, 0, NULL), "info");
  OK(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  NULL_REFUSED(zero_runtime_text(runtime, NULL, 0, NULL), "length");
  NULL_REFUSED(zero_param_find(runtime, NULL, &found), "name");
  NULL_REFUSED(zero_param_find(runtime, "w", NULL), "param");
  NULL_REFUSED(zero_param_describe(runtime, 0, NULL), "info");
  NULL_REFUSED(zero_param_buffer(runtime, 0, NULL), "buffer");
  NULL_REFUSED(zero_param_shard(runtime, 0, 0, NULL), "span");
  NULL_REFUSED(zero_group_set(runtime, 0, NULL), "options");
  NULL_REFUSED(zero_grad_buffer(runtime, 0, NULL, NULL, &add), "buffer");
  NULL_REFUSED(zero_grad_buffer(runtime, 0, NULL, &buffer, NULL), "add");
  NULL_REFUSED(zero_grad_ready(runtime, NULL, 1, NULL), "params");
  NULL_REFUSED(zero_grad_submit(runtime, 0, NULL, NULL), "gradient");
  NULL_REFUSED(zero_grads_close(runtime, NULL, 1, NULL), "params");
  NULL_REFUSED(zero_params_acquire(runtime, NULL, 1, NULL, &buffer), "params");
  NULL_REFUSED(zero_params_acquire(runtime, &(zero_param_id){0}, 1, NULL, NULL), "buffers");
  NULL_REFUSED(zero_params_release(runtime, NULL, 1, 0, NULL), "params");
  NULL_REFUSED(zero_params_prefetch(runtime, NULL, 1), "params");
  NULL_REFUSED(zero_loss_scale_buffer(runtime, NULL), "buffer");
  NULL_REFUSED(zero_param_grad_norm(runtime, 0, NULL), "norm");
  NULL_REFUSED(zero_shard_buffer(runtime, 0, ZERO_PART_VALUE, 0, NULL), "buffer");
  NULL_REFUSED(zero_param_get(runtime, 0, ZERO_PART_VALUE, 0, NULL, 16), "values");
  NULL_REFUSED(zero_param_set(runtime, 0, ZERO_PART_VALUE, 0, NULL, 16), "values");
  NULL_REFUSED(zero_memory_usage(runtime, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, NULL), "info");
  NULL_REFUSED(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 8, 8, NULL), "memory");
  zero_memory_free(runtime, NULL);
  NULL_REFUSED(zero_memory_explain(runtime, ZERO_PLACE_HOST, 1, NULL, 0, NULL), "length");
  NULL_REFUSED(zero_log_read(runtime, NULL, NULL, 0, &length), "level");
  assert_int_equal(found, 77);
  give(runtime, 0, 2);
  OK(zero_step(runtime, NULL, NULL, NULL));
  assert_true(first_of(runtime, 0, 4) == -2);
  assert_int_equal(zero_step_count(runtime), 1);
  end(runtime);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(null_handles_are_destroyed_and_aborted_without_harm),
      cmocka_unit_test(null_is_filled_by_no_init_function),
      cmocka_unit_test(null_is_refused_by_every_function_of_the_configuration),
      cmocka_unit_test(null_is_refused_by_every_function_of_model_and_plan),
      cmocka_unit_test(null_is_refused_by_every_function_of_communicators),
      cmocka_unit_test(a_null_runtime_is_refused_by_every_function),
      cmocka_unit_test(null_outputs_and_inputs_leave_a_runtime_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

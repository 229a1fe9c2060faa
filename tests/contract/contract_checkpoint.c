// Checkpoints through the interface alone: what is refused, and that a refusal names why.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

#define NULL_REFUSED(call, name) BAD_ARGUMENT(call, name, "NULL")

static void null_is_refused_by_every_function_of_checkpoints(void** state) {
  (void)state;
  zero_checkpoint* opened = NULL;
  zero_checkpoint_info info;
  zero_checkpoint_info_init(&info, sizeof info);
  zero_param_info param;
  zero_param_info_init(&param, sizeof param);
  uint64_t length = 77;
  int64_t steps = 77;
  int32_t done = 77;
  float value = 0;
  NULL_REFUSED(zero_checkpoint_save(NULL, "/nowhere", NULL), "runtime");
  NULL_REFUSED(zero_checkpoint_poll(NULL, &done), "runtime");
  NULL_REFUSED(zero_checkpoint_wait(NULL), "runtime");
  NULL_REFUSED(zero_checkpoint_put(NULL, "key", "x", 1), "runtime");
  NULL_REFUSED(zero_checkpoint_load(NULL, NULL, NULL), "runtime");
  NULL_REFUSED(zero_checkpoint_open(NULL, &opened), "path");
  NULL_REFUSED(zero_checkpoint_open("/nowhere", NULL), "checkpoint");
  NULL_REFUSED(zero_checkpoint_describe(NULL, &info), "checkpoint");
  NULL_REFUSED(zero_checkpoint_param_at(NULL, 0, &param), "checkpoint");
  NULL_REFUSED(zero_checkpoint_param_steps(NULL, 0, &steps), "checkpoint");
  NULL_REFUSED(zero_checkpoint_text(NULL, NULL, 0, &length), "checkpoint");
  NULL_REFUSED(zero_checkpoint_read(NULL, "w", ZERO_PART_VALUE, 0, 0, 1, &value, 4), "checkpoint");
  NULL_REFUSED(zero_checkpoint_get(NULL, 0, "key", NULL, 0, &length), "checkpoint");
  NULL_REFUSED(zero_checkpoint_progress(NULL, NULL), "checkpoint");
  NULL_REFUSED(zero_checkpoint_verify(NULL), "checkpoint");
  NULL_REFUSED(zero_checkpoint_reshard(NULL, "/nowhere", 1), "checkpoint");
  NULL_REFUSED(zero_checkpoint_export(NULL, "/nowhere", 0, 0), "checkpoint");
  NULL_REFUSED(zero_checkpoint_import_deepspeed(NULL, "/nowhere", 0, NULL), "folder");
  NULL_REFUSED(zero_checkpoint_import_deepspeed("/nowhere", NULL, 0, NULL), "path");
  NULL_REFUSED(zero_weights_export(NULL, "/nowhere", 0, 0), "runtime");
  NULL_REFUSED(zero_weights_import(NULL, "/nowhere", NULL), "runtime");
  assert_null(opened);
  assert_int_equal(length, 77);
  assert_int_equal(steps, 77);
  assert_int_equal(done, 77);
}

static void null_is_refused_by_a_runtime_that_saves_and_loads(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  zero_runtime* runtime = run_of(sgd_text(0, ""), model);
  NULL_REFUSED(zero_checkpoint_save(runtime, NULL, NULL), "path");
  NULL_REFUSED(zero_checkpoint_poll(runtime, NULL), "done");
  NULL_REFUSED(zero_checkpoint_put(runtime, NULL, "x", 1), "key");
  NULL_REFUSED(zero_checkpoint_put(runtime, "key", NULL, 1), "bytes");
  NULL_REFUSED(zero_checkpoint_load(runtime, NULL, NULL), "checkpoint");
  NULL_REFUSED(zero_weights_export(runtime, NULL, 0, 0), "path");
  NULL_REFUSED(zero_weights_import(runtime, NULL, NULL), "path");
  end(runtime);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(null_is_refused_by_every_function_of_checkpoints),
      cmocka_unit_test(null_is_refused_by_a_runtime_that_saves_and_loads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Models and plans: no communicator, no device, no rank.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

static zero_status add_shape(zero_model* model, const char* name, const int64_t* shape,
                             int32_t dimensions) {
  zero_param_id id = 77;
  const zero_status status = zero_param_add(model, name, shape, dimensions, NULL, &id);
  if (status != ZERO_OK) assert_int_equal(id, 77);
  return status;
}

static void a_negative_dimension_is_refused(void** state) {
  (void)state;
  zero_model* model = new_model();
  const int64_t negative[] = {4, -3};
  BAD_ARGUMENT(add_shape(model, "wte", negative, 2), "param \"wte\": shape[1] is -3",
               "expected >= 0");
  BAD_ARGUMENT(add_shape(model, "wte", negative, -1), "param \"wte\": dimensions is -1", "");
  const int64_t lowest[] = {INT64_MIN};
  BAD_ARGUMENT(add_shape(model, "wte", lowest, 1), "shape[0] is -9223372036854775808", "");
  OK(add_shape(model, "wte", negative, 1)); // the model is as it was
  zero_model_destroy(model);
}

static void a_shape_that_overflows_is_refused(void** state) {
  (void)state;
  zero_model* model = new_model();
  const int64_t elements[] = {INT64_C(1) << 40, INT64_C(1) << 40};
  BAD_ARGUMENT(add_shape(model, "huge", elements, 2), "huge", "1099511627776");
  const int64_t bytes[] = {INT64_C(1) << 62}; // 2^64 bytes
  BAD_ARGUMENT(add_shape(model, "huge", bytes, 1), "huge", "bytes");
  const int64_t empty[] = {INT64_MAX, INT64_MAX, 0}; // holds nothing
  OK(add_shape(model, "huge", empty, 3));
  zero_model_destroy(model);
}

static void enumerators_and_references_that_do_not_exist_are_refused(void** state) {
  (void)state;
  zero_model* model = new_model();
  const int64_t shape[] = {4};
  zero_param_id id = 77;
  const struct {
    size_t offset;
    int32_t value;
    const char* word;
  } bad[] = {
      {offsetof(zero_param_options, dtype), 0, "dtype is 0"},
      {offsetof(zero_param_options, dtype), 99, "dtype is 99"},
      {offsetof(zero_param_options, group), 1, "group is 1"},
      {offsetof(zero_param_options, group), -1, "group is -1"},
      {offsetof(zero_param_options, role), 3, "role is 3"},
      {offsetof(zero_param_options, storage), 2, "storage is 2"},
      {offsetof(zero_param_options, tied_to), 0, "tied_to is 0"},
      {offsetof(zero_param_options, tied_to), -2, "tied_to is -2"},
      {offsetof(zero_param_options, unit), -2, "unit is -2"},
      {offsetof(zero_param_options, place), 0, "place is 0"},
      {offsetof(zero_param_options, place), ZERO_PLACE_FILE, "place is 4"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    zero_param_options options = param_options(NULL);
    memcpy((char*)&options + bad[i].offset, &bad[i].value, sizeof bad[i].value);
    BAD_ARGUMENT(zero_param_add(model, "w", shape, 1, &options, &id), "param \"w\"", bad[i].word);
  }
  zero_param_options caller = param_options(NULL);
  caller.storage = ZERO_STORAGE_CALLER;
  BAD_ARGUMENT(zero_param_add(model, "w", shape, 1, &caller, &id), "param \"w\"", "data is NULL");
  assert_int_equal(id, 77);
  zero_model_destroy(model);
}

static void names_are_given_and_unique(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  const int64_t shape[] = {4};
  zero_group_id group = 77;
  BAD_ARGUMENT(add_shape(model, "w", shape, 1), "param \"w\"", "taken");
  BAD_ARGUMENT(add_shape(model, "", shape, 1), "empty", "");
  OK(zero_group_add(model, "g", NULL, &group));
  BAD_ARGUMENT(zero_group_add(model, "g", NULL, &group), "group \"g\"", "taken");
  BAD_ARGUMENT(zero_group_add(model, "", NULL, &group), "empty", "");
  assert_int_equal(group, 1);
  zero_model_destroy(model);
}

static void a_tie_must_be_the_same_thing(void** state) {
  (void)state;
  zero_model* model = new_model();
  const zero_param_id embedding = add_vector(model, "embedding", 4, NULL);
  zero_param_options options = param_options(NULL);
  options.tied_to = embedding;
  const int64_t five[] = {5}, four[] = {4};
  zero_param_id id = 77;
  BAD_ARGUMENT(zero_param_add(model, "head", five, 1, &options, &id), "head", "embedding");
  options.dtype = ZERO_DTYPE_BF16;
  BAD_ARGUMENT(zero_param_add(model, "head", four, 1, &options, &id), "bf16", "embedding");
  options.dtype = ZERO_DTYPE_FP32;
  options.role = ZERO_PARAM_BUFFER;
  BAD_ARGUMENT(zero_param_add(model, "head", four, 1, &options, &id), "head", "embedding");
  assert_int_equal(id, 77);
  options.role = ZERO_PARAM_TRAINED;
  OK(zero_param_add(model, "head", four, 1, &options, &id));
  const zero_param_id order[] = {id};
  BAD_ARGUMENT(zero_model_backward_order(model, order, 1), "head", "embedding");
  zero_model_destroy(model);
}

static void a_backward_order_names_each_at_most_once(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "a", 4, NULL);
  add_vector(model, "b", 4, NULL);
  zero_param_options options = param_options(NULL);
  options.role = ZERO_PARAM_BUFFER;
  add_with(model, "mean", 4, &options);
  const zero_param_id twice[] = {1, 1}, unknown[] = {0, 5}, negative[] = {-1}, buffer[] = {2};
  BAD_ARGUMENT(zero_model_backward_order(model, twice, 2), "\"b\"", "before");
  BAD_ARGUMENT(zero_model_backward_order(model, unknown, 2), "param 5", "");
  BAD_ARGUMENT(zero_model_backward_order(model, negative, 1), "param -1", "");
  BAD_ARGUMENT(zero_model_backward_order(model, buffer, 1), "\"mean\"", "buffer");
  const zero_param_id order[] = {0, 1};
  OK(zero_model_backward_order(model, order, 2));
  zero_model_destroy(model);
}

static void a_trained_fp64_parameter_is_refused_by_a_sentence(void** state) {
  (void)state;
  zero_model* model = new_model();
  zero_param_options options = param_options(NULL);
  options.dtype = ZERO_DTYPE_FP64;
  const int64_t shape[] = {4};
  zero_param_id id = 77;
  BAD_ARGUMENT(zero_param_add(model, "w", shape, 1, &options, &id), "param \"w\": dtype is fp64",
               "trained parameters are fp32, fp16 or bf16");
  options.dtype = ZERO_DTYPE_INT64;
  BAD_ARGUMENT(zero_param_add(model, "w", shape, 1, &options, &id), "int64", "trained");
  options.role = ZERO_PARAM_BUFFER; // of any dtype
  OK(zero_param_add(model, "w", shape, 1, &options, &id));
  zero_model_destroy(model);
}

static void a_model_is_described_and_read_back(void** state) {
  (void)state;
  zero_model* model = new_model();
  zero_group_id group = -1;
  OK(zero_group_add(model, "no_decay", NULL, &group));
  const int64_t matrix[] = {3, 5};
  zero_param_options options = param_options(NULL);
  options.group = group;
  zero_param_id id = -1;
  OK(zero_param_add(model, "matrix", matrix, 2, &options, &id));
  OK(zero_param_add(model, "scalar", NULL, 0, NULL, &id));
  options = param_options(NULL);
  options.tied_to = 0;
  OK(zero_param_add(model, "alias", matrix, 2, &options, &id));
  const int64_t empty[] = {0, 8};
  OK(zero_param_add(model, "empty", empty, 2, NULL, &id));
  options = param_options(NULL);
  options.role = ZERO_PARAM_BUFFER;
  options.dtype = ZERO_DTYPE_INT64;
  OK(zero_param_add(model, "counter", NULL, 0, &options, &id));
  zero_runtime* runtime = run_of(sgd_text(2, ""), model);
  assert_int_equal(zero_param_count(runtime), 5);
  zero_param_info info;
  zero_param_info_init(&info, sizeof info);
  OK(zero_param_find(runtime, "matrix", &id));
  assert_int_equal(id, 0);
  OK(zero_param_describe(runtime, id, &info));
  assert_string_equal(info.name, "matrix");
  assert_true(info.dimensions == 2 && info.shape[0] == 3 && info.shape[1] == 5);
  assert_true(info.elements == 15 && info.dtype == ZERO_DTYPE_FP32 && info.tied_to == -1);
  assert_int_equal(info.group, group);
  OK(zero_param_describe(runtime, 1, &info));
  assert_true(info.dimensions == 0 && info.elements == 1 && info.group == 0);
  OK(zero_param_describe(runtime, 2, &info));
  assert_true(info.tied_to == 0 && info.elements == 15 && info.group == group);
  OK(zero_param_describe(runtime, 3, &info));
  assert_true(info.dimensions == 2 && info.shape[0] == 0 && info.shape[1] == 8);
  assert_int_equal(info.elements, 0);
  OK(zero_param_describe(runtime, 4, &info));
  assert_true(info.role == ZERO_PARAM_BUFFER && info.dtype == ZERO_DTYPE_INT64);
  id = 77;
  REFUSED(zero_param_find(runtime, "nobody", &id), ZERO_ERR_NOT_FOUND, "nobody", "");
  assert_int_equal(id, 77);
  BAD_ARGUMENT(zero_param_describe(runtime, 5, &info), "5", "0 to 4");
  BAD_ARGUMENT(zero_param_describe(runtime, -1, &info), "-1", "0 to 4");
  assert_string_equal(info.name, "counter");
  end(runtime);
}

static void a_model_says_what_it_holds_and_can_be_cast(void** state) {
  (void)state;
  zero_model* model = NULL;
  OK(zero_model_create(&model));
  assert_int_equal(zero_model_param_count(model), 0);
  const int64_t matrix[] = {3, 5};
  zero_param_id id = -1;
  OK(zero_param_add(model, "matrix", matrix, 2, NULL, &id));
  zero_param_options options = param_options(NULL);
  options.tied_to = 0;
  OK(zero_param_add(model, "alias", matrix, 2, &options, &id));
  options = param_options(NULL);
  options.role = ZERO_PARAM_BUFFER;
  OK(zero_param_add(model, "mean", matrix, 1, &options, &id));
  assert_int_equal(zero_model_param_count(model), 3);
  zero_param_info info;
  zero_param_info_init(&info, sizeof info);
  BAD_ARGUMENT(zero_model_param_at(model, 3, &info), "3", "0 to 2");
  BAD_ARGUMENT(zero_model_param_at(model, -1, &info), "-1", "0 to 2");
  BAD_ARGUMENT(zero_model_cast(model, ZERO_DTYPE_INT32), "dtype is 6", "fp32");
  OK(zero_model_cast(model, ZERO_DTYPE_BF16));
  OK(zero_model_param_at(model, 0, &info));
  assert_string_equal(info.name, "matrix");
  assert_true(info.dimensions == 2 && info.shape[0] == 3 && info.shape[1] == 5);
  assert_true(info.elements == 15 && info.dtype == ZERO_DTYPE_BF16 && info.tied_to == -1);
  OK(zero_model_param_at(model, 1, &info));
  assert_true(info.dtype == ZERO_DTYPE_BF16 && info.tied_to == 0);
  OK(zero_model_param_at(model, 2, &info));
  assert_true(info.dtype == ZERO_DTYPE_FP32 && info.role == ZERO_PARAM_BUFFER);
  static float values[15];
  options = param_options(NULL);
  options.data = values;
  OK(zero_param_add(model, "given", matrix, 2, &options, &id));
  BAD_ARGUMENT(zero_model_cast(model, ZERO_DTYPE_FP16), "\"given\"", "fp32");
  OK(zero_model_param_at(model, 0, &info));
  assert_int_equal(info.dtype, ZERO_DTYPE_BF16);
  zero_model_destroy(model);
}

static void a_model_file_that_is_not_there_is_named(void** state) {
  (void)state;
  zero_model* model = NULL;
  const zero_status status = zero_model_load("/no/such/model.tsv", &model);
  assert_true(status == ZERO_ERR_IO || status == ZERO_ERR_NOT_FOUND);
  assert_non_null(strstr(last_message(), "/no/such/model.tsv"));
  assert_null(model);
  char path[] = "/tmp/libzero-contract-XXXXXX.tsv";
  FILE* out = fdopen(mkstemps(path, 4), "w");
  fputs("name\tshape\tdtype\nwte\t7x4\tfp32\nbias\tscalar\tfp32\n", out);
  fclose(out);
  OK(zero_model_load(path, &model));
  zero_runtime* runtime = run_of(sgd_text(0, ""), model);
  assert_int_equal(zero_param_count(runtime), 2);
  end(runtime);
  out = fopen(path, "w");
  fputs("name\tshape\tdtype\nwte\t7x-4\tfp32\n", out);
  fclose(out);
  model = NULL;
  REFUSED(zero_model_load(path, &model), ZERO_ERR_FILE_FORMAT, path, "2");
  assert_null(model);
  remove(path);
}

// 1000 elements of fp32 with Adam: 4 of parameter, 4 of gradient, 8 of state, at 64 ranks; every
// shard is a multiple of 32, so 64 x 32 = 2048 elements are laid out.
static void a_plan_needs_no_communicator_and_no_device(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 1000, NULL);
  for (int stage = 0; stage <= 3; stage++) {
    char text[200];
    snprintf(text, sizeof text,
             "{\"optimizer\": {\"type\": \"Adam\"}, \"zero_optimization\": {\"stage\": %d}}",
             stage);
    zero_config* config = config_of(text);
    zero_plan_options options;
    zero_plan_options_init(&options, sizeof options);
    options.world_size = 64;
    zero_plan* plan = NULL;
    OK(zero_plan_create(config, model, &options, &plan));
    zero_config_destroy(config);
    const uint64_t params = stage == 3 ? 32 : 2048, grads = stage >= 2 ? 32 : 2048;
    const uint64_t states = stage >= 1 ? 32 : 2048;
    for (int32_t rank = 0; rank < 64; rank += 21) {
      const struct {
        zero_memory_use use;
        uint64_t bytes;
      } expected[] = {{ZERO_MEMORY_PARAMS, 4 * params},
                      {ZERO_MEMORY_GRADS, 4 * grads},
                      {ZERO_MEMORY_MASTER, 0},
                      {ZERO_MEMORY_OPTIMIZER, 8 * states}};
      for (size_t i = 0; i < 4; i++) {
        uint64_t bytes = 77;
        OK(zero_plan_memory(plan, rank, ZERO_PLACE_HOST, expected[i].use, &bytes));
        assert_int_equal(bytes, expected[i].bytes);
      }
      uint64_t total = 0, sum = 0, bytes = 0;
      OK(zero_plan_memory(plan, rank, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, &total));
      for (zero_memory_use use = 1; use <= ZERO_MEMORY_TABLES; use++) {
        OK(zero_plan_memory(plan, rank, ZERO_PLACE_HOST, use, &bytes));
        sum += bytes;
      }
      assert_int_equal(total, sum);
      OK(zero_plan_memory(plan, rank, ZERO_PLACE_DEVICE, ZERO_MEMORY_TOTAL, &bytes));
      assert_int_equal(bytes, 0);
    }
    uint64_t bytes = 77;
    BAD_ARGUMENT(zero_plan_memory(plan, 64, ZERO_PLACE_HOST, 0, &bytes), "rank is 64", "0 to 63");
    BAD_ARGUMENT(zero_plan_memory(plan, -1, ZERO_PLACE_HOST, 0, &bytes), "rank is -1", "");
    BAD_ARGUMENT(zero_plan_memory(plan, 0, 0, 0, &bytes), "place is 0", "");
    BAD_ARGUMENT(zero_plan_memory(plan, 0, ZERO_PLACE_HOST, 10, &bytes), "use is 10", "");
    assert_int_equal(bytes, 77);
    zero_plan_destroy(plan);
  }
  zero_model_destroy(model);
}

static void a_plan_s_options_are_checked(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 10, NULL);
  zero_config* config = config_of("{\"optimizer\": {\"type\": \"Adam\"}}");
  zero_plan* plan = NULL;
  zero_plan_options options;
  zero_plan_options_init(&options, sizeof options);
  options.world_size = 0;
  BAD_ARGUMENT(zero_plan_create(config, model, &options, &plan), "world_size is 0", "");
  options.world_size = -4;
  BAD_ARGUMENT(zero_plan_create(config, model, &options, &plan), "world_size is -4", "");
  options.world_size = 2;
  options.comm = ZERO_COMM_SELF;
  BAD_ARGUMENT(zero_plan_create(config, model, &options, &plan), "SELF", "2");
  options.comm = 6;
  BAD_ARGUMENT(zero_plan_create(config, model, &options, &plan), "comm is 6", "");
  options.comm = ZERO_COMM_LOCAL;
  options.place = ZERO_PLACE_FILE;
  BAD_ARGUMENT(zero_plan_create(config, model, &options, &plan), "place is 4", "");
  zero_config_destroy(config);
  config = config_of("{\"zero_optimization\": {\"stage\": 4}}");
  REFUSED(zero_plan_create(config, model, NULL, &plan), ZERO_ERR_CONFIG_VALUE, "stage", "4");
  assert_null(plan);
  zero_config_destroy(config);
  zero_model_destroy(model);
}

static void caller_storage_at_stage_3_is_a_conflict_that_names_the_parameter(void** state) {
  (void)state;
  float data[4] = {0};
  zero_model* model = new_model();
  zero_param_options options = param_options(data);
  options.storage = ZERO_STORAGE_CALLER;
  add_with(model, "mine", 4, &options);
  zero_runtime* runtime = start(sgd_text(3, ""));
  REFUSED(zero_shard_params(runtime, model), ZERO_ERR_CONFIG_CONFLICT, "mine", "3");
  zero_model_destroy(model);
  zero_runtime_destroy(runtime);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_negative_dimension_is_refused),
      cmocka_unit_test(a_shape_that_overflows_is_refused),
      cmocka_unit_test(enumerators_and_references_that_do_not_exist_are_refused),
      cmocka_unit_test(names_are_given_and_unique),
      cmocka_unit_test(a_tie_must_be_the_same_thing),
      cmocka_unit_test(a_backward_order_names_each_at_most_once),
      cmocka_unit_test(a_trained_fp64_parameter_is_refused_by_a_sentence),
      cmocka_unit_test(a_model_is_described_and_read_back),
      cmocka_unit_test(a_model_says_what_it_holds_and_can_be_cast),
      cmocka_unit_test(a_model_file_that_is_not_there_is_named),
      cmocka_unit_test(a_plan_needs_no_communicator_and_no_device),
      cmocka_unit_test(a_plan_s_options_are_checked),
      cmocka_unit_test(caller_storage_at_stage_3_is_a_conflict_that_names_the_parameter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Growing structs: an older caller, a newer caller, and one who forgot the size.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

// As a newer header would have it: fields that this library does not know follow.
#define NEWER(type) \
  struct {          \
    type known;     \
    uint64_t added; \
  }

static void init_writes_the_size_it_was_given_and_no_byte_behind_it(void** state) {
  (void)state;
  unsigned char bytes[256];
#define CHECK_INIT(type)                                                          \
  for (uint32_t size = 0; size <= sizeof(type) + 16; size += 4) {                 \
    memset(bytes, 0xab, sizeof bytes);                                            \
    type##_init((type*)(void*)bytes, size);                                       \
    uint32_t written = 0;                                                         \
    memcpy(&written, bytes, 4);                                                   \
    assert_int_equal(written, size < 4 ? 0xabababab : size);                      \
    for (uint32_t i = size; i < size + 16; i++) assert_int_equal(bytes[i], 0xab); \
    for (uint32_t i = sizeof(type); i < size; i++) assert_int_equal(bytes[i], 0); \
  }
  CHECK_INIT(zero_config_facts)
  CHECK_INIT(zero_diagnostic)
  CHECK_INIT(zero_option_info)
  CHECK_INIT(zero_group_options)
  CHECK_INIT(zero_param_options)
  CHECK_INIT(zero_plan_options)
  CHECK_INIT(zero_comm_callbacks)
  CHECK_INIT(zero_allocator)
  CHECK_INIT(zero_init_options)
  CHECK_INIT(zero_param_info)
  CHECK_INIT(zero_step_options)
  CHECK_INIT(zero_step_info)
  CHECK_INIT(zero_memory_info)
  CHECK_INIT(zero_save_options)
  CHECK_INIT(zero_load_options)
  CHECK_INIT(zero_checkpoint_info)
  CHECK_INIT(zero_progress)
}

static zero_status no_exchange(void* user_data, int32_t channel, const void* send, void* recv,
                               uint64_t bytes_each, zero_place place, void* stream) {
  (void)user_data, (void)channel, (void)place, (void)stream;
  memcpy(recv, send, bytes_each); // of one rank
  return ZERO_OK;
}

static void* allocate(void* user_data, zero_place place, int32_t device, zero_memory_use use,
                      uint64_t bytes, uint64_t alignment) {
  (void)user_data, (void)place, (void)device, (void)use;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void* user_data, zero_place place, int32_t device, void* memory,
                    uint64_t bytes) {
  (void)user_data, (void)place, (void)device, (void)bytes;
  free(memory);
}

// One call a struct that is read; the struct is at options, with the size it says.
typedef zero_status (*reader)(const void* options);
static zero_runtime* shared_runtime;

static zero_status read_facts(const void* options) {
  zero_config* config = config_of("{}");
  const zero_status status = zero_config_fill_auto(config, options);
  zero_config_destroy(config);
  return status;
}
static zero_status read_group(const void* options) {
  zero_model* model = new_model();
  zero_group_id group = 77;
  const zero_status status = zero_group_add(model, "g", options, &group);
  assert_int_equal(group, status == ZERO_OK ? 1 : 77);
  zero_model_destroy(model);
  return status;
}
static zero_status read_group_set(const void* options) {
  return zero_group_set(shared_runtime, 0, options);
}
static zero_status read_param(const void* options) {
  zero_model* model = new_model();
  zero_param_id param = 77;
  const zero_status status = zero_param_add(model, "w", NULL, 0, options, &param);
  assert_int_equal(param, status == ZERO_OK ? 0 : 77);
  zero_model_destroy(model);
  return status;
}
static zero_status read_plan(const void* options) {
  zero_model* model = new_model();
  zero_config* config = config_of("{}");
  zero_plan* plan = NULL;
  const zero_status status = zero_plan_create(config, model, options, &plan);
  assert_int_equal(plan != NULL, status == ZERO_OK);
  zero_plan_destroy(plan);
  zero_config_destroy(config);
  zero_model_destroy(model);
  return status;
}
static zero_status read_callbacks(const void* options) {
  zero_comm* comm = NULL;
  const zero_status status = zero_comm_create_user(0, 1, options, NULL, &comm);
  assert_int_equal(comm != NULL, status == ZERO_OK);
  zero_comm_destroy(comm);
  return status;
}
static zero_status init_once(const zero_init_options* options) {
  zero_config* config = config_of("{\"libzero\": {\"comm\": \"self\"}}");
  zero_runtime* runtime = NULL;
  const zero_status status = zero_init(config, options, &runtime);
  assert_int_equal(runtime != NULL, status == ZERO_OK);
  zero_runtime_destroy(runtime);
  zero_config_destroy(config);
  return status;
}
static zero_status read_init(const void* options) {
  return init_once(options);
}
static zero_status read_allocator(const void* options) {
  zero_init_options with = init_options();
  with.allocator = options;
  return init_once(&with);
}
static zero_status read_step(const void* options) {
  return zero_step(shared_runtime, options, NULL, NULL);
}

// Neither is carried out: the path is refused when the struct has been read.
static zero_status read_save(const void* options) {
  const zero_status status = zero_checkpoint_save(shared_runtime, "", options);
  zero_error_info info;
  zero_error_info_init(&info, sizeof info);
  zero_last_error(&info);
  return status != ZERO_OK && strstr(info.message, "path is") != NULL ? ZERO_OK : status;
}
static zero_status read_weights(const void* options) {
  const zero_status status = zero_weights_import(shared_runtime, "/nowhere/at all", options);
  return status == ZERO_ERR_UNSUPPORTED || status == ZERO_ERR_INVALID_ARGUMENT ? status : ZERO_OK;
}
static zero_status no_progress(void* user_data, uint64_t done, uint64_t total) {
  (void)user_data, (void)done, (void)total;
  return ZERO_OK;
}
static zero_status read_progress(const void* progress) {
  const zero_status status =
      zero_checkpoint_import_deepspeed("/nowhere/at all", "/nowhere/out", 0, progress);
  return status == ZERO_ERR_UNSUPPORTED || status == ZERO_ERR_INVALID_ARGUMENT ? status : ZERO_OK;
}
static void set_progress(zero_progress* progress) {
  progress->report = no_progress;
}

static int start_shared(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  shared_runtime = run_of(sgd_text(0, ""), model);
  return 0;
}
static int end_shared(void** state) {
  (void)state;
  zero_runtime_destroy(shared_runtime);
  return 0;
}

// least: the smallest size that has what cannot be left out.
#define CHECK_READ(type, prepare, read, least)                                \
  {                                                                           \
    NEWER(type) newer;                                                        \
    type##_init(&newer.known, sizeof newer);                                  \
    newer.added = 0;                                                          \
    prepare(&newer.known);                                                    \
    OK(read(&newer)); /* newer, but asks for nothing new */                   \
    newer.added = 1;                                                          \
    REFUSED(read(&newer), ZERO_ERR_UNSUPPORTED, "newer version", "is not 0"); \
    newer.known.struct_size = sizeof newer.known;                             \
    OK(read(&newer)); /* not its bytes */                                     \
    newer.known.struct_size = (least);                                        \
    OK(read(&newer)); /* older */                                             \
    newer.known.struct_size = 0;                                              \
    BAD_ARGUMENT(read(&newer), "struct_size", "0");                           \
    newer.known.struct_size = 3;                                              \
    BAD_ARGUMENT(read(&newer), "struct_size", "3");                           \
  }
#define NOTHING(pointer) (void)(pointer)

static void set_callbacks(zero_comm_callbacks* callbacks) {
  callbacks->all_gather = no_exchange;
  callbacks->all_to_all = no_exchange;
}
static void set_allocator(zero_allocator* allocator) {
  allocator->allocate = allocate;
  allocator->release = release;
}

static void a_wrong_struct_size_is_refused(void** state) {
  (void)state;
  CHECK_READ(zero_config_facts, NOTHING, read_facts, 4)
  CHECK_READ(zero_group_options, NOTHING, read_group, 4)
  CHECK_READ(zero_group_options, NOTHING, read_group_set, 4)
  CHECK_READ(zero_param_options, NOTHING, read_param, 4)
  CHECK_READ(zero_plan_options, NOTHING, read_plan, 4)
  CHECK_READ(zero_comm_callbacks, set_callbacks, read_callbacks,
             offsetof(zero_comm_callbacks, abort))
  CHECK_READ(zero_allocator, set_allocator, read_allocator, offsetof(zero_allocator, user_data))
  CHECK_READ(zero_init_options, NOTHING, read_init, 4)
  CHECK_READ(zero_step_options, NOTHING, read_step, 4)
  CHECK_READ(zero_save_options, NOTHING, read_save, 4)
  CHECK_READ(zero_load_options, NOTHING, read_weights, 4)
  CHECK_READ(zero_progress, set_progress, read_progress, offsetof(zero_progress, user_data))
}

static void an_older_caller_gets_the_defaults_for_what_he_lacks(void** state) {
  (void)state;
  // A rate is given, what lies behind the size (a decay of 0.5) is not read.
  zero_model* model = new_model();
  zero_group_options group;
  zero_group_options_init(&group, sizeof group);
  group.lr = 0.5;
  group.lr_scale = 100;
  group.struct_size = offsetof(zero_group_options, lr_scale);
  zero_group_id slow = -1;
  OK(zero_group_add(model, "slow", &group, &slow));
  const float one = 1;
  zero_param_options options = param_options(&one);
  options.group = slow;
  const zero_param_id w = add_with(model, "w", 1, &options);
  zero_runtime* runtime = run_of(sgd_text(0, ""), model);
  give(runtime, w, 1);
  step_of(runtime);
  assert_true(first_of(runtime, w, 1) == 0.5f);
  end(runtime);
}

// Structs that are written: what both know, and not one byte more.
static zero_status write_step_info(void* out) {
  return zero_step(shared_runtime, NULL, NULL, out);
}
static zero_status write_memory_info(void* out) {
  return zero_memory_usage(shared_runtime, ZERO_PLACE_HOST, ZERO_MEMORY_TOTAL, out);
}
static zero_status write_param_info(void* out) {
  return zero_param_describe(shared_runtime, 0, out);
}
static zero_status write_option_info(void* out) {
  return zero_option_at(0, out);
}
static zero_status write_diagnostic(void* out) {
  zero_config* config = config_of("{\"zero_optimisation\": {}}");
  assert_int_not_equal(zero_config_check(config), ZERO_OK);
  const zero_status status = zero_config_diagnostic_at(config, 0, out);
  zero_config_destroy(config);
  return status;
}

static void a_struct_is_written_up_to_its_size_and_no_further(void** state) {
  (void)state;
  zero_status (*const writers[])(void*) = {write_step_info, write_memory_info, write_param_info,
                                           write_option_info, write_diagnostic};
  unsigned char bytes[256];
  for (size_t w = 0; w < sizeof writers / sizeof *writers; w++) {
    for (uint32_t size = 0; size <= 200; size += 4) {
      memset(bytes, 0xab, sizeof bytes);
      memcpy(bytes, &size, 4);
      if (size < 4) {
        BAD_ARGUMENT(writers[w](bytes), "struct_size", "0");
      } else {
        OK(writers[w](bytes));
      }
      uint32_t kept = 0;
      memcpy(&kept, bytes, 4);
      assert_int_equal(kept, size);
      const uint32_t from = size < 4 ? 4 : size;
      for (uint32_t i = from; i < sizeof bytes; i++) assert_int_equal(bytes[i], 0xab);
    }
  }
  uint32_t nothing = 0;
  assert_int_equal(zero_last_error((zero_error_info*)(void*)&nothing), ZERO_ERR_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(init_writes_the_size_it_was_given_and_no_byte_behind_it),
      cmocka_unit_test_setup_teardown(a_wrong_struct_size_is_refused, start_shared, end_shared),
      cmocka_unit_test(an_older_caller_gets_the_defaults_for_what_he_lacks),
      cmocka_unit_test_setup_teardown(a_struct_is_written_up_to_its_size_and_no_further,
                                      start_shared, end_shared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

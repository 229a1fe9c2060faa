// 16-bit parameters on one rank: element types at the interface, the loss scale, masters, memory.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

static const zero_dtype both[] = {ZERO_DTYPE_FP16, ZERO_DTYPE_BF16};
static const char* const names[] = {"fp16", "bf16"};
// 1 and 0.5 in fp16 and bf16.
static const uint16_t one_of[] = {0x3c00, 0x3f80};
static const uint16_t half_of[] = {0x3800, 0x3f00};
static const uint16_t infinity_of[] = {0x7c00, 0x7f80};

// SGD of rate 1; kind: 0 fp16, 1 bf16.  keys: of that section, or "".
static const char* text_of(int stage, int kind, const char* keys, const char* more) {
  static char section[600];
  snprintf(section, sizeof section, ", \"%s\": {\"enabled\": true%s}%s", names[kind], keys, more);
  return sgd_text(stage, section);
}

static zero_model* model_of(int kind, int64_t elements) {
  static uint16_t ones[64];
  for (int i = 0; i < 64; i++) ones[i] = one_of[kind];
  zero_model* model = new_model();
  zero_param_options options = param_options(NULL);
  options.dtype = both[kind];
  options.data = ones;
  add_with(model, "w", elements, &options);
  return model;
}

static void give_bits(zero_runtime* runtime, zero_param_id param, uint16_t bits) {
  zero_buffer buffer;
  int32_t add = -1;
  OK(zero_grad_buffer(runtime, param, NULL, &buffer, &add));
  assert_int_equal(add, 0);
  for (uint64_t i = 0; i < buffer.count; i++) ((uint16_t*)buffer.data)[i] = bits;
  OK(zero_grad_ready(runtime, &param, 1, NULL));
}

static void buffers_and_gradients_are_of_the_parameter_s_type(void** state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    for (int stage = 0; stage <= 3; stage++) {
      zero_runtime* runtime = run_of(
          text_of(stage, kind, kind == 0 ? ", \"loss_scale\": 1" : "", ""), model_of(kind, 40));
      const zero_param_id w = 0;
      zero_buffer buffer;
      int32_t add = -1;
      OK(zero_params_acquire(runtime, &w, 1, NULL, &buffer));
      assert_true(buffer.dtype == both[kind] && buffer.bytes == 80 && buffer.count == 40);
      assert_int_equal(((uint16_t*)buffer.data)[39], one_of[kind]);
      OK(zero_params_release(runtime, &w, 1, 0, NULL));
      OK(zero_shard_buffer(runtime, w, ZERO_PART_VALUE, 0, &buffer));
      assert_true(buffer.dtype == both[kind] && buffer.bytes == 80);
      OK(zero_shard_buffer(runtime, w, ZERO_PART_MASTER, 0, &buffer));
      assert_true(buffer.dtype == ZERO_DTYPE_FP32 && buffer.bytes == 160);
      assert_true(((float*)buffer.data)[39] == 1);
      zero_param_info info;
      zero_param_info_init(&info, sizeof info);
      OK(zero_param_describe(runtime, w, &info));
      assert_int_equal(info.dtype, both[kind]);
      OK(zero_grad_buffer(runtime, w, NULL, &buffer, &add));
      assert_true(buffer.dtype == both[kind] && buffer.bytes == 80);
      for (int i = 0; i < 40; i++) ((uint16_t*)buffer.data)[i] = half_of[kind];
      OK(zero_grad_ready(runtime, &w, 1, NULL));
      assert_int_equal(step_of(runtime).skipped, 0);
      uint16_t value[40];
      OK(zero_param_get(runtime, w, ZERO_PART_VALUE, 0, value, sizeof value));
      assert_int_equal(value[39], half_of[kind]);
      end(runtime);
    }
  }
}

static void a_gradient_of_another_type_is_refused_by_name(void** state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    zero_runtime* runtime = run_of(text_of(1, kind, "", ""), model_of(kind, 4));
    float floats[4] = {1, 1, 1, 1};
    zero_buffer gradient = {floats, sizeof floats, 4, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
    BAD_ARGUMENT(zero_grad_submit(runtime, 0, &gradient, NULL), "param \"w\" has dtype fp32",
                 names[kind]);
    gradient.dtype = both[1 - kind];
    gradient.bytes = 8;
    BAD_ARGUMENT(zero_grad_submit(runtime, 0, &gradient, NULL), names[1 - kind], names[kind]);
    end(runtime);
  }
}

static void masters_are_read_and_set_as_fp32_and_values_as_they_are(void** state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    for (int stage = 0; stage <= 3; stage++) {
      zero_runtime* runtime = run_of(text_of(stage, kind, "", ""), model_of(kind, 4));
      float floats[4] = {0.5f, 0.5f, 0.5f, 0.5f};
      uint16_t halves[4];
      BAD_ARGUMENT(zero_param_get(runtime, 0, ZERO_PART_VALUE, 0, floats, sizeof floats), "\"w\"",
                   "bytes is 16, expected 8");
      BAD_ARGUMENT(zero_param_get(runtime, 0, ZERO_PART_MASTER, 0, halves, sizeof halves), "\"w\"",
                   "bytes is 8, expected 16");
      BAD_ARGUMENT(zero_param_set(runtime, 0, ZERO_PART_MASTER, 0, halves, sizeof halves), "\"w\"",
                   "bytes is 8, expected 16");
      floats[3] = 0.5f + 0x1p-20f;
      OK(zero_param_set(runtime, 0, ZERO_PART_MASTER, 0, floats, sizeof floats));
      OK(zero_param_get(runtime, 0, ZERO_PART_VALUE, 0, halves, sizeof halves));
      for (int i = 0; i < 4; i++) assert_int_equal(halves[i], half_of[kind]);
      assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, 3, 4) == 0.5f + 0x1p-20f);
      for (int i = 0; i < 4; i++) halves[i] = one_of[kind];
      OK(zero_param_set(runtime, 0, ZERO_PART_VALUE, 0, halves, sizeof halves));
      assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, 3, 4) == 1);
      end(runtime);
    }
  }
}

static void the_loss_scale_starts_as_the_config_says_and_its_buffer_follows(void** state) {
  (void)state;
  static const struct {
    const char* keys;
    float first, after;
  } cases[] = {
      {"", 65536, 65536}, // the first of two credits
      {", \"hysteresis\": 1", 65536, 32768},
      {", \"initial_scale_power\": 3, \"hysteresis\": 1", 8, 4},
      {", \"loss_scale\": 384", 384, 384},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    zero_runtime* runtime = run_of(text_of(2, 0, cases[i].keys, ""), model_of(0, 4));
    zero_buffer buffer;
    OK(zero_loss_scale_buffer(runtime, &buffer));
    assert_true(zero_loss_scale(runtime) == cases[i].first);
    assert_true(*(float*)buffer.data == cases[i].first);
    give_bits(runtime, 0, infinity_of[0]);
    const zero_step_info info = step_of(runtime);
    assert_true(info.skipped == 1 && info.loss_scale == cases[i].after);
    assert_true(zero_loss_scale(runtime) == cases[i].after);
    assert_true(*(float*)buffer.data == cases[i].after);
    end(runtime);
  }
  zero_runtime* runtime = run_of(text_of(2, 1, "", ""), model_of(1, 4));
  assert_true(zero_loss_scale(runtime) == 1); // bf16 has none
  give_bits(runtime, 0, infinity_of[1]);
  assert_true(step_of(runtime).loss_scale == 1);
  end(runtime);
}

static void r004_an_overflow_at_the_minimum_is_overflow_and_leaves_the_runtime_usable(
    void** state) {
  (void)state;
  zero_runtime* runtime = run_of(
      text_of(1, 0, ", \"initial_scale_power\": 1, \"min_loss_scale\": 1, \"hysteresis\": 1", ""),
      model_of(0, 4));
  give_bits(runtime, 0, infinity_of[0]);
  assert_true(step_of(runtime).loss_scale == 1);
  zero_step_info info;
  zero_step_info_init(&info, sizeof info);
  info.step = 77;
  give_bits(runtime, 0, infinity_of[0]);
  REFUSED(zero_step(runtime, NULL, NULL, &info), ZERO_ERR_OVERFLOW, "param \"w\"",
          "smallest loss scale");
  assert_int_equal(info.step, 77); // outputs are left alone
  assert_int_equal(zero_runtime_status(runtime), ZERO_OK);
  assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, 0, 4) == 1);
  assert_int_equal(zero_step_count(runtime), 0);
  give_bits(runtime, 0, half_of[0]);
  info = step_of(runtime);
  assert_true(info.step == 1 && info.skipped_total == 1);
  assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, 0, 4) == 0.5f);
  end(runtime);
}

static const char* host_text(int stage, const char* section) {
  static char text[600];
  snprintf(text, sizeof text,
           "{\"optimizer\": {\"type\": \"libzero.host\", \"params\": {\"states\": 1}},"
           " \"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": %d}, %s}",
           stage, section);
  return text;
}

static void a_host_optimizer_sees_unscaled_fp32_gradients_and_masters(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime =
        run_of(host_text(stage, "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 2}"),
               model_of(0, 40));
    zero_step_info info;
    zero_step_info_init(&info, sizeof info);
    give_bits(runtime, 0, infinity_of[0]);
    OK(zero_step_begin(runtime, NULL, NULL, &info));
    assert_int_equal(info.skipped, 1);
    zero_buffer grad, master;
    BAD_STATE(zero_shard_buffer(runtime, 0, ZERO_PART_GRAD, 0, &grad), "did not skip", "\"w\"");
    OK(zero_step_end(runtime, NULL));
    give_bits(runtime, 0, half_of[0]);
    OK(zero_step_begin(runtime, NULL, NULL, &info));
    assert_true(info.skipped == 0 && info.loss_scale == 4);
    OK(zero_shard_buffer(runtime, 0, ZERO_PART_GRAD, 0, &grad));
    OK(zero_shard_buffer(runtime, 0, ZERO_PART_MASTER, 0, &master));
    assert_true(grad.dtype == ZERO_DTYPE_FP32 && master.dtype == ZERO_DTYPE_FP32);
    assert_true(grad.count == 40 && master.count == 40);
    for (int i = 0; i < 40; i++) {
      assert_true(((float*)grad.data)[i] == 0.125f); // 0.5 of a loss times 4
      ((float*)master.data)[i] -= 4 * ((float*)grad.data)[i];
    }
    OK(zero_step_end(runtime, NULL));
    assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, 39, 40) == 0.5f);
    uint16_t values[40];
    OK(zero_param_get(runtime, 0, ZERO_PART_VALUE, 0, values, sizeof values));
    for (int i = 0; i < 40; i++) assert_int_equal(values[i], half_of[0]);
    end(runtime);
  }
}

static void frozen_parameters_and_buffers_may_be_of_any_16_bit_type(void** state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    zero_model* model = model_of(kind, 4);
    zero_param_options options = param_options(NULL);
    options.dtype = both[1 - kind];
    options.role = ZERO_PARAM_FROZEN;
    add_with(model, "frozen", 4, &options);
    options.role = ZERO_PARAM_BUFFER;
    add_with(model, "mean", 4, &options);
    end(run_of(text_of(3, kind, "", ""), model));
  }
}

static void a_trained_parameter_of_the_other_type_is_a_conflict_naming_it(void** state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    zero_runtime* runtime = start(text_of(2, kind, "", ""));
    zero_model* model = model_of(kind, 4);
    zero_param_options options = param_options(NULL);
    options.dtype = both[1 - kind];
    add_with(model, "odd", 4, &options);
    REFUSED(zero_shard_params(runtime, model), ZERO_ERR_CONFIG_CONFLICT, "param \"odd\"",
            names[1 - kind]);
    zero_model_destroy(model);
    model = model_of(kind, 4);
    OK(zero_shard_params(runtime, model)); // as it was before
    zero_model_destroy(model);
    end(runtime);
  }
}

static void narrow_masters_and_states_are_refused_where_an_optimizer_has_none(void** state) {
  (void)state;
  static const char* const optimizers[] = {"Lamb", "Muon", "libzero.host"};
  static const char* const asks[] = {
      "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}",
      "\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}",
      "\"bf16\": {\"enabled\": true}, \"libzero\": {\"master_weights\": \"remainder\"}"};
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 3; k++) {
      char text[400];
      snprintf(text, sizeof text,
               "{\"optimizer\": {\"type\": \"%s\"}, \"data_types\": {\"grad_accum_dtype\": "
               "\"fp32\"}, %s}",
               optimizers[i], asks[k]);
      zero_runtime* runtime = start(text);
      zero_model* model = model_of(1, 4);
      REFUSED(zero_shard_params(runtime, model), ZERO_ERR_UNSUPPORTED, "16-bit masters or states",
              "expected Adam, AdamW, SGD, Adagrad or Lion");
      zero_model_destroy(model);
      end(runtime);
    }
  }
}

// What a host program's allocator was asked for, by use.
struct asked {
  uint64_t bytes[9];
};
static void* asked_allocate(void* user_data, zero_place place, int32_t device, zero_memory_use use,
                            uint64_t bytes, uint64_t alignment) {
  (void)place;
  (void)device;
  ((struct asked*)user_data)->bytes[use] += bytes;
  void* memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  memset(memory, 0x7f, bytes); // not numbers
  return memory;
}
static void asked_release(void* user_data, zero_place place, int32_t device, void* memory,
                          uint64_t bytes) {
  (void)user_data;
  (void)place;
  (void)device;
  (void)bytes;
  free(memory);
}

static void a_host_allocator_is_asked_for_masters_and_16_bit_parameters(void** state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    for (int stage = 0; stage <= 3; stage++) {
      struct asked asked = {{0}};
      zero_allocator allocator;
      zero_allocator_init(&allocator, sizeof allocator);
      allocator.allocate = asked_allocate;
      allocator.release = asked_release;
      allocator.user_data = &asked;
      zero_init_options options = init_options();
      options.allocator = &allocator;
      zero_runtime* runtime =
          start_with(text_of(stage, kind, kind == 0 ? ", \"loss_scale\": 1" : "", ""), options);
      zero_model* model = model_of(kind, 64);
      OK(zero_shard_params(runtime, model));
      zero_model_destroy(model);
      assert_int_equal(asked.bytes[ZERO_MEMORY_PARAMS], 2 * 64);
      assert_int_equal(asked.bytes[ZERO_MEMORY_MASTER], 4 * 64);
      assert_int_equal(asked.bytes[ZERO_MEMORY_OPTIMIZER], 0); // SGD without momentum
      for (zero_memory_use use = ZERO_MEMORY_PARAMS; use < ZERO_MEMORY_TABLES; use++) {
        uint64_t planned = 0;
        OK(zero_plan_memory(zero_runtime_plan(runtime), 0, ZERO_PLACE_HOST, use, &planned));
        assert_int_equal(asked.bytes[use], planned);
      }
      assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, 63, 64) == 1);
      give_bits(runtime, 0, half_of[kind]);
      assert_int_equal(step_of(runtime).skipped, 0);
      assert_true(element_of(runtime, 0, ZERO_PART_MASTER, 0, 63, 64) == 0.5f);
      end(runtime);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(buffers_and_gradients_are_of_the_parameter_s_type),
      cmocka_unit_test(a_gradient_of_another_type_is_refused_by_name),
      cmocka_unit_test(masters_are_read_and_set_as_fp32_and_values_as_they_are),
      cmocka_unit_test(the_loss_scale_starts_as_the_config_says_and_its_buffer_follows),
      cmocka_unit_test(r004_an_overflow_at_the_minimum_is_overflow_and_leaves_the_runtime_usable),
      cmocka_unit_test(a_host_optimizer_sees_unscaled_fp32_gradients_and_masters),
      cmocka_unit_test(frozen_parameters_and_buffers_may_be_of_any_16_bit_type),
      cmocka_unit_test(a_trained_parameter_of_the_other_type_is_a_conflict_naming_it),
      cmocka_unit_test(narrow_masters_and_states_are_refused_where_an_optimizer_has_none),
      cmocka_unit_test(a_host_allocator_is_asked_for_masters_and_16_bit_parameters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Parts of parameters: read, written, in place; an optimizer of the host program's own.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

enum { N = 100, STEPS = 6 };

static const char* adam_text(int stage, const char* type) {
  static char text[512];
  snprintf(text, sizeof text,
           "{\"optimizer\": {\"type\": %s}, \"gradient_clipping\": 0.75, \"zero_optimization\":"
           " {\"stage\": %d, \"stage3_param_persistence_threshold\": 0}}",
           type, stage);
  return text;
}
static const char* const kAdamW =
    "\"AdamW\", \"params\": {\"lr\": 0.01, \"betas\": [0.9, 0.999], \"eps\": 1e-8,"
    " \"weight_decay\": 0.1}";
static const char* const kHost = "\"libzero.host\", \"params\": {\"states\": 2, \"lr\": 0.01}";

static zero_runtime* run_with(const char* text) {
  static float first[2][N];
  zero_model* model = new_model();
  for (int p = 0; p < 2; p++) {
    for (int i = 0; i < N; i++) first[p][i] = sinf((float)(p * 1000 + i));
    add_vector(model, p == 0 ? "a" : "b", N, first[p]);
  }
  return run_of(text, model);
}

static void give_waves(zero_runtime* runtime, int step) {
  for (zero_param_id p = 0; p < 2; p++) {
    if (p == 1 && step == 3) continue; // b misses a step: its own count stands still
    float values[N];
    for (int i = 0; i < N; i++) values[i] = cosf((float)(p * 777 + step * 31 + i));
    const zero_buffer gradient = {values, 4 * N, N, ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
    OK(zero_grad_submit(runtime, p, &gradient, NULL));
  }
}

static double power_of(double base, int exponent) { // by squaring
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

static float* part_of(zero_runtime* runtime, zero_param_id param, zero_part part, int32_t index) {
  zero_buffer buffer;
  OK(zero_shard_buffer(runtime, param, part, index, &buffer));
  assert_int_equal(buffer.count, N);
  return buffer.data;
}

// AdamW as kernels.h writes it; count is the parameter's own number of updates.
static void update_in_c(zero_runtime* runtime, zero_param_id param, int count) {
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.999;
  const float step_size = (float)(lr / (1 - power_of(beta1, count)));
  const float root = (float)(1 / sqrt(1 - power_of(beta2, count)));
  const float decay = (float)(1 - lr * 0.1);
  const float* grad = part_of(runtime, param, ZERO_PART_GRAD, 0);
  float* master = part_of(runtime, param, ZERO_PART_MASTER, 0);
  float* m = part_of(runtime, param, ZERO_PART_STATE, 0);
  float* v = part_of(runtime, param, ZERO_PART_STATE, 1);
  for (int i = 0; i < N; i++) {
    const float g = grad[i];
    m[i] = fmaf((float)beta1, m[i], (float)(1 - beta1) * g);
    v[i] = fmaf((float)beta2, v[i], (float)(1 - beta2) * (g * g));
    const float d = fmaf(sqrtf(v[i]), root, 1e-8f);
    master[i] = fmaf(-step_size, m[i] / d, master[i] * decay);
  }
}

static void a_host_optimizer_gives_the_bits_of_the_built_in_one(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* built_in = run_with(adam_text(stage, kAdamW));
    zero_runtime* host = run_with(adam_text(stage, kHost));
    int counts[2] = {0, 0};
    for (int step = 0; step < STEPS; step++) {
      give_waves(built_in, step);
      const zero_step_info expected = step_of(built_in);
      give_waves(host, step);
      zero_step_info info;
      zero_step_info_init(&info, sizeof info);
      OK(zero_step_begin(host, NULL, NULL, &info));
      assert_true(info.grad_norm == expected.grad_norm && info.clip_scale == expected.clip_scale);
      assert_true(info.clip_scale < 1);
      assert_int_equal(info.step, step + 1);
      for (zero_param_id p = 0; p < 2; p++) {
        zero_buffer buffer;
        if (p == 1 && step == 3) {
          REFUSED(zero_shard_buffer(host, p, ZERO_PART_GRAD, 0, &buffer), ZERO_ERR_NOT_FOUND,
                  "param \"b\"", "no gradient");
          continue;
        }
        update_in_c(host, p, ++counts[p]);
      }
      OK(zero_step_end(host, NULL));
      assert_int_equal(zero_step_count(host), step + 1);
    }
    for (zero_param_id p = 0; p < 2; p++) {
      const struct {
        zero_part part;
        int32_t index;
      } parts[] = {
          {ZERO_PART_VALUE, 0}, {ZERO_PART_MASTER, 0}, {ZERO_PART_STATE, 0}, {ZERO_PART_STATE, 1}};
      for (size_t i = 0; i < 4; i++) {
        float mine[N], theirs[N];
        OK(zero_param_get(host, p, parts[i].part, parts[i].index, mine, sizeof mine));
        OK(zero_param_get(built_in, p, parts[i].part, parts[i].index, theirs, sizeof theirs));
        assert_memory_equal(mine, theirs, sizeof mine);
        assert_true(mine[3] != 0);
      }
    }
    end(host);
    end(built_in);
  }
}

static void begin_and_end_come_in_pairs_and_for_their_own_type(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_with(adam_text(stage, kAdamW));
    BAD_STATE(zero_step_begin(runtime, NULL, NULL, NULL), "libzero.host", "built-in");
    BAD_STATE(zero_step_end(runtime, NULL), "zero_step_begin", "");
    end(runtime);
    runtime = run_with(adam_text(stage, kHost));
    BAD_STATE(zero_step(runtime, NULL, NULL, NULL), "libzero.host", "zero_step_begin");
    BAD_STATE(zero_step_end(runtime, NULL), "zero_step_end", "zero_step_begin");
    zero_buffer buffer = {0};
    int32_t add = 77;
    BAD_STATE(zero_shard_buffer(runtime, 0, ZERO_PART_GRAD, 0, &buffer), "param \"a\"",
              "zero_step_begin");
    give_waves(runtime, 0);
    OK(zero_step_begin(runtime, NULL, NULL, NULL));
    BAD_STATE(zero_step_begin(runtime, NULL, NULL, NULL), "begun", "zero_step_end");
    BAD_STATE(zero_step(runtime, NULL, NULL, NULL), "begun", "zero_step_end");
    BAD_STATE(zero_micro_begin(runtime, 0), "zero_step_end", "");
    BAD_STATE(zero_grad_buffer(runtime, 0, NULL, &buffer, &add), "zero_step_end", "");
    BAD_STATE(zero_micro_end(runtime, NULL), "zero_step_end", "");
    BAD_STATE(zero_grads_clear(runtime, NULL), "zero_step_end", "");
    assert_int_equal(add, 77);
    float* master = part_of(runtime, 0, ZERO_PART_MASTER, 0);
    master[0] = 42;
    OK(zero_params_acquire(runtime, &(zero_param_id){1}, 1, NULL, &buffer));
    BAD_STATE(zero_step_end(runtime, NULL), "on loan", "\"b\"");
    OK(zero_params_release(runtime, &(zero_param_id){1}, 1, 0, NULL));
    OK(zero_step_end(runtime, NULL));
    BAD_STATE(zero_step_end(runtime, NULL), "zero_step_end", "zero_step_begin");
    assert_true(first_of(runtime, 0, N) == 42);
    end(runtime);
  }
}

static void a_skipped_step_still_wants_its_end(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_with(adam_text(stage, kHost));
    give(runtime, 0, NAN);
    zero_step_info info;
    zero_step_info_init(&info, sizeof info);
    OK(zero_step_begin(runtime, NULL, NULL, &info));
    assert_true(info.skipped == 1 && info.step == 0 && info.nonfinite_param == 0);
    zero_buffer buffer;
    BAD_STATE(zero_shard_buffer(runtime, 0, ZERO_PART_GRAD, 0, &buffer), "did not skip", "");
    BAD_STATE(zero_step_begin(runtime, NULL, NULL, &info), "zero_step_end", "");
    OK(zero_step_end(runtime, NULL));
    assert_int_equal(zero_step_count(runtime), 0);
    give_waves(runtime, 0);
    OK(zero_step_begin(runtime, NULL, NULL, &info));
    assert_true(info.skipped == 0 && info.step == 1 && info.skipped_total == 1);
    OK(zero_step_end(runtime, NULL));
    end(runtime);
  }
}

static void a_parameter_set_whole_is_read_back_whole(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_runtime* runtime = run_with(adam_text(stage, kAdamW));
    give_waves(runtime, 0);
    step_of(runtime);
    const struct {
      zero_part part;
      int32_t index;
    } parts[] = {
        {ZERO_PART_VALUE, 0}, {ZERO_PART_MASTER, 0}, {ZERO_PART_STATE, 0}, {ZERO_PART_STATE, 1}};
    for (size_t i = 0; i < 4; i++) {
      float neighbour[N], values[N], back[N];
      OK(zero_param_get(runtime, 1, parts[i].part, parts[i].index, neighbour, sizeof neighbour));
      for (int e = 0; e < N; e++) values[e] = (float)(100 * (int)i + e);
      OK(zero_param_set(runtime, 0, parts[i].part, parts[i].index, values, sizeof values));
      OK(zero_param_get(runtime, 0, parts[i].part, parts[i].index, back, sizeof back));
      assert_memory_equal(back, values, sizeof back);
      OK(zero_param_get(runtime, 1, parts[i].part, parts[i].index, back, sizeof back));
      assert_memory_equal(back, neighbour, sizeof back);
      zero_buffer shard;
      OK(zero_shard_buffer(runtime, 0, parts[i].part, parts[i].index, &shard));
      assert_int_equal(shard.count, N); // one rank has it all
      assert_memory_equal(shard.data, values, sizeof values);
    }
    float loan_values[N];
    for (int e = 0; e < N; e++) loan_values[e] = (float)(100 + e); // MASTER came last
    zero_buffer loan;
    OK(zero_params_acquire(runtime, &(zero_param_id){0}, 1, NULL, &loan));
    assert_memory_equal(loan.data, loan_values, sizeof loan_values);
    OK(zero_params_release(runtime, &(zero_param_id){0}, 1, 0, NULL));
    end(runtime);
  }
}

static void parts_that_do_not_exist_are_refused(void** state) {
  (void)state;
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  zero_param_options options = param_options(NULL);
  options.role = ZERO_PARAM_FROZEN;
  add_with(model, "frozen", 4, &options);
  zero_runtime* runtime = run_of(adam_text(2, kAdamW), model);
  float values[4] = {7, 7, 7, 7};
  zero_buffer buffer = {0};
  const struct {
    zero_param_id param;
    zero_part part;
    int32_t index;
    const char* word;
  } bad[] = {
      {2, ZERO_PART_VALUE, 0, "parameter 2"},
      {-1, ZERO_PART_VALUE, 0, "parameter -1"},
      {0, 4, 0, "part is 4"},
      {0, -1, 0, "part is -1"},
      {0, ZERO_PART_STATE, 2, "index of STATE is 2"},
      {0, ZERO_PART_STATE, -1, "index of STATE"},
      {0, ZERO_PART_VALUE, 1, "index of VALUE is 1"},
      {1, ZERO_PART_STATE, 0, "\"frozen\""},
      {1, ZERO_PART_MASTER, 0, "\"frozen\""},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    BAD_ARGUMENT(zero_param_get(runtime, bad[i].param, bad[i].part, bad[i].index, values, 16),
                 "zero_param_get", bad[i].word);
    BAD_ARGUMENT(zero_param_set(runtime, bad[i].param, bad[i].part, bad[i].index, values, 16),
                 "zero_param_set", bad[i].word);
    BAD_ARGUMENT(zero_shard_buffer(runtime, bad[i].param, bad[i].part, bad[i].index, &buffer),
                 "zero_shard_buffer", bad[i].word);
  }
  BAD_ARGUMENT(zero_param_get(runtime, 0, ZERO_PART_VALUE, 0, values, 12), "bytes is 12",
               "expected 16");
  BAD_ARGUMENT(zero_param_set(runtime, 0, ZERO_PART_VALUE, 0, values, 20), "bytes is 20",
               "expected 16");
  BAD_STATE(zero_param_get(runtime, 0, ZERO_PART_GRAD, 0, values, 16), "\"w\"", "zero_step_begin");
  for (int i = 0; i < 4; i++) assert_true(values[i] == 7);
  assert_null(buffer.data);
  assert_true(first_of(runtime, 0, 4) == 0);
  zero_span span = {77, 77};
  BAD_ARGUMENT(zero_param_shard(runtime, 0, 1, &span), "rank is 1", "0 to 0");
  BAD_ARGUMENT(zero_param_shard(runtime, 2, 0, &span), "2", "0 to 1");
  assert_int_equal(span.offset, 77);
  OK(zero_param_shard(runtime, 0, 0, &span));
  assert_true(span.offset == 0 && span.count == 4);
  end(runtime);
}

static void a_buffer_is_kept_as_it_is(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    const int64_t counter = INT64_C(1234567890123);
    zero_model* model = new_model();
    zero_param_options options = param_options(NULL);
    options.role = ZERO_PARAM_BUFFER;
    options.dtype = ZERO_DTYPE_INT64;
    options.data = (void*)&counter;
    zero_param_id id = -1;
    OK(zero_param_add(model, "counter", NULL, 0, &options, &id));
    add_vector(model, "w", 4, NULL);
    zero_runtime* runtime = run_of(sgd_text(stage, ""), model);
    zero_buffer buffer;
    OK(zero_param_buffer(runtime, id, &buffer)); // whole on every rank, at every stage
    assert_true(*(int64_t*)buffer.data == counter && buffer.bytes == 8);
    *(int64_t*)buffer.data += 1;
    give(runtime, 1, 1);
    step_of(runtime);
    int64_t back = 0;
    OK(zero_param_get(runtime, id, ZERO_PART_VALUE, 0, &back, 8));
    assert_true(back == counter + 1);
    back = -5;
    OK(zero_param_set(runtime, id, ZERO_PART_VALUE, 0, &back, 8));
    assert_true(*(int64_t*)buffer.data == -5);
    end(runtime);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_host_optimizer_gives_the_bits_of_the_built_in_one),
      cmocka_unit_test(begin_and_end_come_in_pairs_and_for_their_own_type),
      cmocka_unit_test(a_skipped_step_still_wants_its_end),
      cmocka_unit_test(a_parameter_set_whole_is_read_back_whole),
      cmocka_unit_test(parts_that_do_not_exist_are_refused),
      cmocka_unit_test(a_buffer_is_kept_as_it_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Memory: what was planned is what is used; the host program's own allocator; the log.
// SPDX-License-Identifier: BSD-3-Clause
#include "contract_help.h"

static const char* adam_text(int stage) {
  static char text[400];
  snprintf(text, sizeof text,
           "{\"optimizer\": {\"type\": \"AdamW\"}, \"zero_optimization\": {\"stage\": %d,"
           " \"reduce_bucket_size\": 3000, \"stage3_param_persistence_threshold\": 100}}",
           stage);
  return text;
}

static zero_model* model_of_several(void) {
  zero_model* model = new_model();
  add_vector(model, "a", 1000, NULL);
  add_vector(model, "b", 7, NULL);
  add_vector(model, "c", 4097, NULL);
  zero_param_options options = param_options(NULL);
  options.role = ZERO_PARAM_FROZEN;
  add_with(model, "frozen", 333, &options);
  options.role = ZERO_PARAM_BUFFER;
  add_with(model, "mean", 10, &options);
  return model;
}

static zero_memory_info usage(zero_runtime* runtime, zero_memory_use use) {
  zero_memory_info info;
  zero_memory_info_init(&info, sizeof info);
  OK(zero_memory_usage(runtime, ZERO_PLACE_HOST, use, &info));
  return info;
}

static uint64_t planned_bytes(int stage, int32_t own_allocator, zero_memory_use use) {
  zero_config* config = config_of(adam_text(stage));
  zero_model* model = model_of_several();
  zero_plan_options options;
  zero_plan_options_init(&options, sizeof options);
  options.own_allocator = own_allocator;
  zero_plan* plan = NULL;
  OK(zero_plan_create(config, model, &options, &plan));
  uint64_t bytes = 0;
  OK(zero_plan_memory(plan, 0, ZERO_PLACE_HOST, use, &bytes));
  zero_plan_destroy(plan);
  zero_model_destroy(model);
  zero_config_destroy(config);
  return bytes;
}

static void train_a_little(zero_runtime* runtime, int stage) {
  static const zero_param_id ids[] = {0, 1, 2};
  zero_buffer buffers[3];
  for (int step = 0; step < 2; step++) {
    OK(zero_params_acquire(runtime, ids, 3, NULL, buffers));
    OK(zero_params_release(runtime, ids, 3, 0, NULL));
    for (int p = 2; p >= 0; p--) give(runtime, ids[p], 1);
    step_of(runtime);
  }
  (void)stage;
}

static void usage_by_place_and_use_adds_up_to_the_total(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    zero_model* model = model_of_several();
    zero_runtime* runtime = run_of(adam_text(stage), model);
    for (int round = 0; round < 2; round++) { // before training and after
      uint64_t planned = 0, current = 0;
      for (zero_memory_use use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; use++) {
        const zero_memory_info info = usage(runtime, use);
        const uint64_t expected = planned_bytes(stage, 0, use);
        assert_int_equal(info.planned, expected);
        uint64_t of_plan = 0;
        OK(zero_plan_memory(zero_runtime_plan(runtime), 0, ZERO_PLACE_HOST, use, &of_plan));
        assert_int_equal(of_plan, expected);
        if (use == ZERO_MEMORY_TABLES) {
          assert_true(info.current <= info.planned);
        } else {
          assert_int_equal(info.current, expected);
          assert_int_equal(info.peak, expected);
        }
        planned += info.planned;
        current += info.current;
      }
      const zero_memory_info total = usage(runtime, ZERO_MEMORY_TOTAL);
      assert_int_equal(total.planned, planned);
      assert_int_equal(total.current, current);
      assert_int_equal(total.planned, planned_bytes(stage, 0, ZERO_MEMORY_TOTAL));
      train_a_little(runtime, stage);
    }
    zero_memory_info info;
    zero_memory_info_init(&info, sizeof info);
    OK(zero_memory_usage(runtime, ZERO_PLACE_DEVICE, ZERO_MEMORY_TOTAL, &info));
    assert_true(info.planned == 0 && info.current == 0 && info.peak == 0);
    info.peak = 77;
    BAD_ARGUMENT(zero_memory_usage(runtime, 0, ZERO_MEMORY_TOTAL, &info), "place is 0", "");
    BAD_ARGUMENT(zero_memory_usage(runtime, 5, ZERO_MEMORY_TOTAL, &info), "place is 5", "");
    BAD_ARGUMENT(zero_memory_usage(runtime, ZERO_PLACE_HOST, -1, &info), "use is -1", "");
    BAD_ARGUMENT(zero_memory_usage(runtime, ZERO_PLACE_HOST, 10, &info), "use is 10", "");
    assert_int_equal(info.peak, 77);
    OK(zero_memory_reset_peak(runtime));
    assert_int_equal(usage(runtime, ZERO_MEMORY_TOTAL).peak,
                     usage(runtime, ZERO_MEMORY_TOTAL).current);
    end(runtime);
  }
}

// The paper's table for fp32 and Adam: 4 + 4 + 8 bytes an element at one rank, here of 1000, 7 and
// 4097 elements that start at multiples of 32 each.
static void model_states_are_16_bytes_a_padded_element(void** state) {
  (void)state;
  const uint64_t elements = 1024 + 32 + 4128;
  for (int stage = 0; stage <= 2; stage++) {
    zero_runtime* runtime = run_of(adam_text(stage), model_of_several());
    const uint64_t frozen_and_buffer = 352 * 4 + 10 * 4;
    const uint64_t params = usage(runtime, ZERO_MEMORY_PARAMS).current;
    assert_in_range(params, elements * 4 + frozen_and_buffer,
                    elements * 4 + frozen_and_buffer + 256);
    assert_int_equal(usage(runtime, ZERO_MEMORY_GRADS).current, elements * 4);
    assert_int_equal(usage(runtime, ZERO_MEMORY_OPTIMIZER).current, elements * 8);
    assert_int_equal(usage(runtime, ZERO_MEMORY_MASTER).current, 0);
    assert_int_equal(usage(runtime, ZERO_MEMORY_STAGING).current, 0);
    end(runtime);
  }
}

// A pool that notes what it was asked for.
struct pool {
  uint64_t bytes[9]; // by use
  int calls[9];
  int live;
  int refuse; // this use gets nothing
  int phase; // 1: inside zero_shard_params
};

static void* pool_allocate(void* user_data, zero_place place, int32_t device, zero_memory_use use,
                           uint64_t bytes, uint64_t alignment) {
  struct pool* pool = user_data;
  if (pool->phase != 1 || place != ZERO_PLACE_HOST || device != -1 || use < 1 || use > 8) abort();
  if (pool->refuse == use) return NULL;
  pool->calls[use]++;
  pool->bytes[use] += bytes;
  pool->live++;
  unsigned char* memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  memset(memory, 0x5a, bytes); // not zeros
  return memory;
}

static void pool_release(void* user_data, zero_place place, int32_t device, void* memory,
                         uint64_t bytes) {
  struct pool* pool = user_data;
  (void)bytes;
  if (place != ZERO_PLACE_HOST || device != -1) abort();
  pool->live--;
  free(memory);
}

static zero_runtime* run_from_pool(int stage, struct pool* pool) {
  zero_allocator allocator;
  zero_allocator_init(&allocator, sizeof allocator);
  allocator.allocate = pool_allocate;
  allocator.release = pool_release;
  allocator.user_data = pool;
  zero_init_options options = init_options();
  options.allocator = &allocator;
  zero_runtime* runtime = start_with(adam_text(stage), options);
  memset(&allocator, 0xff, sizeof allocator); // it was copied
  return runtime;
}

static void a_host_allocator_is_asked_once_a_use_for_what_the_plan_says(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    struct pool pool = {.phase = 0};
    zero_runtime* runtime = run_from_pool(stage, &pool);
    zero_model* model = model_of_several();
    pool.phase = 1;
    OK(zero_shard_params(runtime, model));
    pool.phase = 2;
    zero_model_destroy(model);
    for (zero_memory_use use = ZERO_MEMORY_PARAMS; use < ZERO_MEMORY_TABLES; use++) {
      const uint64_t expected = planned_bytes(stage, 1, use);
      assert_int_equal(pool.bytes[use], expected);
      assert_int_equal(pool.calls[use], expected > 0 ? 1 : 0);
      assert_int_equal(usage(runtime, use).current, expected);
    }
    assert_int_equal(pool.calls[ZERO_MEMORY_TABLES], 0);
    train_a_little(runtime, stage);
    // As with libzero's own memory, although this one did not come as zeros.
    zero_runtime* other = run_of(adam_text(stage), model_of_several());
    train_a_little(other, stage);
    for (zero_param_id p = 0; p < 5; p++) {
      static const uint64_t counts[] = {1000, 7, 4097, 333, 10};
      static float mine[4097], theirs[4097];
      OK(zero_param_get(runtime, p, ZERO_PART_VALUE, 0, mine, 4 * counts[p]));
      OK(zero_param_get(other, p, ZERO_PART_VALUE, 0, theirs, 4 * counts[p]));
      assert_memory_equal(mine, theirs, 4 * counts[p]);
    }
    end(other);
    OK(zero_runtime_close(runtime));
    assert_true(pool.live > 0);
    zero_runtime_destroy(runtime);
    assert_int_equal(pool.live, 0);
  }
}

static void a_refusing_allocator_leaves_the_runtime_as_it_was(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    for (int use = ZERO_MEMORY_PARAMS; use < ZERO_MEMORY_TABLES; use++) {
      if (planned_bytes(stage, 1, use) == 0) continue;
      struct pool pool = {.phase = 1, .refuse = use};
      zero_runtime* runtime = run_from_pool(stage, &pool);
      zero_model* model = model_of_several();
      char bytes[32];
      snprintf(bytes, sizeof bytes, "%llu bytes", (unsigned long long)planned_bytes(stage, 1, use));
      REFUSED(zero_shard_params(runtime, model), ZERO_ERR_OUT_OF_MEMORY, "allocator", bytes);
      assert_int_equal(pool.live, 0); // what was had is given back
      assert_int_equal(zero_runtime_status(runtime), ZERO_OK);
      assert_int_equal(zero_param_count(runtime), 0);
      assert_int_equal(usage(runtime, ZERO_MEMORY_TOTAL).current, 0);
      assert_int_equal(usage(runtime, ZERO_MEMORY_TOTAL).planned, 0);
      zero_model_destroy(model);
      pool.refuse = 0; // now another model, a smaller one
      model = new_model();
      const zero_param_id w = add_vector(model, "w", 50, NULL);
      OK(zero_shard_params(runtime, model));
      pool.phase = 2;
      zero_model_destroy(model);
      assert_int_equal(usage(runtime, ZERO_MEMORY_OPTIMIZER).planned, 64 * 8);
      give(runtime, w, 1);
      assert_int_equal(step_of(runtime).step, 1);
      assert_true(first_of(runtime, w, 50) < 0);
      zero_runtime_destroy(runtime);
      assert_int_equal(pool.live, 0);
    }
  }
}

static void an_allocator_without_its_functions_is_refused(void** state) {
  (void)state;
  zero_config* config = config_of("{}");
  zero_allocator allocator;
  zero_allocator_init(&allocator, sizeof allocator);
  zero_init_options options = init_options();
  options.allocator = &allocator;
  zero_runtime* runtime = NULL;
  BAD_ARGUMENT(zero_init(config, &options, &runtime), "allocator->allocate", "NULL");
  allocator.allocate = pool_allocate;
  BAD_ARGUMENT(zero_init(config, &options, &runtime), "allocator->release", "NULL");
  assert_null(runtime);
  zero_config_destroy(config);
}

static zero_runtime* run_within(uint64_t budget, int stage) {
  char text[500];
  snprintf(text, sizeof text, "{\"libzero\": {\"memory_budget\": %llu}, %s",
           (unsigned long long)budget, adam_text(stage) + 1);
  return start(text);
}

static void the_host_programs_memory_is_in_the_ledger_and_within_the_budget(void** state) {
  (void)state;
  const uint64_t planned = planned_bytes(2, 0, ZERO_MEMORY_TOTAL);
  zero_runtime* runtime = run_within(planned + 10000, 2);
  void* early = NULL; // before the model is there
  OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 4000, 256, &early));
  assert_int_equal((uintptr_t)early % 256, 0);
  memset(early, 1, 4000);
  zero_model* model = model_of_several();
  OK(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  assert_int_equal(usage(runtime, ZERO_MEMORY_HOST_PROGRAM).current, 4000);
  assert_int_equal(usage(runtime, ZERO_MEMORY_HOST_PROGRAM).planned, 0);
  void* memory = &early;
  REFUSED(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 6001, 0, &memory), ZERO_ERR_OUT_OF_MEMORY,
          "6001 bytes", "memory_budget");
  REFUSED(zero_memory_allocate(runtime, ZERO_PLACE_HOST, UINT64_MAX, 0, &memory),
          ZERO_ERR_OUT_OF_MEMORY, "18446744073709551615 bytes", "memory_budget");
  assert_ptr_equal(memory, &early);
  OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 6000, 0, &memory)); // to the byte
  memset(memory, 2, 6000);
  assert_int_equal(usage(runtime, ZERO_MEMORY_HOST_PROGRAM).current, 10000);
  void* more = NULL;
  REFUSED(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 1, 0, &more), ZERO_ERR_OUT_OF_MEMORY, "1 ",
          "");
  zero_memory_free(runtime, early);
  assert_int_equal(usage(runtime, ZERO_MEMORY_HOST_PROGRAM).current, 6000);
  assert_int_equal(usage(runtime, ZERO_MEMORY_HOST_PROGRAM).peak, 10000);
  OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 4000, 0, &more));
  train_a_little(runtime, 2);
  end(runtime); // with what is still held
}

static void a_plan_beyond_the_budget_allocates_nothing(void** state) {
  (void)state;
  for (int stage = 0; stage <= 3; stage++) {
    const uint64_t planned = planned_bytes(stage, 0, ZERO_MEMORY_TOTAL);
    zero_runtime* runtime = run_within(planned, stage);
    void* memory = NULL;
    OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 1, 1, &memory));
    zero_model* model = model_of_several();
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%llu bytes", (unsigned long long)planned);
    REFUSED(zero_shard_params(runtime, model), ZERO_ERR_OUT_OF_MEMORY, bytes, "memory_budget");
    assert_int_equal(usage(runtime, ZERO_MEMORY_TOTAL).current, 1);
    assert_int_equal(usage(runtime, ZERO_MEMORY_TOTAL).peak, 1);
    assert_int_equal(usage(runtime, ZERO_MEMORY_TOTAL).planned, 0);
    assert_int_equal(zero_runtime_status(runtime), ZERO_OK);
    zero_memory_free(runtime, memory);
    OK(zero_shard_params(runtime, model)); // to the byte
    zero_model_destroy(model);
    train_a_little(runtime, stage);
    end(runtime);
  }
}

static void what_is_not_ours_is_not_freed(void** state) {
  (void)state;
  zero_runtime* runtime = start(adam_text(0));
  void* memory = NULL;
  int mine = 7;
  zero_memory_free(runtime, NULL);
  zero_memory_free(NULL, &mine);
  zero_memory_free(runtime, &mine);
  OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 3 << 20, 1 << 21, &memory));
  assert_int_equal((uintptr_t)memory % (1 << 21), 0);
  memset(memory, 1, 3 << 20);
  zero_memory_free(runtime, memory);
  zero_memory_free(runtime, memory); // twice
  assert_int_equal(usage(runtime, ZERO_MEMORY_TOTAL).current, 0);
  char line[300];
  uint64_t length = 0;
  zero_log_level level = 0;
  for (int i = 0; i < 2; i++) {
    OK(zero_log_read(runtime, &level, line, sizeof line, &length));
    assert_int_equal(level, ZERO_LOG_WARN);
    assert_non_null(strstr(line, "zero_memory_free"));
  }
  OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 0, 0, &memory));
  assert_null(memory);
  end(runtime);
}

static void places_and_alignments_of_the_host_program_are_checked(void** state) {
  (void)state;
  zero_runtime* runtime = start(adam_text(0));
  void* memory = &runtime;
  BAD_ARGUMENT(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 8, 3, &memory), "alignment is 3", "");
  BAD_ARGUMENT(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 8, 1 << 22, &memory),
               "alignment is 4194304", "");
  BAD_ARGUMENT(zero_memory_allocate(runtime, ZERO_PLACE_FILE, 8, 8, &memory), "place is 4", "");
  BAD_ARGUMENT(zero_memory_allocate(runtime, 0, 8, 8, &memory), "place is 0", "");
  REFUSED(zero_memory_allocate(runtime, ZERO_PLACE_DEVICE, 8, 8, &memory), ZERO_ERR_UNSUPPORTED,
          "place is 3", "");
  REFUSED(zero_memory_allocate(runtime, ZERO_PLACE_PINNED, 8, 8, &memory), ZERO_ERR_UNSUPPORTED,
          "place is 2", "");
  assert_ptr_equal(memory, &runtime);
  for (uint64_t alignment = 1; alignment <= 1 << 21; alignment *= 2) {
    OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 8, alignment, &memory));
    assert_int_equal((uintptr_t)memory % alignment, 0);
  }
  end(runtime);
}

static const char* explained(zero_runtime* runtime, zero_place place, uint64_t bytes) {
  static char text[20000];
  uint64_t length = 0, written = 0;
  REFUSED(zero_memory_explain(runtime, place, bytes, NULL, 0, &length), ZERO_ERR_BUFFER_TOO_SMALL,
          "", "");
  OK(zero_memory_explain(runtime, place, bytes, text, sizeof text, &written));
  assert_true(length > 0 && strlen(text) == written);
  return text;
}

// The number behind a word; the word is there.
static uint64_t number_after(const char* text, const char* word) {
  const char* at = strstr(text, word);
  if (at == NULL) print_error("no '%s' in: %s\n", word, text);
  assert_non_null(at);
  return strtoull(at + strlen(word), NULL, 10);
}

// After an allocation that failed elsewhere: what holds what, to the byte, and what frees as much.
static void an_explanation_says_what_holds_what(void** state) {
  (void)state;
  zero_runtime* runtime = run_of(adam_text(2), model_of_several());
  void* memory = NULL;
  OK(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 12345, 0, &memory));
  const char* text = explained(runtime, ZERO_PLACE_HOST, 5000);
  assert_int_equal(strtoull(text, NULL, 10), 5000);
  static const char* words[] = {"libzero holds ",   "params ", "grads ",   "",
                                "optimizer ",       "",        "buckets ", "",
                                "tables (at most) "};
  for (zero_memory_use use = ZERO_MEMORY_TOTAL; use <= ZERO_MEMORY_TABLES; use++) {
    if (words[use][0] == '\0') {
      assert_int_equal(planned_bytes(2, 0, use), 0); // and so it is not mentioned
    } else {
      assert_int_equal(number_after(text, words[use]), planned_bytes(2, 0, use));
    }
  }
  assert_int_equal(number_after(text, "the host program "), 12345);
  // 5000 bytes are freed by half of the 17345 that the host program then would hold.
  assert_int_equal(number_after(text, "\"gradient_accumulation_steps\": "), 2);
  // What this process holds by itself is another's.
  const uint64_t others = number_after(text, "others in this process hold about ");
  const size_t size = 64 << 20;
  volatile char* mine = malloc(size);
  for (size_t i = 0; i < size; i += 512) mine[i] = 1;
  text = explained(runtime, ZERO_PLACE_HOST, 5000);
  const uint64_t more = number_after(text, "others in this process hold about ") - others;
  free((void*)mine);
  assert_in_range(more, size - (4 << 20), 8 * size); // sanitizers take as much again
  text = explained(runtime, ZERO_PLACE_DEVICE, 5000);
  assert_int_equal(number_after(text, "libzero holds "), 0);
  assert_int_equal(number_after(text, "the host program "), 0);
  BAD_ARGUMENT(zero_memory_explain(runtime, 0, 1, NULL, 0, &(uint64_t){0}), "place is 0", "");
  BAD_ARGUMENT(zero_memory_explain(runtime, 5, 1, NULL, 0, &(uint64_t){0}), "place is 5", "");
  // More than 64 bits hold is explained all the same.
  text = explained(runtime, ZERO_PLACE_HOST, UINT64_MAX);
  assert_true(strtoull(text, NULL, 10) == UINT64_MAX);
  end(runtime);
}

static void a_runtime_without_a_model_explains_without_advice(void** state) {
  (void)state;
  zero_runtime* runtime = run_within(1000, 1);
  const char* text = explained(runtime, ZERO_PLACE_HOST, 77);
  assert_int_equal(number_after(text, "libzero.memory_budget is "), 1000);
  assert_null(strstr(text, "what fits"));
  zero_model* model = model_of_several();
  REFUSED(zero_shard_params(runtime, model), ZERO_ERR_OUT_OF_MEMORY, "memory_budget = 1000",
          "the plan has ");
  zero_model_destroy(model);
  assert_null(strstr(explained(runtime, ZERO_PLACE_HOST, 77), "what fits"));
  end(runtime);
}

// The message has room for the first piece of advice; the whole is in the text and in the log.
static void an_error_of_memory_is_whole_in_its_text_and_in_the_log(void** state) {
  (void)state;
  zero_runtime* runtime = run_within(planned_bytes(2, 0, ZERO_MEMORY_TOTAL) + 100000, 2);
  zero_model* model = model_of_several();
  OK(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  void* memory = NULL;
  REFUSED(zero_memory_allocate(runtime, ZERO_PLACE_HOST, 100001, 0, &memory),
          ZERO_ERR_OUT_OF_MEMORY, "100001 bytes do not fit", "what fits, cheapest first: 1. ");
  static char whole[20000], line[20000];
  uint64_t length = 0;
  OK(zero_last_error_text(whole, sizeof whole, &length));
  assert_memory_equal(whole, last_message(), strlen(last_message()));
  zero_log_level level = 0;
  while (level != ZERO_LOG_ERROR) OK(zero_log_read(runtime, &level, line, sizeof line, &length));
  assert_string_equal(line, whole);
  end(runtime);
}

static void lines_are_read_oldest_first(void** state) {
  (void)state;
  // A key that is known but does nothing here is a warning; the model adds a line of its own.
  const char* text =
      "{\"optimizer\": {\"type\": \"SGD\"}, \"train_batch_size\": 8,"
      " \"zero_optimization\": {\"stage\": 2, \"log_trace_cache_warnings\": true}}";
  zero_runtime* runtime = start(text);
  zero_model* model = new_model();
  add_vector(model, "w", 4, NULL);
  OK(zero_shard_params(runtime, model));
  zero_model_destroy(model);
  char line[1000];
  uint64_t length = 0;
  zero_log_level level = 0;
  REFUSED(zero_log_read(runtime, &level, line, 3, &length), ZERO_ERR_BUFFER_TOO_SMALL, "", "");
  assert_int_equal(level, 0); // and the line is still there
  OK(zero_log_read(runtime, &level, line, sizeof line, &length));
  assert_int_equal(level, ZERO_LOG_WARN);
  assert_non_null(strstr(line, "log_trace_cache_warnings"));
  assert_int_equal(strlen(line), length);
  OK(zero_log_read(runtime, &level, line, sizeof line, &length));
  assert_int_equal(level, ZERO_LOG_INFO);
  assert_non_null(strstr(line, "stage 2"));
  level = 77;
  length = 77;
  REFUSED(zero_log_read(runtime, &level, line, sizeof line, &length), ZERO_ERR_NOT_FOUND, "log",
          "");
  assert_true(level == 77 && length == 77);
  end(runtime);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(usage_by_place_and_use_adds_up_to_the_total),
      cmocka_unit_test(model_states_are_16_bytes_a_padded_element),
      cmocka_unit_test(a_host_allocator_is_asked_once_a_use_for_what_the_plan_says),
      cmocka_unit_test(a_refusing_allocator_leaves_the_runtime_as_it_was),
      cmocka_unit_test(an_allocator_without_its_functions_is_refused),
      cmocka_unit_test(the_host_programs_memory_is_in_the_ledger_and_within_the_budget),
      cmocka_unit_test(a_plan_beyond_the_budget_allocates_nothing),
      cmocka_unit_test(what_is_not_ours_is_not_freed),
      cmocka_unit_test(places_and_alignments_of_the_host_program_are_checked),
      cmocka_unit_test(an_explanation_says_what_holds_what),
      cmocka_unit_test(a_runtime_without_a_model_explains_without_advice),
      cmocka_unit_test(an_error_of_memory_is_whole_in_its_text_and_in_the_log),
      cmocka_unit_test(lines_are_read_oldest_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

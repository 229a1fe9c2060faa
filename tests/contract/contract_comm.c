// Communicators: one rank, the host program's own, and what may not be said to either.
// SPDX-License-Identifier: BSD-3-Clause
#include <pthread.h>

#include "contract_help.h"

static void self_is_one_rank_and_its_collectives_change_nothing(void** state) {
  (void)state;
  zero_comm* comm = NULL;
  OK(zero_comm_create_self(&comm));
  assert_int_equal(zero_comm_rank(comm), 0);
  assert_int_equal(zero_comm_size(comm), 1);
  double values[] = {3, -4};
  for (zero_reduce op = ZERO_REDUCE_SUM; op <= ZERO_REDUCE_MIN; op++) {
    OK(zero_comm_all_reduce(comm, values, 2, op));
  }
  OK(zero_comm_broadcast(comm, values, sizeof values, 0));
  OK(zero_comm_barrier(comm));
  assert_true(values[0] == 3 && values[1] == -4);
  BAD_ARGUMENT(zero_comm_all_reduce(comm, values, 2, 0), "op", "0");
  BAD_ARGUMENT(zero_comm_all_reduce(comm, values, 2, 4), "op", "4");
  BAD_ARGUMENT(zero_comm_broadcast(comm, values, 8, 1), "rank is 1", "0 to 0");
  BAD_ARGUMENT(zero_comm_broadcast(comm, values, 8, -1), "rank is -1", "0 to 0");
  zero_comm_destroy(comm);
}

static zero_status never_called(void* user_data, int32_t channel, const void* send, void* recv,
                                uint64_t bytes_each, zero_place place, void* stream) {
  (void)user_data, (void)channel, (void)send, (void)recv, (void)bytes_each, (void)place;
  (void)stream;
  return ZERO_ERR_INTERNAL;
}

static void ranks_and_sizes_that_cannot_be_are_refused(void** state) {
  (void)state;
  zero_comm* comm = NULL;
  zero_comm_callbacks callbacks;
  zero_comm_callbacks_init(&callbacks, sizeof callbacks);
  BAD_ARGUMENT(zero_comm_create_local("g", 0, 0, 0, &comm), "size is 0", "1 or more");
  BAD_ARGUMENT(zero_comm_create_local("g", 0, -5, 0, &comm), "size is -5", "1 or more");
  BAD_ARGUMENT(zero_comm_create_local("g", -1, 2, 0, &comm), "rank is -1", "0 to 1");
  BAD_ARGUMENT(zero_comm_create_local("g", 2, 2, 0, &comm), "rank is 2", "0 to 1");
  BAD_ARGUMENT(zero_comm_create_local("g", 0, 1, -1, &comm), "timeout_ns", "-1");
  BAD_ARGUMENT(zero_comm_create_user(3, 2, &callbacks, NULL, &comm), "rank is 3", "0 to 1");
  callbacks.channels = 0;
  callbacks.all_gather = never_called;
  callbacks.all_to_all = never_called;
  BAD_ARGUMENT(zero_comm_create_user(0, 2, &callbacks, NULL, &comm), "channels", "0");
  assert_null(comm);
}

static void a_local_group_of_one_needs_nobody_else(void** state) {
  (void)state;
  zero_comm* comm = NULL;
  OK(zero_comm_create_local("contract-alone", 0, 1, 1000000000, &comm));
  assert_int_equal(zero_comm_size(comm), 1);
  double value = 2.5;
  OK(zero_comm_all_reduce(comm, &value, 1, ZERO_REDUCE_SUM));
  assert_true(value == 2.5);
  zero_comm_destroy(comm);
}

static void a_rank_that_never_comes_is_a_time_out_that_names_it(void** state) {
  (void)state;
  zero_comm* comm = NULL;
  REFUSED(zero_comm_create_local("contract-waits", 0, 2, 50000000, &comm), ZERO_ERR_COMM_TIMEOUT,
          "rank", "1");
  assert_null(comm);
}

static void the_config_and_the_environment_name_a_communicator(void** state) {
  (void)state;
  static const char* const names[] = {
      "RANK",     "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
      "PMI_RANK", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
  zero_comm* comm = NULL;
  zero_config* config = config_of("{}");
  OK(zero_comm_create_from_config(config, &comm));
  assert_int_equal(zero_comm_size(comm), 1);
  zero_comm_destroy(comm);
  comm = NULL;
  OK(zero_config_set(config, "libzero.comm", "\"nccl\""));
  REFUSED(zero_comm_create_from_config(config, &comm), ZERO_ERR_UNSUPPORTED, "nccl", "build");
  assert_null(comm);
  zero_config_destroy(config);
}

static void an_aborted_communicator_answers_aborted_from_then_on(void** state) {
  (void)state;
  zero_comm* comm = NULL;
  OK(zero_comm_create_self(&comm));
  zero_comm_abort(comm);
  double value = 1;
  REFUSED(zero_comm_barrier(comm), ZERO_ERR_COMM_ABORTED, "abort", "");
  REFUSED(zero_comm_all_reduce(comm, &value, 1, ZERO_REDUCE_MAX), ZERO_ERR_COMM_ABORTED, "abort",
          "");
  zero_comm_destroy(comm);
}

// Two ranks in two threads, who read each other's memory.
struct pair {
  pthread_barrier_t meeting;
  const char* shown[2];
  int broken; // 1: says why, 2: only a status
  int destroyed;
};
struct member {
  struct pair* pair;
  int32_t rank;
  zero_status seen;
  char message[200];
};

static zero_status all_gather(void* user_data, int32_t channel, const void* send, void* recv,
                              uint64_t bytes_each, zero_place place, void* stream) {
  (void)place, (void)stream;
  struct member* me = user_data;
  assert_int_equal(channel, 0);
  if (me->pair->broken == 1) zero_set_last_error(ZERO_ERR_USER, "the cable of rack 7 is loose");
  if (me->pair->broken) return ZERO_ERR_USER;
  me->pair->shown[me->rank] = send;
  pthread_barrier_wait(&me->pair->meeting);
  for (uint64_t r = 0; r < 2; r++) {
    memmove((char*)recv + r * bytes_each, me->pair->shown[r], bytes_each);
  }
  pthread_barrier_wait(&me->pair->meeting);
  return ZERO_OK;
}

static zero_status all_to_all(void* user_data, int32_t channel, const void* send, void* recv,
                              uint64_t bytes_each, zero_place place, void* stream) {
  (void)channel, (void)place, (void)stream;
  struct member* me = user_data;
  me->pair->shown[me->rank] = send;
  pthread_barrier_wait(&me->pair->meeting);
  for (uint64_t r = 0; r < 2; r++) {
    memmove((char*)recv + r * bytes_each, me->pair->shown[r] + (uint64_t)me->rank * bytes_each,
            bytes_each);
  }
  pthread_barrier_wait(&me->pair->meeting);
  return ZERO_OK;
}

static void note_destroyed(void* user_data) {
  struct member* me = user_data;
  __atomic_fetch_add(&me->pair->destroyed, 1, __ATOMIC_SEQ_CST);
}

static zero_comm* pair_comm(struct member* me) {
  zero_comm_callbacks callbacks;
  zero_comm_callbacks_init(&callbacks, sizeof callbacks);
  callbacks.all_gather = all_gather;
  callbacks.all_to_all = all_to_all;
  callbacks.destroy = note_destroyed;
  zero_comm* comm = NULL;
  OK(zero_comm_create_user(me->rank, 2, &callbacks, me, &comm));
  return comm;
}

static void* add_ranks(void* user_data) {
  struct member* me = user_data;
  zero_comm* comm = pair_comm(me);
  double values[] = {me->rank + 1, -10.0 * me->rank};
  me->seen = zero_comm_all_reduce(comm, values, 2, ZERO_REDUCE_SUM);
  char text[2] = {(char)('a' + me->rank), 0};
  if (me->seen == ZERO_OK) me->seen = zero_comm_broadcast(comm, text, 2, 1);
  if (me->seen == ZERO_OK) me->seen = zero_comm_barrier(comm);
  if (values[0] != 3 || values[1] != -10 || text[0] != 'b') me->seen = ZERO_ERR_INTERNAL;
  zero_comm_destroy(comm);
  return NULL;
}

static void a_user_communicator_reduces_and_broadcasts(void** state) {
  (void)state;
  struct pair pair = {.broken = 0};
  struct member members[] = {{&pair, 0, -1, ""}, {&pair, 1, -1, ""}};
  pthread_barrier_init(&pair.meeting, NULL, 2);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, add_ranks, &members[1]), 0);
  add_ranks(&members[0]);
  pthread_join(thread, NULL);
  assert_int_equal(members[0].seen, ZERO_OK);
  assert_int_equal(members[1].seen, ZERO_OK);
  assert_int_equal(pair.destroyed, 2);
  pthread_barrier_destroy(&pair.meeting);
}

static void a_callback_s_status_and_words_come_back_as_they_are(void** state) {
  (void)state;
  for (int broken = 1; broken <= 2; broken++) {
    struct pair pair = {.broken = broken};
    struct member me = {&pair, 0, -1, ""};
    zero_comm* comm = pair_comm(&me);
    REFUSED(zero_comm_barrier(comm), ZERO_ERR_USER,
            broken == 1 ? "the cable of rack 7 is loose" : "all_gather", "");
    zero_error_info info;
    zero_error_info_init(&info, sizeof info);
    OK(zero_last_error(&info));
    assert_string_equal(info.origin, "callback");
    if (broken == 2) assert_null(strstr(info.message, "cable"));
    zero_comm_destroy(comm);
    assert_int_equal(pair.destroyed, 1);
  }
}

static void one_communicator_serves_one_runtime_at_a_time(void** state) {
  (void)state;
  zero_config* config = config_of("{}");
  zero_init_options options = init_options();
  OK(zero_comm_create_self(&options.comm));
  zero_runtime* runtime = NULL;
  zero_runtime* second = NULL;
  OK(zero_init(config, &options, &runtime));
  BAD_STATE(zero_init(config, &options, &second), "options->comm", "one communicator for each");
  zero_init_options borrowed = init_options();
  borrowed.comm = zero_runtime_comm(runtime);
  BAD_STATE(zero_init(config, &borrowed, &second), "options->comm", "already serves");
  assert_null(second);
  zero_runtime_destroy(runtime);
  OK(zero_init(config, &options, &second));
  zero_runtime_destroy(second);
  zero_comm_destroy(options.comm);
  zero_config_destroy(config);
}

static void overlap_that_the_communicator_cannot_give_is_a_conflict(void** state) {
  (void)state;
  struct pair pair = {.broken = 0};
  struct member me = {&pair, 0, -1, ""};
  zero_config* config = config_of("{\"zero_optimization\": {\"overlap_comm\": true}}");
  zero_init_options options = init_options();
  options.comm = pair_comm(&me); // one channel, one thread
  zero_runtime* runtime = NULL;
  REFUSED(zero_init(config, &options, &runtime), ZERO_ERR_CONFIG_CONFLICT, "overlap_comm",
          "any_thread");
  assert_null(runtime);
  // The refused one does not keep the communicator.
  OK(zero_config_set(config, "zero_optimization.overlap_comm", "false"));
  OK(zero_init(config, &options, &runtime));
  zero_runtime_destroy(runtime);
  zero_comm_destroy(options.comm);
  zero_config_destroy(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(self_is_one_rank_and_its_collectives_change_nothing),
      cmocka_unit_test(ranks_and_sizes_that_cannot_be_are_refused),
      cmocka_unit_test(a_local_group_of_one_needs_nobody_else),
      cmocka_unit_test(a_rank_that_never_comes_is_a_time_out_that_names_it),
      cmocka_unit_test(the_config_and_the_environment_name_a_communicator),
      cmocka_unit_test(an_aborted_communicator_answers_aborted_from_then_on),
      cmocka_unit_test(a_user_communicator_reduces_and_broadcasts),
      cmocka_unit_test(a_callback_s_status_and_words_come_back_as_they_are),
      cmocka_unit_test(one_communicator_serves_one_runtime_at_a_time),
      cmocka_unit_test(overlap_that_the_communicator_cannot_give_is_a_conflict),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

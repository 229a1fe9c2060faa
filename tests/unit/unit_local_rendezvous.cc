// How local ranks meet: who is missing, who comes twice, who dies meanwhile, who is a stranger.
// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "comm/fd_passing.h"
#include "comm/rendezvous_messages.h"
#include "comm/rendezvous_unix.h"
#include "local_ranks.h"

using namespace local_ranks;
using zero::comm::local_socket_name;

namespace {

struct Came {
  int32_t rank, size;
};

// Ranks that try to meet; returns how it ended for each.
std::vector<Report> meet(const std::vector<Came>& who, int64_t timeout_ns) {
  const std::string group = fresh_group();
  ReportingRanks ranks;
  for (const Came& one : who) {
    ranks.start(one.rank, [&] { join(group, one.rank, one.size, timeout_ns); });
  }
  return ranks.finish();
}

void check_all(const std::vector<Report>& reports, size_t count, zero_status status, int32_t fault,
               const std::string& words) {
  assert_int_equal(reports.size(), count);
  for (const Report& report : reports) {
    if (report.status != status) print_error("rank %d: %s\n", report.rank, report.text);
    assert_int_equal(report.status, status);
    assert_int_equal(report.fault, fault);
    assert_contains(report.text, words);
  }
}

void missing_ranks_are_named_on_all_that_came(void**) {
  check_all(meet({{0, 4}, {2, 4}}, kShort), 2, ZERO_ERR_COMM_TIMEOUT, 1,
            "ranks 1, 3 of 4 did not come within 3 s");
}

void a_missing_rank_zero_is_named(void**) {
  check_all(meet({{1, 3}, {2, 3}}, kShort), 2, ZERO_ERR_COMM_TIMEOUT, 0,
            "rank 0 did not come within 3 s");
}

void another_size_is_an_error_on_all_that_names_the_rank(void**) {
  check_all(meet({{0, 3}, {1, 3}, {2, 4}}, 20 * kSecond), 3, ZERO_ERR_COMM_MISMATCH, 2,
            "rank 2 says there are 4 ranks, rank 0 says 3");
}

void a_rank_that_comes_twice_is_an_error_on_all(void**) {
  check_all(meet({{0, 3}, {1, 3}, {1, 3}}, 20 * kSecond), 3, ZERO_ERR_COMM_MISMATCH, 1,
            "rank 1 came twice");
}

void two_ranks_zero_are_an_error_on_all(void**) {
  check_all(meet({{0, 3}, {1, 3}, {0, 3}}, 20 * kSecond), 3, ZERO_ERR_COMM_MISMATCH, 0,
            "rank 0 came twice");
}

void bad_ranks_sizes_and_time_outs_are_refused(void**) {
  struct Case {
    int32_t rank, size;
    int64_t timeout;
    const char* words;
  };
  const Case cases[] = {{0, 0, 1, "size is 0"},
                        {0, -3, 1, "size is -3"},
                        {0, 65, 1, "size is 65, expected 1 to 64"},
                        {-1, 2, 1, "rank is -1"},
                        {2, 2, 1, "rank is 2, expected 0 <= rank < 2"},
                        {0, 1, -5, "timeout_ns is -5"}};
  for (const Case& one : cases) {
    const Outcome outcome = outcome_of([&] { join("bad", one.rank, one.size, one.timeout); });
    assert_int_equal(outcome.status, ZERO_ERR_INVALID_ARGUMENT);
    assert_contains(outcome.text.c_str(), one.words);
  }
}

// Plays a rank by hand as far as its hello; returns the connection.
zero::comm::Descriptor knock(const std::string& name, zero::comm::Hello hello) {
  for (;;) {
    zero::comm::Descriptor socket = zero::comm::local_socket();
    if (zero::comm::bind_or_connect(socket.get(), name, false) == 0) {
      EXPECT(zero::comm::send_message(socket.get(), &hello, sizeof(hello)));
      return socket;
    }
    usleep(1000);
  }
}

void a_visitor_that_dies_without_a_hello_disturbs_nobody(void**) {
  const std::string group = fresh_group();
  const std::string name = local_socket_name("", group, geteuid());
  ReportingRanks ranks;
  ranks.start(0, [&] { join(group, 0, 2, 20 * kSecond); });
  const pid_t visitor = fork_rank([&] {
    const zero::comm::Descriptor socket = zero::comm::local_socket();
    while (zero::comm::bind_or_connect(socket.get(), name, false) != 0) usleep(1000);
    raise(SIGKILL);
  });
  assert_int_equal(reap(visitor), 128 + SIGKILL);
  ranks.start(1, [&] { join(group, 1, 2, 20 * kSecond); });
  check_all(ranks.finish(), 2, ZERO_OK, -1, "");
}

void wait_until_sockets(const std::string& name, int wanted) {
  for (int found = 0; found < wanted; usleep(1000)) {
    found = 0;
    char line[512];
    FILE* const sockets = std::fopen("/proc/net/unix", "r");
    while (std::fgets(line, sizeof(line), sockets) != nullptr)
      found += contains(line, name.substr(1));
    std::fclose(sockets);
  }
}

void a_rank_that_dies_after_its_hello_is_named_at_once(void**) {
  for (const bool child_holds_the_socket : {false, true}) {
    const std::string group = fresh_group();
    const std::string name = local_socket_name("", group, geteuid());
    ReportingRanks ranks;
    ranks.start(0, [&] { join(group, 0, 4, 3600 * kSecond); });
    ranks.start(1, [&] { join(group, 1, 4, 3600 * kSecond); });
    int grandchild[2];
    assert_int_equal(pipe2(grandchild, O_CLOEXEC), 0);
    ranks.start(2, [&] {
      const zero::comm::Hello hello = {zero::comm::kHelloMagic, zero::comm::kLocalProtocol, 2, 4,
                                       zero::comm::control_bytes(4)};
      zero::comm::Descriptor socket = zero::comm::local_socket();
      while (zero::comm::bind_or_connect(socket.get(), name, false) != 0) usleep(1000);
      const zero::comm::Descriptor self = zero::comm::own_process();
      EXPECT(zero::comm::send_message(socket.get(), &hello, sizeof(hello), self.get()));
      pollfd heard = {socket.get(), POLLIN, 0};
      poll(&heard, 1, 10000);
      const pid_t holder = child_holds_the_socket ? fork() : -1;
      if (holder == 0) {
        alarm(kLimitSeconds);
        for (;;) pause();
      }
      EXPECT(write(grandchild[1], &holder, sizeof(holder)) == sizeof(holder));
      wait_until_sockets(name, 3); // of rank 0: one to listen, two to ranks 1 and 2
      usleep(300000);
      raise(SIGKILL);
    });
    const auto reports = ranks.finish();
    pid_t holder = -1;
    assert_int_equal(read(grandchild[0], &holder, sizeof(holder)), sizeof(holder));
    if (holder > 0) kill(holder, SIGKILL);
    close(grandchild[0]);
    close(grandchild[1]);
    check_all(reports, 2, ZERO_ERR_COMM, 2, "rank 2 died while the ranks were meeting");
  }
}

void another_protocol_version_is_named(void**) {
  const std::string group = fresh_group();
  const std::string name = local_socket_name("", group, geteuid());
  ReportingRanks ranks;
  ranks.start(0, [&] { join(group, 0, 2, 20 * kSecond); });
  const auto socket =
      knock(name, {zero::comm::kHelloMagic, 99, 1, 2, zero::comm::control_bytes(2)});
  check_all(ranks.finish(), 1, ZERO_ERR_COMM_MISMATCH, 1, "protocol 99");
}

void a_stranger_that_talks_nonsense_does_not_disturb(void**) {
  const std::string group = fresh_group();
  const std::string name = local_socket_name("", group, geteuid());
  ReportingRanks ranks;
  ranks.start(0, [&] { join(group, 0, 2, 20 * kSecond); });
  const auto wrong_magic =
      knock(name, {0x1234, zero::comm::kLocalProtocol, 1, 2, zero::comm::control_bytes(2)});
  zero::comm::Descriptor garbage = zero::comm::local_socket();
  assert_int_equal(zero::comm::bind_or_connect(garbage.get(), name, false), 0);
  assert_true(zero::comm::send_message(garbage.get(), "GET / HTTP/1.0", 14));
  usleep(20000);
  ranks.start(1, [&] { join(group, 1, 2, 20 * kSecond); });
  check_all(ranks.finish(), 2, ZERO_OK, -1, "");
}

void a_socket_of_another_user_is_refused(void**) {
  if (geteuid() != 0) skip(); // only root can become somebody else
  const std::string group = fresh_group();
  const std::string name = local_socket_name("", group, 0);
  int ready[2];
  assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
  const pid_t squatter = fork_rank([&] {
    EXPECT(setuid(65534) == 0);
    const auto socket = zero::comm::local_socket();
    EXPECT(zero::comm::bind_or_connect(socket.get(), name, true) == 0);
    EXPECT(write(ready[1], "r", 1) == 1);
    for (;;) pause();
  });
  char byte;
  assert_int_equal(read(ready[0], &byte, 1), 1);
  const auto came = [&](int32_t rank) {
    ReportingRanks ranks;
    ranks.start(rank, [&] { join(group, rank, 2, 20 * kSecond); });
    return ranks.finish();
  };
  for (const int32_t rank : {0, 1}) {
    check_all(came(rank), 1, ZERO_ERR_COMM, 0, "belongs to user 65534, expected 0");
  }
  kill(squatter, SIGKILL);
  reap(squatter);
  close(ready[0]);
  close(ready[1]);
}

void a_guest_of_another_user_is_not_let_in(void**) {
  if (geteuid() != 0) skip();
  const std::string group = fresh_group();
  const std::string name = local_socket_name("", group, 0);
  ReportingRanks ranks;
  ranks.start(0, [&] { join(group, 0, 2, kSecond); });
  const pid_t guest = fork_rank([&] {
    EXPECT(setuid(65534) == 0);
    const zero::comm::Hello hello = {zero::comm::kHelloMagic, zero::comm::kLocalProtocol, 1, 2,
                                     zero::comm::control_bytes(2)};
    const auto socket = zero::comm::local_socket();
    while (zero::comm::bind_or_connect(socket.get(), name, false) != 0) usleep(1000);
    zero::comm::send_message(socket.get(), &hello, sizeof(hello)); // may be shown out before
    char byte;
    pollfd end = {socket.get(), POLLIN, 0};
    EXPECT(poll(&end, 1, 10000) == 1);
    EXPECT(recv(socket.get(), &byte, 1, 0) <= 0); // closed (or reset), nothing said
  });
  check_all(ranks.finish(), 1, ZERO_ERR_COMM_TIMEOUT, 1, "rank 1 of 2 did not come");
  assert_int_equal(reap(guest), 0);
}

void the_same_name_serves_again_and_again(void**) {
  const std::string group = fresh_group();
  run_processes(3, [&](int32_t rank) {
    std::vector<std::shared_ptr<Communicator>> all;
    for (int i = 0; i < 15; ++i) all.push_back(join(group, rank, 3));
    for (const auto& comm : all) comm->barrier(Channel::kControl, CollectiveStamp());
  });
}

void processes_and_threads_may_be_mixed(void**) {
  const std::string group = fresh_group();
  run_processes(2, [&](int32_t process) { // ranks 0, 1 here and 2, 3 there
    const auto work = [&](int32_t rank) {
      const auto comm = join(group, rank, 4);
      auto* const memory = static_cast<int32_t*>(comm->allocate_shared(4096));
      const void* views[4];
      *memory = rank;
      comm->exchange_begin(Channel::kReduce, ExchangeKind::kGather,
                           stamp_of(0, Operation::kGather, 0, 4), memory, 0, views);
      for (int32_t i = 0; i < 4; ++i) EXPECT(*static_cast<const int32_t*>(views[i]) == i);
      comm->exchange_end(Channel::kReduce);
    };
    std::thread other(work, 2 * process);
    work(2 * process + 1);
    other.join();
  });
}

void names_keep_users_jobs_and_groups_apart_and_always_fit(void**) {
  const size_t most = sizeof(sockaddr_un{}.sun_path) - 1;
  const std::string a(300, 'a');
  const std::string names[] = {local_socket_name("ab", "c", 1),   local_socket_name("a", "bc", 1),
                               local_socket_name("ab", "c", 2),   local_socket_name("", "c", 1),
                               local_socket_name(a, "c", 1),      local_socket_name(a, "d", 1),
                               local_socket_name(a + "a", "c", 1)};
  for (const std::string& one : names) {
    assert_true(one.size() <= most);
    int same = 0;
    for (const std::string& other : names) same += one == other ? 1 : 0;
    assert_int_equal(same, 1);
  }
}

} // namespace

int main() {
  unsetenv("LIBZERO_JOB"); // names are made by hand here
  for (const char* name : {"TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE",
                           "PMI_JOBID", "SLURM_JOB_ID"}) {
    unsetenv(name);
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(missing_ranks_are_named_on_all_that_came),
      cmocka_unit_test(a_missing_rank_zero_is_named),
      cmocka_unit_test(another_size_is_an_error_on_all_that_names_the_rank),
      cmocka_unit_test(a_rank_that_comes_twice_is_an_error_on_all),
      cmocka_unit_test(two_ranks_zero_are_an_error_on_all),
      cmocka_unit_test(bad_ranks_sizes_and_time_outs_are_refused),
      cmocka_unit_test(a_visitor_that_dies_without_a_hello_disturbs_nobody),
      cmocka_unit_test(a_rank_that_dies_after_its_hello_is_named_at_once),
      cmocka_unit_test(another_protocol_version_is_named),
      cmocka_unit_test(a_stranger_that_talks_nonsense_does_not_disturb),
      cmocka_unit_test(a_socket_of_another_user_is_refused),
      cmocka_unit_test(a_guest_of_another_user_is_not_let_in),
      cmocka_unit_test(the_same_name_serves_again_and_again),
      cmocka_unit_test(processes_and_threads_may_be_mixed),
      cmocka_unit_test(names_keep_users_jobs_and_groups_apart_and_always_fit),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

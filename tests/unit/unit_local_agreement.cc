// Ranks that disagree, come late, stop, abort or leave: the same error on all, naming the one.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstring>

#include "comm/collective_stamp.h"
#include "comm/comm_failure.h"
#include "local_ranks.h"

using namespace local_ranks;

namespace {

// Names a bucket as an engine would.
class Namer : public zero::comm::StampNamer {
 public:
  std::string describe(const CollectiveStamp& stamp) const override {
    return std::string(zero::comm::operation_name(stamp.operation)) + " of bucket " +
           std::to_string(stamp.bucket) + " (h." + std::to_string(stamp.bucket) + ".weight)";
  }
};

void exchange(Communicator& comm, Channel channel, const CollectiveStamp& stamp, void* memory,
              ExchangeKind kind = ExchangeKind::kGather) {
  const void* views[8];
  comm.exchange_begin(channel, kind, stamp, memory, stamp.bytes, views);
  comm.exchange_end(channel);
}

void a_difference_in_any_field_names_the_rank_and_both_stamps(void**) {
  const CollectiveStamp right = stamp_of(17, Operation::kReduceScatter, 3, 64);
  struct Case {
    CollectiveStamp wrong;
    const char* words;
  };
  std::vector<Case> cases(5, Case{right, ""});
  cases[0].wrong.sequence = 18;
  cases[0].words = "sequence number 18 against 17";
  cases[1].wrong.operation = Operation::kGather;
  cases[1].words = "operation all-gather of shards against reduce-scatter";
  cases[2].wrong.bucket = 4;
  cases[2].words = "bucket or root 4 against 3";
  cases[3].wrong.bytes = 128;
  cases[3].words = "bytes 128 against 64";
  cases[4].wrong.detail = 9;
  cases[4].words = "detail 9 against 0";
  for (const Case& one : cases) {
    for (const int32_t odd : {0, 1, 2}) {
      const std::string group = fresh_group();
      ReportingRanks ranks;
      for (int32_t rank = 0; rank < 3; ++rank) {
        ranks.start(rank, [&, rank] {
          const Namer namer;
          const auto comm = join(group, rank, 3);
          comm->set_namer(&namer);
          void* const memory = comm->allocate_shared(4096);
          exchange(*comm, Channel::kReduce, rank == odd ? one.wrong : right, memory);
        });
      }
      const auto reports = ranks.finish();
      assert_int_equal(reports.size(), 3);
      for (const Report& report : reports) {
        assert_int_equal(report.status, ZERO_ERR_COMM_MISMATCH);
        assert_int_equal(report.fault, odd);
        assert_contains(report.text, one.words);
        assert_contains(report.text,
                        "rank " + std::to_string(odd) + " is in " + Namer().describe(one.wrong));
        assert_contains(report.text, "is in " + Namer().describe(right));
      }
    }
  }
}

void scatter_against_gather_is_a_mismatch(void**) {
  const std::string group = fresh_group();
  ReportingRanks ranks;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.start(rank, [&, rank] {
      const auto comm = join(group, rank, 2);
      exchange(*comm, Channel::kReduce, stamp_of(1, Operation::kGather, 0, 8),
               comm->allocate_shared(4096),
               rank == 0 ? ExchangeKind::kScatter : ExchangeKind::kGather);
    });
  }
  const auto reports = ranks.finish();
  assert_int_equal(reports.size(), 2);
  for (const Report& report : reports) {
    assert_int_equal(report.status, ZERO_ERR_COMM_MISMATCH);
  }
}

// Rank 0 waits on one channel for what rank 1 does on another: without announcements both would
// sleep until the time-out.
void an_announcement_finds_a_difference_across_channels(void**) {
  const std::string group = fresh_group();
  ReportingRanks ranks;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.start(rank, [&, rank] {
      const Namer namer;
      const auto comm = join(group, rank, 2, 3600 * kSecond);
      comm->set_namer(&namer);
      void* const memory = comm->allocate_shared(4096);
      for (uint64_t i = 0; i < 2000; ++i) { // more than the ring holds
        const auto same = stamp_of(i, Operation::kGather, 1, 8);
        comm->announce(same);
        exchange(*comm, Channel::kGather, same, memory);
      }
      const auto stamp = rank == 0 ? stamp_of(2000, Operation::kReduceScatter, 5, 8)
                                   : stamp_of(2000, Operation::kGather, 6, 8);
      comm->announce(stamp);
      exchange(*comm, rank == 0 ? Channel::kReduce : Channel::kGather, stamp, memory);
    });
  }
  const auto reports = ranks.finish();
  assert_int_equal(reports.size(), 2);
  for (const Report& report : reports) {
    assert_int_equal(report.status, ZERO_ERR_COMM_MISMATCH);
    assert_int_equal(report.fault, 1);
    assert_contains(report.text, "rank 1 is in all-gather of shards of bucket 6 (h.6.weight)");
    assert_contains(report.text, "rank 0 is in reduce-scatter of bucket 5 (h.5.weight)");
  }
}

void equal_announcements_from_ranks_far_apart_are_no_mismatch(void**) {
  const std::string group = fresh_group();
  run_threads(2, [&](int32_t rank) {
    const auto comm = join(group, rank, 2);
    for (uint64_t i = 0; i < 5000; ++i) {
      comm->announce(stamp_of(i, Operation::kGather, static_cast<int32_t>(i % 7), i));
    }
    comm->barrier(Channel::kControl, CollectiveStamp());
  });
}

// A second runtime on the same communicator counts from 0 again.
void a_new_sequence_is_not_compared_with_the_one_before(void**) {
  const std::string group = fresh_group();
  run_threads(2, [&](int32_t rank) {
    const Namer first, second;
    const auto comm = join(group, rank, 2);
    comm->set_namer(&first);
    comm->barrier(Channel::kControl, CollectiveStamp());
    for (uint64_t i = 0; i < 9; ++i) comm->announce(stamp_of(i, Operation::kReduceScatter, 0, 8));
    comm->barrier(Channel::kControl, CollectiveStamp());
    comm->set_namer(nullptr);
    comm->set_namer(&second);
    comm->barrier(Channel::kControl, CollectiveStamp());
    for (uint64_t i = 0; i < 9; ++i) comm->announce(stamp_of(i, Operation::kGather, 1, 16));
    comm->barrier(Channel::kControl, CollectiveStamp());
  });
}

void a_rank_that_does_not_come_is_a_time_out_that_says_what_it_is_in(void**) {
  const std::string group = fresh_group();
  ReportingRanks ranks;
  for (int32_t rank = 0; rank < 3; ++rank) {
    ranks.start(rank, [&, rank] {
      const auto comm = join(group, rank, 3, kShort);
      void* const memory = comm->allocate_shared(4096);
      exchange(*comm, Channel::kReduce, stamp_of(0, Operation::kReduceScatter, 8, 8), memory);
      if (rank == 1) { // computes for ever
        while (outcome_of([&] { comm->check(); }).status == ZERO_OK) usleep(1000);
        comm->check();
      }
      exchange(*comm, Channel::kReduce, stamp_of(1, Operation::kReduceScatter, 9, 8), memory);
    });
  }
  const auto reports = ranks.finish();
  assert_int_equal(reports.size(), 3);
  for (const Report& report : reports) {
    assert_int_equal(report.status, ZERO_ERR_COMM_TIMEOUT);
    assert_int_equal(report.fault, 1);
    assert_contains(report.text, "rank 1 is alive but made no progress for 3 s");
    assert_contains(report.text, "has done reduce-scatter of bucket 8 and not begun the next");
    if (report.rank == 1) continue;
    assert_contains(report.text,
                    "rank " + std::to_string(report.rank) + " was in reduce-scatter of bucket 9");
  }
}

// Rank 2 waits on one channel for rank 0, which waits on another for rank 1: that one is to blame.
void a_time_out_follows_the_chain_to_the_rank_that_is_waited_for(void**) {
  const std::string group = fresh_group();
  ReportingRanks ranks;
  for (int32_t rank = 0; rank < 3; ++rank) {
    ranks.start(rank, [&, rank] {
      // Only rank 2 gives up soon.
      const auto comm = join(group, rank, 3, rank == 2 ? kShort : 3600 * kSecond);
      void* const memory = comm->allocate_shared(4096);
      if (rank == 1) {
        while (outcome_of([&] { comm->check(); }).status == ZERO_OK) usleep(1000);
        comm->check();
      }
      exchange(*comm, rank == 0 ? Channel::kGather : Channel::kReduce,
               stamp_of(0, Operation::kGather, 2, 8), memory);
    });
  }
  const auto reports = ranks.finish();
  assert_int_equal(reports.size(), 3);
  for (const Report& report : reports) {
    assert_int_equal(report.status, ZERO_ERR_COMM_TIMEOUT);
    assert_int_equal(report.fault, 1);
    assert_contains(report.text, "while rank 2 waited");
  }
}

void a_chain_that_ends_at_a_slow_but_busy_rank_is_waited_for(void**) {
  const std::string group = fresh_group();
  run_processes(3, [&](int32_t rank) {
    const auto comm = join(group, rank, 3, rank == 2 ? kShort : 3600 * kSecond);
    void* const memory = comm->allocate_shared(4096);
    const auto gather = [&] {
      exchange(*comm, Channel::kGather, stamp_of(0, Operation::kGather, 0, 8), memory);
    };
    std::thread other;
    if (rank == 2) other = std::thread(gather); // both at once
    if (rank == 1) {
      for (uint64_t i = 0; i < 35; ++i) {
        usleep(100000);
        comm->announce(stamp_of(i, Operation::kReduceScatter, 0, 8));
      }
    }
    if (rank != 2) gather();
    exchange(*comm, Channel::kReduce, stamp_of(1, Operation::kGather, 1, 8), memory);
    if (other.joinable()) other.join();
  });
}

void a_slow_rank_that_makes_progress_is_waited_for(void**) {
  const std::string group = fresh_group();
  run_processes(2, [&](int32_t rank) {
    const auto comm = join(group, rank, 2, kShort);
    void* const memory = comm->allocate_shared(4096);
    if (rank == 1) {
      for (uint64_t i = 0; i < 35; ++i) { // 3.5 s in all, never 3 s in silence
        usleep(100000);
        comm->announce(stamp_of(i, Operation::kReduceScatter, 0, 8));
      }
    }
    exchange(*comm, Channel::kReduce, stamp_of(0, Operation::kReduceScatter, 0, 8), memory);
  });
}

void an_abort_from_another_thread_unblocks_every_rank(void**) {
  const std::string group = fresh_group();
  ReportingRanks ranks;
  for (int32_t rank = 0; rank < 3; ++rank) {
    ranks.start(rank, [&, rank] {
      const auto comm = join(group, rank, 3, 3600 * kSecond);
      void* const memory = comm->allocate_shared(4096);
      std::thread aborter;
      if (rank == 2) {
        aborter = std::thread([&] {
          usleep(50000);
          comm->abort();
        });
      }
      // Each waits on a channel of its own, for ever.
      const Outcome outcome = outcome_of([&] {
        exchange(*comm, static_cast<Channel>(rank), stamp_of(0, Operation::kGather, 4, 8), memory);
      });
      if (aborter.joinable()) aborter.join();
      EXPECT(outcome_of([&] { comm->check(); }).status == ZERO_ERR_COMM_ABORTED);
      throw zero::Error(outcome.status, outcome.text, outcome.rank);
    });
  }
  const auto reports = ranks.finish();
  assert_int_equal(reports.size(), 3);
  for (const Report& report : reports) {
    assert_int_equal(report.status, ZERO_ERR_COMM_ABORTED);
    assert_int_equal(report.fault, 2);
    assert_contains(report.text, "aborted by rank 2");
    assert_contains(report.text, "was in all-gather of shards of bucket 4");
  }
}

void a_rank_that_left_disturbs_only_who_waits_for_it(void**) {
  for (const bool destroy : {false, true}) {
    const std::string group = fresh_group();
    ReportingRanks ranks;
    for (int32_t rank = 0; rank < 3; ++rank) {
      ranks.start(rank, [&, rank] {
        auto comm = join(group, rank, 3, 3600 * kSecond);
        void* const memory = comm->allocate_shared(4096);
        exchange(*comm, Channel::kReduce, stamp_of(0, Operation::kGather, 0, 8), memory);
        if (rank == 1) {
          if (destroy) return comm.reset(); // its process ends as well
          comm->leave();
          usleep(300000);
          return;
        }
        for (int i = 0; i < 100; ++i) { // rank 1 is gone by now, in good order
          comm->check();
          usleep(1000);
        }
        exchange(*comm, Channel::kReduce, stamp_of(1, Operation::kGather, 1, 8), memory);
      });
    }
    const auto reports = ranks.finish();
    assert_int_equal(reports.size(), 3);
    for (const Report& report : reports) {
      if (report.rank == 1) {
        assert_int_equal(report.status, ZERO_OK);
        continue;
      }
      assert_int_equal(report.status, ZERO_ERR_COMM_ABORTED);
      assert_int_equal(report.fault, 1);
      assert_contains(report.text, "rank 1 has closed its communicator");
    }
  }
}

void a_send_outside_of_shared_memory_is_refused_before_it_begins(void**) {
  const std::string group = fresh_group();
  run_threads(2, [&](int32_t rank) {
    const auto comm = join(group, rank, 2);
    auto* const memory = static_cast<char*>(comm->allocate_shared(4096));
    char elsewhere[8];
    const auto stamp = stamp_of(0, Operation::kGather, 0, 8);
    EXPECT(outcome_of([&] { exchange(*comm, Channel::kReduce, stamp, elsewhere); }).status ==
           ZERO_ERR_INTERNAL);
    EXPECT(outcome_of([&] { exchange(*comm, Channel::kReduce, stamp, memory + 4089); }).status ==
           ZERO_ERR_INTERNAL);
    exchange(*comm, Channel::kReduce, stamp, memory + 4088); // and nothing is broken
  });
}

void memory_that_one_rank_cannot_have_is_an_error_on_all(void**) {
  const std::string group = fresh_group();
  run_threads(2, [&](int32_t rank) {
    const auto comm = join(group, rank, 2);
    const Outcome outcome =
        outcome_of([&] { comm->allocate_shared(rank == 0 ? 4096 : UINT64_C(1) << 50); });
    EXPECT(outcome.status == ZERO_ERR_OUT_OF_MEMORY);
    EXPECT(contains(outcome.text, "shared memory"));
    comm->barrier(Channel::kControl, CollectiveStamp()); // nothing is broken
  });
}

// ---- the parts, one by one --------------------------------------------------------------------

void of_two_failures_the_first_stays(void**) {
  zero::comm::FailureRecord record = {};
  assert_false(zero::comm::has_failure(record));
  zero::comm::Failure first, second;
  first.status = ZERO_ERR_COMM;
  first.rank = 3;
  first.text = std::string(5000, 'x');
  second.status = ZERO_ERR_COMM_ABORTED;
  assert_true(zero::comm::post_failure(record, 0, first));
  assert_false(zero::comm::post_failure(record, 1, second));
  const auto found = zero::comm::read_failure(record);
  assert_int_equal(found.status, ZERO_ERR_COMM);
  assert_int_equal(found.rank, 3);
  assert_int_equal(found.text.size(), zero::comm::FailureRecord::kTextBytes - 1);
}

void a_reporter_that_died_half_way_is_itself_named(void**) {
  zero::comm::FailureRecord record = {};
  record.state = 2 + 5; // rank 5 is writing
  const auto found = zero::comm::read_failure(record);
  assert_int_equal(found.status, ZERO_ERR_COMM);
  assert_int_equal(found.rank, 5);
}

void the_watch_expires_only_without_progress(void**) {
  zero::comm::ProgressWatch watch(100, 7, 1000);
  assert_false(watch.expired(7, 1099));
  assert_true(watch.expired(7, 1100));
  assert_false(watch.expired(8, 1100));
  assert_false(watch.expired(8, 1199));
  assert_true(watch.expired(8, 1200));
}

void the_odd_rank_is_in_the_minority_and_at_a_tie_the_later(void**) {
  const CollectiveStamp a = stamp_of(0, Operation::kGather, 0, 1);
  const CollectiveStamp b = stamp_of(0, Operation::kGather, 1, 1);
  int32_t reference = -1;
  const CollectiveStamp first[] = {b, a, a};
  assert_int_equal(zero::comm::odd_rank_out(first, 3, &reference), 0);
  assert_int_equal(reference, 1);
  const CollectiveStamp tie[] = {a, b, b, a};
  assert_int_equal(zero::comm::odd_rank_out(tie, 4, &reference), 1);
  assert_int_equal(reference, 0);
  const CollectiveStamp none[] = {a, a};
  assert_int_equal(zero::comm::odd_rank_out(none, 2, &reference), -1);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_difference_in_any_field_names_the_rank_and_both_stamps),
      cmocka_unit_test(scatter_against_gather_is_a_mismatch),
      cmocka_unit_test(an_announcement_finds_a_difference_across_channels),
      cmocka_unit_test(equal_announcements_from_ranks_far_apart_are_no_mismatch),
      cmocka_unit_test(a_new_sequence_is_not_compared_with_the_one_before),
      cmocka_unit_test(a_rank_that_does_not_come_is_a_time_out_that_says_what_it_is_in),
      cmocka_unit_test(a_time_out_follows_the_chain_to_the_rank_that_is_waited_for),
      cmocka_unit_test(a_chain_that_ends_at_a_slow_but_busy_rank_is_waited_for),
      cmocka_unit_test(a_slow_rank_that_makes_progress_is_waited_for),
      cmocka_unit_test(an_abort_from_another_thread_unblocks_every_rank),
      cmocka_unit_test(a_rank_that_left_disturbs_only_who_waits_for_it),
      cmocka_unit_test(a_send_outside_of_shared_memory_is_refused_before_it_begins),
      cmocka_unit_test(memory_that_one_rank_cannot_have_is_an_error_on_all),
      cmocka_unit_test(of_two_failures_the_first_stays),
      cmocka_unit_test(a_reporter_that_died_half_way_is_itself_named),
      cmocka_unit_test(the_watch_expires_only_without_progress),
      cmocka_unit_test(the_odd_rank_is_in_the_minority_and_at_a_tie_the_later),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

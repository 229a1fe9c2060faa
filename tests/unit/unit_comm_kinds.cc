// The communicators that are not local - self and the host program's own - and the choice.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "comm/streaming_copy.h"
#include "comm/user_comm.h"
#include "local_ranks.h"

using namespace local_ranks;

namespace {

void self_yields_what_it_was_given(void**) {
  const auto comm = zero::comm::make_self();
  assert_int_equal(comm->kind(), ZERO_COMM_SELF);
  assert_int_equal(comm->rank(), 0);
  assert_int_equal(comm->size(), 1);
  assert_int_equal(comm->local_size(), 1);
  assert_int_equal(comm->usable_channels(), 3);
  assert_string_equal(comm->overlap_refusal().c_str(), "");
  assert_false(comm->needs_shared_memory());
  assert_int_equal(comm->staging_bytes(), 0);
  assert_true(comm->largest_block() == UINT64_MAX);
  float send[4] = {1, 2, 3, 4};
  const void* view = nullptr;
  for (const ExchangeKind kind : {ExchangeKind::kScatter, ExchangeKind::kGather}) {
    comm->exchange_begin(Channel::kReduce, kind, stamp_of(0, Operation::kReduceScatter, 0, 16),
                         send, 16, &view);
    assert_ptr_equal(view, send);
    comm->exchange_end(Channel::kReduce);
  }
  int64_t count = 42;
  comm->all_reduce_int64(Channel::kControl, {}, &count, 1);
  assert_int_equal(count, 42);
  double value = -2.5;
  comm->all_reduce_double(Channel::kControl, {}, &value, 1, ZERO_REDUCE_SUM);
  assert_true(value == -2.5);
  comm->broadcast(Channel::kControl, {}, &count, sizeof(count), 0);
  assert_int_equal(count, 42);
  int64_t copy = 0;
  comm->all_gather(Channel::kControl, {}, &count, &copy, sizeof(count));
  assert_int_equal(copy, 42);
  const Outcome outcome =
      outcome_of([&] { comm->broadcast(Channel::kControl, {}, &count, sizeof(count), 1); });
  assert_int_equal(outcome.status, ZERO_ERR_INVALID_ARGUMENT);
  assert_contains(outcome.text.c_str(), "root is 1");
}

void an_aborted_self_stays_aborted(void**) {
  const auto comm = zero::comm::make_self();
  comm->check();
  comm->abort();
  assert_int_equal(outcome_of([&] { comm->check(); }).status, ZERO_ERR_COMM_ABORTED);
  assert_int_equal(outcome_of([&] { comm->barrier(Channel::kControl, {}); }).status,
                   ZERO_ERR_COMM_ABORTED);
}

// ---- a host program's transport among threads: a board and a barrier a channel ----------------

struct Board {
  explicit Board(size_t ranks) : sends(ranks) {}
  void meet() {
    std::unique_lock<std::mutex> lock(mutex);
    const uint64_t mine = generation;
    if (++waiting == sends.size()) {
      waiting = 0;
      ++generation;
      changed.notify_all();
    } else {
      changed.wait(lock, [&] { return generation != mine; });
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<const void*> sends;
  size_t waiting = 0;
  uint64_t generation = 0;
};

struct Host {
  Board* boards; // a channel
  size_t rank;
  zero_status status = ZERO_OK; // what the callbacks return
  int calls = 0;
  int last_channel = -1;
  int aborts = 0;
  int destroys = 0;
  uint64_t largest = 0;
};

zero_status move_bytes(void* user_data, int32_t channel, const void* send, void* recv,
                       uint64_t bytes, bool to_all) {
  auto& host = *static_cast<Host*>(user_data);
  ++host.calls;
  host.last_channel = channel;
  host.largest = std::max(host.largest, bytes);
  if (host.status != ZERO_OK) return host.status;
  Board& board = host.boards[channel];
  board.sends[host.rank] = send;
  board.meet();
  for (size_t i = 0; i < board.sends.size(); ++i) {
    std::memcpy(static_cast<char*>(recv) + i * bytes,
                static_cast<const char*>(board.sends[i]) + (to_all ? host.rank * bytes : 0), bytes);
  }
  board.meet();
  return ZERO_OK;
}

zero_comm_callbacks callbacks_of(int32_t channels, int32_t any_thread) {
  zero_comm_callbacks callbacks = {};
  callbacks.struct_size = sizeof(callbacks);
  callbacks.channels = channels;
  callbacks.any_thread = any_thread;
  callbacks.all_gather = [](void* user_data, int32_t channel, const void* send, void* recv,
                            uint64_t bytes, zero_place place, void* stream) {
    if (place != ZERO_PLACE_HOST || stream != nullptr) return zero_status{ZERO_ERR_INTERNAL};
    return move_bytes(user_data, channel, send, recv, bytes, false);
  };
  callbacks.all_to_all = [](void* user_data, int32_t channel, const void* send, void* recv,
                            uint64_t bytes, zero_place place, void* stream) {
    if (place != ZERO_PLACE_HOST || stream != nullptr) return zero_status{ZERO_ERR_INTERNAL};
    return move_bytes(user_data, channel, send, recv, bytes, true);
  };
  callbacks.abort = [](void* user_data) { ++static_cast<Host*>(user_data)->aborts; };
  callbacks.destroy = [](void* user_data) { ++static_cast<Host*>(user_data)->destroys; };
  return callbacks;
}

void callbacks_carry_scatters_gathers_and_small_collectives(void**) {
  for (const size_t size : {1, 2, 3, 5}) {
    run_threads(1, [&](int32_t) {
      Board channels[3] = {Board(size), Board(size), Board(size)};
      const auto work = [&](size_t rank) {
        Host host = {channels, rank};
        auto comm = zero::comm::make_user(static_cast<int32_t>(rank), static_cast<int32_t>(size),
                                          callbacks_of(3, 1), &host);
        EXPECT(comm->kind() == ZERO_COMM_USER && comm->usable_channels() == 3);
        EXPECT(comm->overlap_refusal().empty() && !comm->needs_shared_memory());
        for (const uint64_t stride : {5, 9}) { // packed, and with gaps
          std::vector<int64_t> send(size * stride);
          for (size_t to = 0; to < size; ++to) {
            for (size_t k = 0; k < 5; ++k) {
              send[to * stride + k] = static_cast<int64_t>(rank * 100 + to * 10 + k);
            }
          }
          std::vector<const void*> views(size);
          comm->exchange_begin(Channel::kReduce, ExchangeKind::kScatter,
                               stamp_of(0, Operation::kReduceScatter, 0, 40), send.data(),
                               stride * 8, views.data());
          EXPECT(host.last_channel == 1);
          for (size_t from = 0; from < size; ++from) {
            for (size_t k = 0; k < 5; ++k) {
              EXPECT(static_cast<const int64_t*>(views[from])[k] ==
                     static_cast<int64_t>(from * 100 + rank * 10 + k));
            }
          }
          comm->exchange_end(Channel::kReduce);
        }
        { // a rank that has nothing to send contributes zeros
          std::vector<const void*> views(size);
          const int64_t ones[5] = {1, 1, 1, 1, 1};
          comm->exchange_begin(Channel::kReduce, ExchangeKind::kScatter,
                               stamp_of(0, Operation::kReduceScatter, 0, 8),
                               rank == 0 ? nullptr : ones, 8, views.data());
          for (size_t from = 0; from < size; ++from) {
            EXPECT(*static_cast<const int64_t*>(views[from]) == (from == 0 ? 0 : 1));
          }
          comm->exchange_end(Channel::kReduce);
        }
        const uint64_t count = 600001; // more than one piece of 4 MiB
        std::vector<int64_t> mine(count), all(size * count);
        for (uint64_t k = 0; k < count; ++k) mine[k] = static_cast<int64_t>(k * 7 + rank);
        comm->all_gather(Channel::kGather, {}, mine.data(), all.data(), count * 8);
        EXPECT(host.last_channel == 2);
        for (size_t from = 0; from < size; ++from) {
          for (uint64_t k = 0; k < count; k += 997) {
            EXPECT(all[from * count + k] == static_cast<int64_t>(k * 7 + from));
          }
        }
        const auto root = static_cast<int32_t>(size - 1);
        comm->broadcast(Channel::kControl, {}, mine.data(), count * 8, root);
        for (uint64_t k = 0; k < count; k += 997) {
          EXPECT(mine[k] == static_cast<int64_t>(k * 7 + size - 1));
        }
        int64_t sum = static_cast<int64_t>(rank) + 1;
        comm->all_reduce_int64(Channel::kControl, {}, &sum, 1);
        EXPECT(sum == static_cast<int64_t>(size * (size + 1) / 2));
        comm->barrier(Channel::kControl, {});
        // The two halves of the staging hold size blocks each, 4 MiB at most.
        EXPECT(host.largest <= comm->largest_block());
        EXPECT(comm->largest_block() * size <= UINT64_C(4) << 20);
        EXPECT(comm->staging_bytes() ==
               zero::comm::staging_bytes_for(ZERO_COMM_USER, static_cast<int32_t>(size)));
        comm.reset();
        EXPECT(host.destroys == 1);
      };
      std::vector<std::thread> others;
      for (size_t rank = 1; rank < size; ++rank) others.emplace_back(work, rank);
      work(0);
      for (std::thread& other : others) other.join();
    });
  }
}

void a_callbacks_status_comes_back_as_it_is(void**) {
  Board boards[3] = {Board(1), Board(1), Board(1)};
  for (const bool words : {false, true}) {
    Host host = {boards, 0};
    const auto comm = zero::comm::make_user(0, 1, callbacks_of(3, 1), &host);
    comm->barrier(Channel::kControl, {});
    host.status = ZERO_ERR_USER + 7;
    zero::comm::set_callback_message_source(
        words ? +[] { return std::string("MPI_Alltoall said no"); } : nullptr);
    const Outcome outcome = outcome_of([&] { comm->barrier(Channel::kControl, {}); });
    assert_int_equal(outcome.status, ZERO_ERR_USER + 7);
    assert_string_equal(outcome.origin.c_str(), "callback");
    assert_contains(outcome.text.c_str(), words ? "MPI_Alltoall said no" : "all_gather callback");
    // Half-done is done: nothing is called any more.
    host.status = ZERO_OK;
    const int calls = host.calls;
    assert_int_equal(outcome_of([&] { comm->barrier(Channel::kControl, {}); }).status,
                     ZERO_ERR_USER + 7);
    assert_int_equal(host.calls, calls);
    zero::comm::set_callback_message_source(nullptr);
  }
}

void an_abort_reaches_the_host_programs_callback(void**) {
  Board boards[3] = {Board(1), Board(1), Board(1)};
  Host host = {boards, 0};
  const auto comm = zero::comm::make_user(0, 1, callbacks_of(3, 1), &host);
  comm->abort();
  assert_int_equal(host.aborts, 1);
  assert_int_equal(outcome_of([&] { comm->check(); }).status, ZERO_ERR_COMM_ABORTED);
}

void without_three_channels_or_any_thread_overlap_is_refused(void**) {
  Board boards[3] = {Board(1), Board(1), Board(1)};
  Host host = {boards, 0};
  const auto two = zero::comm::make_user(0, 1, callbacks_of(2, 1), &host);
  assert_int_equal(two->usable_channels(), 2);
  assert_contains(two->overlap_refusal().c_str(), "have 2 channels, overlap needs 3");
  const auto one_thread = zero::comm::make_user(0, 1, callbacks_of(3, 0), &host);
  assert_int_equal(one_thread->usable_channels(), 1);
  assert_contains(one_thread->overlap_refusal().c_str(), "any_thread");
  // All three sequences still work, on the channels that exist.
  int64_t value = 5;
  for (const Channel channel : {Channel::kControl, Channel::kReduce, Channel::kGather}) {
    two->all_reduce_int64(channel, {}, &value, 1);
    assert_int_equal(host.last_channel, std::min(static_cast<int>(channel), 1));
  }
  assert_int_equal(value, 5);
}

void incomplete_callbacks_are_refused(void**) {
  const auto refusal = [](int32_t rank, int32_t size, const zero_comm_callbacks& callbacks) {
    const Outcome outcome =
        outcome_of([&] { zero::comm::make_user(rank, size, callbacks, nullptr); });
    assert_int_equal(outcome.status, ZERO_ERR_INVALID_ARGUMENT);
    return outcome.text;
  };
  zero_comm_callbacks callbacks = callbacks_of(3, 1);
  callbacks.destroy = nullptr;
  assert_contains(refusal(0, 0, callbacks).c_str(), "size is 0");
  assert_contains(refusal(2, 2, callbacks).c_str(), "rank is 2");
  assert_contains(refusal(-1, 2, callbacks).c_str(), "rank is -1");
  callbacks.channels = 0;
  assert_contains(refusal(0, 1, callbacks).c_str(), "channels is 0");
  callbacks = callbacks_of(3, 1);
  callbacks.all_gather = nullptr;
  assert_contains(refusal(0, 1, callbacks).c_str(), "all_gather is NULL");
  callbacks = callbacks_of(3, 1);
  callbacks.all_to_all = nullptr;
  assert_contains(refusal(0, 1, callbacks).c_str(), "all_to_all is NULL");
}

void streaming_copies_of_any_place_and_length_are_exact(void**) {
  const size_t most = 300001;
  std::vector<unsigned char> from(most + 200), to(most + 200);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 131 + i / 251);
  for (const size_t length : {size_t{0}, size_t{1}, size_t{100}, size_t{262144}, most}) {
    for (const size_t shift : {0, 1, 63, 64, 65}) {
      std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xa5));
      zero::comm::copy_streaming(to.data() + shift, from.data() + 7, length);
      assert_memory_equal(to.data() + shift, from.data() + 7, length);
      for (size_t i = 0; i < shift; ++i) assert_int_equal(to[i], 0xa5);
      for (size_t i = shift + length; i < to.size(); ++i) assert_int_equal(to[i], 0xa5);
    }
  }
}

void staging_is_known_without_a_communicator(void**) {
  assert_int_equal(zero::comm::staging_bytes_for(ZERO_COMM_SELF, 1), 0);
  const auto local = join(fresh_group(), 0, 1);
  assert_int_equal(zero::comm::staging_bytes_for(ZERO_COMM_LOCAL, 1), local->staging_bytes());
  // 3 channels of 4 MiB to send and 4 MiB to receive, whole blocks of a multiple of 256 bytes.
  assert_int_equal(zero::comm::staging_bytes_for(ZERO_COMM_USER, 4), 24 << 20);
  assert_int_equal(zero::comm::user_block_bytes(3) % 256, 0);
  assert_true(zero::comm::user_block_bytes(3) > (4 << 20) / 3 - 256);
}

// ---- the choice ---------------------------------------------------------------------------------

void clear_environment() {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) {
    unsetenv(name);
  }
}

Outcome choose(const char* name) {
  return outcome_of([&] { zero::comm::make_from_environment(name, "", kSecond); });
}

void one_rank_chooses_self_and_several_here_choose_local(void**) {
  clear_environment();
  for (const char* name : {"", "auto", "self"}) {
    assert_int_equal(zero::comm::make_from_environment(name, "", kSecond)->kind(), ZERO_COMM_SELF);
  }
  assert_int_equal(zero::comm::make_from_environment("local", fresh_group(), kSecond)->kind(),
                   ZERO_COMM_LOCAL);
  run_processes(2, [&](int32_t rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    for (const char* name : {"auto", "local"}) {
      const auto comm = zero::comm::make_from_environment(name, "", 30 * kSecond);
      EXPECT(comm->kind() == ZERO_COMM_LOCAL && comm->rank() == rank && comm->size() == 2);
      comm->barrier(Channel::kControl, {});
    }
  });
}

void what_cannot_be_is_refused_with_the_reason(void**) {
  clear_environment();
  setenv("RANK", "3", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_RANK", "1", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  Outcome outcome = choose("auto");
  assert_int_equal(outcome.status, ZERO_ERR_UNSUPPORTED);
  assert_contains(outcome.text.c_str(), "gloo or nccl");
  assert_contains(outcome.text.c_str(), "4 ranks, 2 of them on this machine");
  outcome = choose("local");
  assert_int_equal(outcome.status, ZERO_ERR_CONFIG_CONFLICT);
  assert_contains(outcome.text.c_str(), "local serves ranks of one machine");
  outcome = choose("self");
  assert_int_equal(outcome.status, ZERO_ERR_CONFIG_CONFLICT);
  assert_contains(outcome.text.c_str(), "self serves one rank");
  outcome = choose("gloo");
  assert_int_equal(outcome.status, ZERO_ERR_UNSUPPORTED);
  outcome = choose("mpi");
  assert_int_equal(outcome.status, ZERO_ERR_CONFIG_VALUE);
  assert_contains(outcome.text.c_str(), "\"mpi\" is unknown, expected auto, self, local");
  clear_environment();
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(self_yields_what_it_was_given),
      cmocka_unit_test(an_aborted_self_stays_aborted),
      cmocka_unit_test(callbacks_carry_scatters_gathers_and_small_collectives),
      cmocka_unit_test(a_callbacks_status_comes_back_as_it_is),
      cmocka_unit_test(an_abort_reaches_the_host_programs_callback),
      cmocka_unit_test(without_three_channels_or_any_thread_overlap_is_refused),
      cmocka_unit_test(incomplete_callbacks_are_refused),
      cmocka_unit_test(streaming_copies_of_any_place_and_length_are_exact),
      cmocka_unit_test(staging_is_known_without_a_communicator),
      cmocka_unit_test(one_rank_chooses_self_and_several_here_choose_local),
      cmocka_unit_test(what_cannot_be_is_refused_with_the_reason),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

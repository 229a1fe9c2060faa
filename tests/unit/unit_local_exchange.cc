// Exchanges between local ranks: what arrives, in which order, from processes and from threads.
// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>

#include <cstring>

#include "local_ranks.h"

using namespace local_ranks;

namespace {

using Runner = void (*)(int32_t, const std::function<void(int32_t)>&);
constexpr Runner kRunners[] = {run_processes, run_threads};

// Element k of what rank `from` sends to rank `to` in round `round`; exact in fp32.
float pattern(int32_t from, int32_t to, int round, uint64_t k) {
  return static_cast<float>(from * 65536 + to * 4096 + (round % 64) * 32) +
         static_cast<float>(k % 31);
}

// A scatter then a gather, several rounds, in one region.
void exchange_rounds(Communicator& comm, int rounds, uint64_t count) {
  const int32_t size = comm.size(), rank = comm.rank();
  const uint64_t bytes = count * sizeof(float);
  const uint64_t stride = bytes + 128;
  const auto blocks = static_cast<uint64_t>(size);
  auto* const memory = static_cast<char*>(comm.allocate_shared(blocks * stride));
  for (uint64_t i = 0; i < blocks * stride; ++i) EXPECT(memory[i] == 0);
  std::vector<const void*> views(blocks);
  for (int round = 0; round < rounds; ++round) {
    const auto sequence = static_cast<uint64_t>(round);
    for (int32_t to = 0; to < size; ++to) {
      auto* const block = reinterpret_cast<float*>(memory + static_cast<uint64_t>(to) * stride);
      for (uint64_t k = 0; k < count; ++k) block[k] = pattern(rank, to, round, k);
    }
    comm.exchange_begin(Channel::kReduce, ExchangeKind::kScatter,
                        stamp_of(2 * sequence, Operation::kReduceScatter, round, bytes), memory,
                        stride, views.data());
    for (int32_t from = 0; from < size; ++from) {
      const auto* const view = static_cast<const float*>(views[static_cast<size_t>(from)]);
      for (uint64_t k = 0; k < count; ++k) EXPECT(view[k] == pattern(from, rank, round, k));
    }
    comm.exchange_end(Channel::kReduce);

    auto* const own = reinterpret_cast<float*>(memory + 128);
    for (uint64_t k = 0; k < count; ++k) own[k] = pattern(rank, 15, round, k);
    comm.exchange_begin(Channel::kGather, ExchangeKind::kGather,
                        stamp_of(2 * sequence + 1, Operation::kGather, round, bytes), own, 0,
                        views.data());
    for (int32_t from = 0; from < size; ++from) {
      const auto* const view = static_cast<const float*>(views[static_cast<size_t>(from)]);
      for (uint64_t k = 0; k < count; ++k) EXPECT(view[k] == pattern(from, 15, round, k));
    }
    comm.exchange_end(Channel::kGather);
  }
  comm.release_shared(memory);
}

void blocks_arrive_in_rank_order_at_one_to_eight_ranks(void**) {
  for (const Runner run : kRunners) {
    for (int32_t size = 1; size <= 8; ++size) {
      const std::string group = fresh_group();
      run(size, [&](int32_t rank) {
        const auto comm = join(group, rank, size);
        EXPECT(comm->rank() == rank && comm->size() == size && comm->local_size() == size);
        exchange_rounds(*comm, 20, 33);
      });
    }
  }
}

void a_second_region_and_different_sizes_a_rank_are_found(void**) {
  for (const Runner run : kRunners) {
    const std::string group = fresh_group();
    run(3, [&](int32_t rank) {
      const auto comm = join(group, rank, 3);
      const uint64_t mine = rank == 0 ? 100000 : rank == 1 ? 0 : 8;
      auto* const first = static_cast<char*>(comm->allocate_shared(mine));
      auto* const second = static_cast<char*>(comm->allocate_shared(64));
      EXPECT(reinterpret_cast<uintptr_t>(first) % 4096 == 0);
      EXPECT(reinterpret_cast<uintptr_t>(second) % 4096 == 0);
      // Ranks may send from different regions and places.
      char* const send = rank == 0 ? first + 99992 : rank == 1 ? second + 8 : first;
      std::memset(send, 'a' + rank, 8);
      const void* views[3];
      comm->exchange_begin(Channel::kControl, ExchangeKind::kGather,
                           stamp_of(0, Operation::kGather, 0, 8), send, 0, views);
      for (int32_t from = 0; from < 3; ++from) {
        for (int k = 0; k < 8; ++k) {
          EXPECT(static_cast<const char*>(views[from])[k] == static_cast<char>('a' + from));
        }
      }
      comm->exchange_end(Channel::kControl);
    });
  }
}

void a_rank_without_a_send_contributes_a_null_view(void**) {
  for (const Runner run : kRunners) {
    const std::string group = fresh_group();
    run(3, [&](int32_t rank) {
      const auto comm = join(group, rank, 3);
      auto* const memory = static_cast<int64_t*>(comm->allocate_shared(4096));
      for (int64_t i = 0; i < 3; ++i) memory[i] = 10 * rank + i;
      for (int32_t without = 0; without < 3; ++without) {
        const void* views[3];
        comm->exchange_begin(Channel::kReduce, ExchangeKind::kScatter,
                             stamp_of(0, Operation::kReduceScatter, without, 8),
                             rank == without ? nullptr : memory, 8, views);
        for (int32_t i = 0; i < 3; ++i) {
          EXPECT((views[i] == nullptr) == (i == without));
          EXPECT(i == without || *static_cast<const int64_t*>(views[i]) == 10 * i + rank);
        }
        comm->exchange_end(Channel::kReduce);
      }
    });
  }
}

// Sizes about those of huge pages; the pages are there before anybody touches them.
void fresh_memory_is_whole_zero_and_present(void**) {
  const std::string group = fresh_group();
  constexpr uint64_t kMiB = UINT64_C(1) << 20;
  run_processes(2, [&](int32_t rank) {
    const auto comm = join(group, rank, 2);
    for (const uint64_t base : {2 * kMiB - 4096, 2 * kMiB, 3 * kMiB, 5 * kMiB + 4096}) {
      const uint64_t bytes = base + (rank == 0 ? 4096 * 3 : 1);
      auto* const memory = static_cast<char*>(comm->allocate_shared(bytes));
      std::vector<unsigned char> present((bytes + 4095) / 4096);
      EXPECT(mincore(memory, bytes, present.data()) == 0);
      for (const unsigned char page : present) EXPECT((page & 1) == 1);
      for (uint64_t i = 0; i < bytes; ++i) EXPECT(memory[i] == 0);
      std::memset(memory, 'a' + rank, bytes);
      const void* views[2];
      comm->exchange_begin(Channel::kReduce, ExchangeKind::kGather,
                           stamp_of(base, Operation::kGather, 0, base), memory, 0, views);
      for (int32_t from = 0; from < 2; ++from) {
        const auto* const view = static_cast<const char*>(views[from]);
        for (uint64_t i = 0; i < base; ++i) EXPECT(view[i] == 'a' + from);
      }
      comm->exchange_end(Channel::kReduce);
      comm->release_shared(memory);
    }
  });
}

// ThreadSanitizer recognises a race only where both sides use one address.
void ranks_of_one_process_share_one_mapping(void**) {
  const std::string group = fresh_group();
  run_threads(2, [&](int32_t rank) {
    const auto comm = join(group, rank, 2);
    auto* const memory = static_cast<uintptr_t*>(comm->allocate_shared(4096));
    *memory = reinterpret_cast<uintptr_t>(memory);
    const void* views[2];
    comm->exchange_begin(Channel::kReduce, ExchangeKind::kGather,
                         stamp_of(0, Operation::kGather, 0, sizeof(*memory)), memory, 0, views);
    for (const void* const view : views) {
      EXPECT(*static_cast<const uintptr_t*>(view) == reinterpret_cast<uintptr_t>(view));
    }
    comm->exchange_end(Channel::kReduce);
  });
}

void two_channels_run_at_once_from_two_threads_each(void**) {
  for (const Runner run : kRunners) {
    const std::string group = fresh_group();
    run(2, [&](int32_t rank) {
      const auto comm = join(group, rank, 2);
      auto* const memory = static_cast<uint64_t*>(comm->allocate_shared(2 * 4096));
      const auto work = [&](Channel channel, uint64_t* mine) {
        const void* views[2];
        for (uint64_t i = 0; i < 3000; ++i) {
          mine[0] = i * 2 + static_cast<uint64_t>(rank);
          mine[1] = i * 7 + static_cast<uint64_t>(rank);
          comm->exchange_begin(channel, ExchangeKind::kScatter,
                               stamp_of(i, Operation::kReduceScatter, 0, 8), mine, 8, views);
          for (uint64_t from = 0; from < 2; ++from) {
            EXPECT(*static_cast<const uint64_t*>(views[from]) == i * (rank == 0 ? 2 : 7) + from);
          }
          comm->exchange_end(channel);
        }
      };
      std::thread other(work, Channel::kGather, memory + 512);
      work(Channel::kReduce, memory);
      other.join();
    });
  }
}

void memory_grows_on_one_channel_while_another_is_busy(void**) {
  for (const Runner run : kRunners) {
    const std::string group = fresh_group();
    run(2, [&](int32_t rank) {
      const auto comm = join(group, rank, 2);
      auto* const memory = static_cast<uint64_t*>(comm->allocate_shared(4096));
      std::thread busy([&] {
        const void* views[2];
        for (uint64_t i = 0; i < 500; ++i) {
          *memory = i;
          comm->exchange_begin(Channel::kReduce, ExchangeKind::kGather,
                               stamp_of(i, Operation::kGather, 0, 8), memory, 0, views);
          EXPECT(*static_cast<const uint64_t*>(views[1 - rank]) == i);
          comm->exchange_end(Channel::kReduce);
        }
      });
      for (uint64_t i = 1; i <= 30; ++i) {
        void* const more = comm->allocate_shared(i * 5000);
        std::memset(more, 1, i * 5000);
        if (i % 2 == 0) comm->release_shared(more);
      }
      busy.join();
    });
  }
}

void small_collectives_of_any_length_are_right(void**) {
  for (const Runner run : kRunners) {
    const std::string group = fresh_group();
    run(3, [&](int32_t rank) {
      const auto comm = join(group, rank, 3);
      uint64_t sequence = 0;
      for (const uint64_t count : {1, 7, 4096, 4097, 8192, 20001}) {
        const auto stamp = stamp_of(sequence++, Operation::kAllGather, -1, 0);
        std::vector<int64_t> mine(count), all(3 * count);
        for (uint64_t k = 0; k < count; ++k) mine[k] = static_cast<int64_t>(k) * 3 + rank;
        comm->all_gather(Channel::kControl, stamp, mine.data(), all.data(), count * 8);
        for (uint64_t i = 0; i < 3 * count; ++i) {
          EXPECT(all[i] == static_cast<int64_t>((i % count) * 3 + i / count));
        }
        comm->all_reduce_int64(Channel::kControl, stamp, mine.data(), count);
        for (uint64_t k = 0; k < count; ++k) EXPECT(mine[k] == static_cast<int64_t>(k) * 9 + 3);
        std::vector<int64_t> sent(count, rank == 2 ? 41 + static_cast<int64_t>(count) : -1);
        comm->broadcast(Channel::kControl, stamp, sent.data(), count * 8, 2);
        for (const int64_t value : sent) EXPECT(value == 41 + static_cast<int64_t>(count));
        comm->barrier(Channel::kControl, stamp);
      }
    });
  }
}

void doubles_are_reduced_in_rank_order(void**) {
  const std::string group = fresh_group();
  run_threads(3, [&](int32_t rank) {
    const auto comm = join(group, rank, 3);
    const auto stamp = stamp_of(0, Operation::kAllReduce, -1, 0);
    // (1e16 + 1) - 1e16 is 0 or 2 in doubles; only the order 0, 1, 2 gives 0.
    const double parts[3] = {1e16, 1.0, -1e16};
    double sum = parts[rank];
    comm->all_reduce_double(Channel::kControl, stamp, &sum, 1, ZERO_REDUCE_SUM);
    EXPECT(sum == 0.0);
    double most = rank == 1 ? 5.5 : -2.0 - rank;
    comm->all_reduce_double(Channel::kControl, stamp, &most, 1, ZERO_REDUCE_MAX);
    EXPECT(most == 5.5);
    double least = rank == 2 ? -7.25 : rank;
    comm->all_reduce_double(Channel::kControl, stamp, &least, 1, ZERO_REDUCE_MIN);
    EXPECT(least == -7.25);
    const Outcome outcome =
        outcome_of([&] { comm->all_reduce_double(Channel::kControl, stamp, &sum, 1, 9); });
    EXPECT(outcome.status == ZERO_ERR_INVALID_ARGUMENT && contains(outcome.text, "op is 9"));
  });
}

void nothing_is_left_behind_and_no_descriptor_leaks(void**) {
  run_threads(1, [&](int32_t) {
    const int before = count_descriptors();
    for (int i = 0; i < 10; ++i) {
      const std::string group = "leak-" + std::to_string(getpid());
      std::thread peer([&] {
        const auto comm = join(group, 1, 2);
        comm->allocate_shared(1 << 20);
        comm->barrier(Channel::kControl, CollectiveStamp());
      });
      {
        const auto comm = join(group, 0, 2);
        comm->allocate_shared(1);
        comm->barrier(Channel::kControl, CollectiveStamp());
      }
      peer.join();
    }
    EXPECT(count_descriptors() == before);
    FILE* const maps = std::fopen("/proc/self/maps", "r");
    char line[512];
    while (std::fgets(line, sizeof(line), maps) != nullptr) {
      EXPECT(!contains(line, "memfd:libzero"));
    }
    std::fclose(maps);
    FILE* const sockets = std::fopen("/proc/net/unix", "r");
    while (std::fgets(line, sizeof(line), sockets) != nullptr) {
      EXPECT(!contains(line, "leak-" + std::to_string(getpid())));
    }
    std::fclose(sockets);
  });
}

std::vector<std::string> names_in(const char* folder, const std::string& word) {
  std::vector<std::string> names;
  DIR* const open = opendir(folder);
  while (const dirent* const entry = open != nullptr ? readdir(open) : nullptr) {
    if (contains(entry->d_name, word)) names.push_back(entry->d_name);
  }
  if (open != nullptr) closedir(open);
  return names;
}

void no_file_appears_in_shared_memory_or_the_temporary_folder(void**) {
  const std::string group = fresh_group();
  std::vector<pid_t> ranks;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(fork_rank([&] {
      const auto comm = join(group, rank, 2);
      comm->allocate_shared(4096);
      EXPECT(names_in("/dev/shm", group).empty() && names_in("/tmp", group).empty());
      comm->barrier(Channel::kControl, CollectiveStamp());
      raise(SIGKILL); // nobody cleans up
    }));
  }
  for (const pid_t rank : ranks) assert_int_equal(reap(rank), 128 + SIGKILL);
  assert_true(names_in("/dev/shm", group).empty() && names_in("/tmp", group).empty());
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(blocks_arrive_in_rank_order_at_one_to_eight_ranks),
      cmocka_unit_test(a_second_region_and_different_sizes_a_rank_are_found),
      cmocka_unit_test(a_rank_without_a_send_contributes_a_null_view),
      cmocka_unit_test(fresh_memory_is_whole_zero_and_present),
      cmocka_unit_test(ranks_of_one_process_share_one_mapping),
      cmocka_unit_test(two_channels_run_at_once_from_two_threads_each),
      cmocka_unit_test(memory_grows_on_one_channel_while_another_is_busy),
      cmocka_unit_test(small_collectives_of_any_length_are_right),
      cmocka_unit_test(doubles_are_reduced_in_rank_order),
      cmocka_unit_test(nothing_is_left_behind_and_no_descriptor_leaks),
      cmocka_unit_test(no_file_appears_in_shared_memory_or_the_temporary_folder),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// A communicator of the host program's own, for thread ranks: bytes through common memory.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <barrier>
#include <cstring>
#include <memory>
#include <vector>

namespace thread_comm {

constexpr int32_t kChannels = 3;

struct Channel {
  explicit Channel(int32_t size) : gate(size), pointers(static_cast<size_t>(size)) {}
  std::barrier<> gate;
  std::vector<const char*> pointers; // what each rank sends
};

// One for all ranks of a group.
struct Group {
  explicit Group(int32_t ranks) : size(ranks) {
    for (int32_t c = 0; c < kChannels; ++c) channels.push_back(std::make_unique<Channel>(ranks));
  }
  int32_t size;
  std::vector<std::unique_ptr<Channel>> channels;
};

struct Rank {
  std::shared_ptr<Group> group;
  int32_t rank;
};

inline zero_status move(Rank* self, int32_t channel, const void* send, void* recv,
                        uint64_t bytes_each, bool all_to_all) {
  Channel& shared = *self->group->channels[static_cast<size_t>(channel)];
  shared.pointers[static_cast<size_t>(self->rank)] = static_cast<const char*>(send);
  shared.gate.arrive_and_wait();
  for (int32_t r = 0; r < self->group->size; ++r) {
    const char* from = shared.pointers[static_cast<size_t>(r)];
    if (all_to_all) from += static_cast<uint64_t>(self->rank) * bytes_each;
    char* to = static_cast<char*>(recv) + static_cast<uint64_t>(r) * bytes_each;
    if (to != from) std::memcpy(to, from, bytes_each);
  }
  shared.gate.arrive_and_wait();
  return ZERO_OK;
}

inline zero_status all_gather(void* user_data, int32_t channel, const void* send, void* recv,
                              uint64_t bytes_each, zero_place, void*) {
  return move(static_cast<Rank*>(user_data), channel, send, recv, bytes_each, false);
}

inline zero_status all_to_all(void* user_data, int32_t channel, const void* send, void* recv,
                              uint64_t bytes_each, zero_place, void*) {
  return move(static_cast<Rank*>(user_data), channel, send, recv, bytes_each, true);
}

inline zero_comm* make(const std::shared_ptr<Group>& group, int32_t rank, bool overlap) {
  zero_comm_callbacks callbacks;
  zero_comm_callbacks_init(&callbacks, sizeof(callbacks));
  callbacks.any_thread = overlap ? 1 : 0;
  callbacks.channels = overlap ? kChannels : 1;
  callbacks.all_gather = &all_gather;
  callbacks.all_to_all = &all_to_all;
  callbacks.destroy = [](void* user_data) { delete static_cast<Rank*>(user_data); };
  zero_comm* comm = nullptr;
  const zero_status status =
      zero_comm_create_user(rank, group->size, &callbacks, new Rank{group, rank}, &comm);
  return status == ZERO_OK ? comm : nullptr;
}

} // namespace thread_comm

// The NCCL communicator of libzero, over the emulated NCCL found by LIBZERO_NCCL_PATH.
// SPDX-License-Identifier: BSD-3-Clause
#include "device_ranks.h"

#include <cuda_runtime.h>

#include <cstring>

#include "comm/nccl_comm.h"
#include "device/cuda_plugin.h"

namespace {

using namespace device_ranks;
using zero::device::StreamScope;

zero::comm::NcclOptions options(bool rank_order) {
  zero::comm::NcclOptions made;
  made.rank_order = rank_order;
  made.segment_bytes = kSegment;
  made.timeout_ns = 30 * kSecond;
  return made;
}

std::shared_ptr<Communicator> moving(std::shared_ptr<Communicator> host, Device& device) {
  return zero::comm::make_nccl(std::move(host), device, options(true));
}

std::shared_ptr<Communicator> adding(std::shared_ptr<Communicator> host, Device& device) {
  return zero::comm::make_nccl(std::move(host), device, options(false));
}

void every_rank_sees_its_block_of_every_rank(void**) {
  assert_int_equal(failures_of(moving, scatter), 0);
}

void every_rank_sees_every_block(void**) {
  assert_int_equal(failures_of(adding, gather), 0);
}

void a_broadcast_needs_the_roots_block_alone(void**) {
  assert_int_equal(failures_of(adding, broadcast), 0);
}

void numbers_on_the_device_are_summed(void**) {
  assert_int_equal(failures_of(adding, sums), 0);
}

// ---- sums of NCCL's own
// ------------------------------------------------------------------------------

void scatter_sums(Rank& rank) {
  constexpr uint64_t kCount = 512;
  EXPECT(rank.comm->sums());
  uint64_t sequence = 1;
  for (const uint64_t stride : {kCount, kCount + 64, uint64_t{0}}) { // 0: rank 1 brings nothing
    std::vector<float> values(kRanks * (kCount + 64), 1e30f);
    const uint64_t apart = stride == 0 ? kCount : stride;
    for (uint64_t to = 0; to < kRanks; ++to) {
      for (uint64_t i = 0; i < kCount; ++i) {
        values[to * apart + i] =
            static_cast<float>(100 * (rank.comm->rank() + 1)) + static_cast<float>(to);
      }
    }
    auto* const send = static_cast<float*>(rank.device->allocate(values.size() * sizeof(float)));
    rank.device->copy(send, values.data(), values.size() * sizeof(float));
    rank.device->synchronize();
    CollectiveStamp stamp =
        device_stamp(sequence++, Operation::kReduceScatter, kCount * sizeof(float), 3);
    stamp.dtype = ZERO_DTYPE_FP32;
    const void* views[kRanks];
    const bool nothing = stride == 0 && rank.comm->rank() == 1;
    rank.comm->exchange_begin(Channel::kReduce, ExchangeKind::kScatter, stamp,
                              nothing ? nullptr : send, apart * sizeof(float), views);
    EXPECT(views[0] != nullptr && views[1] == nullptr && views[2] == nullptr);
    std::vector<float> came(kCount);
    rank.device->copy(came.data(), views[0], kCount * sizeof(float));
    rank.device->synchronize();
    rank.comm->exchange_end(Channel::kReduce);
    const float own = static_cast<float>(rank.comm->rank());
    const float expected = stride == 0 ? 400 + 2 * own : 600 + 3 * own;
    for (const float value : came) EXPECT(value == expected);
  }
}

void where_nccl_adds_there_is_one_view_with_the_sum(void**) {
  assert_int_equal(failures_of(adding, scatter_sums), 0);
}

// ---- order
// -----------------------------------------------------------------------------------------

// Nothing blocks the host: what is sent is written by the stream before, what came is read by it
// behind, and the other channel goes its own way.  Rank 0 has done it all when the others begin.
void two_streams(Rank& rank) {
  constexpr uint64_t kCount = 1000;
  cudaSetDevice(rank.device->ordinal());
  cudaStream_t streams[2];
  const Channel channels[2] = {Channel::kReduce, Channel::kGather};
  void* memory[2];
  void* kept[2];
  std::vector<uint32_t> values[2];
  for (int s = 0; s < 2; ++s) {
    cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking);
    memory[s] = rank.device->allocate(kCount * sizeof(uint32_t));
    kept[s] = rank.device->allocate(kRanks * kCount * sizeof(uint32_t));
    values[s].assign(kCount, static_cast<uint32_t>(10 * s + rank.comm->rank()));
  }
  const auto barrier = [&] {
    rank.comm->barrier(Channel::kControl, device_stamp(100, Operation::kBarrier, 0, -1));
  };
  if (rank.comm->rank() != 0) barrier();
  for (uint64_t round = 0; round < 5; ++round) {
    for (int s = 0; s < 2; ++s) {
      const StreamScope scope(streams[s]);
      rank.device->copy(memory[s], values[s].data(), kCount * sizeof(uint32_t));
      const void* views[kRanks];
      rank.comm->exchange_begin(channels[s], ExchangeKind::kGather,
                                device_stamp(2 * round + static_cast<uint64_t>(s) + 1,
                                             Operation::kGather, kCount * sizeof(uint32_t), s),
                                memory[s], 0, views);
      for (uint64_t r = 0; r < kRanks; ++r) {
        rank.device->copy(static_cast<uint32_t*>(kept[s]) + r * kCount, views[r],
                          kCount * sizeof(uint32_t));
      }
      rank.comm->exchange_end(channels[s]);
    }
  }
  if (rank.comm->rank() == 0) barrier();
  for (int s = 1; s >= 0; --s) {
    const StreamScope scope(streams[s]);
    const std::vector<uint32_t> came = rank.download(kept[s], kRanks * kCount);
    for (uint64_t r = 0; r < kRanks; ++r) {
      EXPECT(came[r * kCount] == static_cast<uint32_t>(10 * s) + r);
      EXPECT(came[r * kCount + kCount - 1] == static_cast<uint32_t>(10 * s) + r);
    }
  }
}

void exchanges_of_two_streams_block_nobody(void**) {
  assert_int_equal(failures_of(adding, two_streams), 0);
}

// ---- ends
// ------------------------------------------------------------------------------------------

zero_status status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const zero::Error& error) {
    return error.status();
  }
  return ZERO_OK;
}

void one_gather(Rank& rank, uint64_t sequence) {
  static void* const memory = rank.device->allocate(256);
  const void* views[kRanks];
  rank.comm->exchange_begin(Channel::kGather, ExchangeKind::kGather,
                            device_stamp(sequence, Operation::kGather, 256, 0), memory, 0, views);
  rank.comm->exchange_end(Channel::kGather);
}

// Rank 2 dies; the others' streams hang in NCCL until the watch ends them, with the rank's name.
void a_death(Rank& rank) {
  one_gather(rank, 1);
  rank.device->synchronize();
  if (rank.comm->rank() != 2) one_gather(rank, 2);
  rank.comm->barrier(Channel::kControl, device_stamp(3, Operation::kBarrier, 0, -1));
  if (rank.comm->rank() == 2) _exit(0);
  status_of([&] { rank.device->synchronize(); });
  zero_status status = ZERO_OK;
  int32_t dead = -1;
  for (int i = 0; i < 2000 && status == ZERO_OK; ++i) {
    try {
      rank.comm->check();
      usleep(5000);
    } catch (const zero::Error& error) {
      status = error.status();
      dead = error.rank();
    }
  }
  EXPECT(status == ZERO_ERR_COMM);
  EXPECT(dead == 2);
  EXPECT(status_of([&] { one_gather(rank, 4); }) == ZERO_ERR_COMM);
}

void a_dead_rank_ends_what_waits_for_it_and_is_named(void**) {
  assert_int_equal(failures_of(adding, a_death), 0);
}

void an_abort(Rank& rank) {
  one_gather(rank, 1);
  rank.device->synchronize();
  if (rank.comm->rank() != 0) one_gather(rank, 2);
  rank.comm->barrier(Channel::kControl, device_stamp(3, Operation::kBarrier, 0, -1));
  if (rank.comm->rank() == 0) {
    rank.comm->abort();
  } else {
    status_of([&] { rank.device->synchronize(); });
  }
  zero_status status = ZERO_OK;
  for (int i = 0; i < 2000 && status == ZERO_OK; ++i) {
    status = status_of([&] { rank.comm->check(); });
    usleep(5000);
  }
  EXPECT(status == ZERO_ERR_COMM_ABORTED);
}

void an_abort_ends_it_on_every_rank(void**) {
  assert_int_equal(failures_of(adding, an_abort), 0);
}

// A live rank that does not come: the time-out names what was waited for.
void a_silence(Rank& rank) {
  one_gather(rank, 1);
  rank.device->synchronize();
  if (rank.comm->rank() == 1) {
    usleep(4000000);
    return;
  }
  one_gather(rank, 2);
  status_of([&] { rank.device->synchronize(); });
  std::string text;
  zero_status status = ZERO_OK;
  for (int i = 0; i < 2000 && status == ZERO_OK; ++i) {
    try {
      rank.comm->check();
      usleep(5000);
    } catch (const zero::Error& error) {
      status = error.status();
      text = error.what();
    }
  }
  // The first that notices tells the others by ending the host's communicator.
  EXPECT(status == ZERO_ERR_COMM_TIMEOUT || status == ZERO_ERR_COMM_ABORTED);
  if (status == ZERO_ERR_COMM_TIMEOUT) EXPECT(text.find("all-gather") != std::string::npos);
}

void a_rank_that_does_not_come_is_a_time_out(void**) {
  const auto hasty = [](std::shared_ptr<Communicator> host, Device& device) {
    zero::comm::NcclOptions made = options(false);
    made.timeout_ns = kSecond;
    return zero::comm::make_nccl(std::move(host), device, made);
  };
  assert_int_equal(failures_of(hasty, a_silence), 0);
}

// ---- which NCCL
// --------------------------------------------------------------------------------------

void no_nccl(Rank&) {}

void refused(const char* variable, const char* value, const char* words) {
  const auto maker = [&](std::shared_ptr<Communicator> host, Device& device) {
    setenv(variable, value, 1);
    std::string text;
    try {
      zero::comm::make_nccl(host, device, options(false));
    } catch (const zero::Error& error) {
      EXPECT(error.status() == ZERO_ERR_UNSUPPORTED);
      text = error.what();
    }
    if (text.find(words) == std::string::npos) std::fprintf(stderr, "said: %s\n", text.c_str());
    EXPECT(text.find(words) != std::string::npos);
    return host;
  };
  assert_int_equal(failures_of(maker, no_nccl), 0);
}

void no_nccl_and_an_old_one_each_have_a_sentence(void**) {
  refused("LIBZERO_NCCL_PATH", "/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2");
  refused("CUEMU_NCCL_VERSION", "21705", "is version 2.17.5, expected 2.18 or newer");
}

void path_and_version(Rank&) {
  const zero::comm::NcclLibrary& nccl = zero::comm::nccl_library();
  EXPECT(nccl.path.find("libemulated_nccl") != std::string::npos);
  EXPECT(nccl.version == 22809);
}

void the_librarys_path_and_version_are_known(void**) {
  assert_int_equal(failures_of(adding, path_and_version), 0);
}

// Split off from the host program's own, which goes on as before.
void a_split(Rank& rank) {
  const zero::comm::NcclLibrary& nccl = zero::comm::nccl_library();
  cudaSetDevice(rank.device->ordinal());
  zero::comm::NcclUniqueId id{};
  if (rank.comm->rank() == 0) EXPECT(nccl.get_unique_id(&id) == 0);
  rank.comm->broadcast(Channel::kControl, device_stamp(1, Operation::kBroadcast, sizeof(id), 0),
                       &id, sizeof(id), 0);
  zero::comm::NcclConfig config;
  config.blocking = 1;
  zero::comm::NcclComm own = nullptr;
  EXPECT(nccl.init_rank(&own, kRanks, id, rank.comm->rank(), &config) == 0);
  {
    zero::comm::NcclOptions made = options(false);
    made.split_from = own;
    Rank other(*rank.device, zero::comm::make_nccl(rank.comm, *rank.device, made));
    gather(other);
  }
  auto* const number = static_cast<int64_t*>(rank.device->allocate(sizeof(int64_t)));
  const int64_t one = 1;
  rank.device->copy(number, &one, sizeof(one));
  EXPECT(nccl.all_reduce(number, number, 1, zero::comm::kNcclInt64, zero::comm::kNcclSum, own,
                         zero::device::current_stream()) == 0);
  int64_t sum = 0;
  rank.device->copy(&sum, number, sizeof(sum));
  rank.device->synchronize();
  EXPECT(sum == kRanks);
  EXPECT(nccl.destroy(own) == 0);
}

std::shared_ptr<Communicator> of_the_host(std::shared_ptr<Communicator> host, Device&) {
  return host;
}

void one_is_split_off_from_the_host_programs_own(void**) {
  assert_int_equal(failures_of(of_the_host, a_split), 0);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_rank_sees_its_block_of_every_rank),
      cmocka_unit_test(every_rank_sees_every_block),
      cmocka_unit_test(a_broadcast_needs_the_roots_block_alone),
      cmocka_unit_test(numbers_on_the_device_are_summed),
      cmocka_unit_test(where_nccl_adds_there_is_one_view_with_the_sum),
      cmocka_unit_test(exchanges_of_two_streams_block_nobody),
      cmocka_unit_test(a_dead_rank_ends_what_waits_for_it_and_is_named),
      cmocka_unit_test(an_abort_ends_it_on_every_rank),
      cmocka_unit_test(a_rank_that_does_not_come_is_a_time_out),
      cmocka_unit_test(no_nccl_and_an_old_one_each_have_a_sentence),
      cmocka_unit_test(the_librarys_path_and_version_are_known),
      cmocka_unit_test(one_is_split_off_from_the_host_programs_own),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

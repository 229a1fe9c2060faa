// NCCL of the emulated machine: sums over threads and processes, order among streams, and what it
// does with ranks that call something else.
// SPDX-License-Identifier: BSD-3-Clause
#include <nccl.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}

namespace {

constexpr int kRanks = 3;
constexpr uint64_t kCount = 1000; // a rank's part

// A failed check of a rank ends the process: cmocka's would leave the other threads behind.
#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

template <typename T>
struct Array {
  Array(uint64_t n, const std::function<T(uint64_t)>& value) : count(n) {
    CHECK(cudaMalloc(&memory, count * sizeof(T)) == cudaSuccess);
    std::vector<T> values(count);
    for (uint64_t i = 0; i < count; ++i) values[i] = value(i);
    CHECK(cudaMemcpy(memory, values.data(), count * sizeof(T), cudaMemcpyHostToDevice) ==
          cudaSuccess);
  }
  ~Array() { cudaFree(memory); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  std::vector<T> values(cudaStream_t stream) const {
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    std::vector<T> got(count);
    CHECK(cudaMemcpy(got.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return got;
  }
  uint64_t count;
  void* memory = nullptr;
};

struct Rank {
  ncclComm_t comm;
  int rank;
  cudaStream_t stream, other;
};

void run_rank(int rank, int ranks, const ncclUniqueId& id,
              const std::function<void(const Rank&)>& body) {
  CHECK(cudaSetDevice(rank) == cudaSuccess);
  Rank self{nullptr, rank, nullptr, nullptr};
  CHECK(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaStreamCreateWithFlags(&self.other, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(ncclCommInitRank(&self.comm, ranks, id, rank) == ncclSuccess);
  body(self);
  CHECK(ncclCommDestroy(self.comm) == ncclSuccess);
}

void by_threads(int ranks, const std::function<void(const Rank&)>& body) {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([=, &body] { run_rank(r, ranks, id, body); });
  }
  for (std::thread& thread : threads) thread.join();
}

float value_of(int rank, uint64_t i) {
  return static_cast<float>(rank + 1) * 0.37f + static_cast<float>(i) * 1.0009765625f;
}

// The order that collective_board.h states.
float ring_sum(int owner, uint64_t i) {
  float sum = value_of((owner + 1) % kRanks, i);
  for (int hop = 1; hop < kRanks; ++hop) sum = value_of((owner + 1 + hop) % kRanks, i) + sum;
  return sum;
}

void every_collective(const Rank& self) {
  const auto mine = [&](uint64_t i) { return value_of(self.rank, i); };
  const auto nothing = [](uint64_t) { return 0.0f; };
  const Array<float> all(kCount * kRanks, mine), part(kCount, nothing);
  CHECK(ncclReduceScatter(all.memory, part.memory, kCount, ncclFloat32, ncclSum, self.comm,
                          self.stream) == ncclSuccess);
  const std::vector<float> sums = part.values(self.stream);
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<uint64_t>(self.rank) * kCount + i;
    CHECK(sums[i] == ring_sum(self.rank, at));
  }
  const Array<float> gathered(kCount * kRanks, nothing);
  CHECK(ncclAllGather(part.memory, gathered.memory, kCount, ncclFloat32, self.comm, self.stream) ==
        ncclSuccess);
  const std::vector<float> got = gathered.values(self.stream);
  for (uint64_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == ring_sum(static_cast<int>(i / kCount), i));
  }
  const Array<int64_t> limbs(
      37, [&](uint64_t i) { return static_cast<int64_t>(i) * 1000003 * (self.rank + 1); });
  CHECK(ncclAllReduce(limbs.memory, limbs.memory, 37, ncclInt64, ncclSum, self.comm, self.stream) ==
        ncclSuccess);
  CHECK(limbs.values(self.stream)[36] == INT64_C(36) * 1000003 * 6);
  // 16 bits, rounded at each hop: 1, 2 and 3 have a half more than fits, once or twice.
  const auto half = [&](uint16_t one, uint16_t tiny) {
    return Array<uint16_t>(kRanks, [=](uint64_t) { return self.rank == 0 ? one : tiny; });
  };
  const struct {
    ncclDataType_t type;
    uint16_t one, tiny, at_once; // 1, a half of its last place, and their sum rounded at the end
  } kinds[] = {{ncclBfloat16, 0x3f80, 0x3b80, 0x3f81}, {ncclFloat16, 0x3c00, 0x1000, 0x3c01}};
  for (const auto& kind : kinds) {
    const Array<uint16_t> values = half(kind.one, kind.tiny);
    const Array<uint16_t> sum(1, [](uint64_t) { return uint16_t{0}; });
    CHECK(ncclReduceScatter(values.memory, sum.memory, 1, kind.type, ncclSum, self.comm,
                            self.stream) == ncclSuccess);
    // Rank 0 comes last, second or first of the ring: 1 is added to both at once, or meets each.
    CHECK(sum.values(self.stream)[0] == (self.rank == 0 ? kind.at_once : kind.one));
  }
  // All to all.
  const Array<float> from(kRanks * 10, [&](uint64_t i) {
    return static_cast<float>(self.rank * 100) + static_cast<float>(i / 10);
  });
  const Array<float> to(kRanks * 10, nothing);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    CHECK(ncclSend(static_cast<float*>(from.memory) + r * 10, 10, ncclFloat32, r, self.comm,
                   self.stream) == ncclSuccess);
    CHECK(ncclRecv(static_cast<float*>(to.memory) + r * 10, 10, ncclFloat32, r, self.comm,
                   self.stream) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  const std::vector<float> exchanged = to.values(self.stream);
  for (int r = 0; r < kRanks; ++r) {
    CHECK(exchanged[static_cast<size_t>(r) * 10 + 9] == static_cast<float>(r * 100 + self.rank));
  }
}

// First: children may use CUDA only while this process has not.
void processes_exchange_as_threads_do(void**) {
  ncclUniqueId id;
  assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<pid_t> children;
  for (int r = 0; r < kRanks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      run_rank(r, kRanks, id, every_collective);
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

void collectives_move_and_add_in_the_stated_order(void**) {
  by_threads(kRanks, every_collective);
}

// The gradient is written on one stream and reduced on the other.
float reduced_on_another_stream(bool with_event) {
  float result = 0;
  by_threads(2, [&](const Rank& self) {
    const Array<float> gradient(kCount * 2, [](uint64_t) { return 0.0f; });
    const Array<float> written(kCount * 2, [](uint64_t) { return 1.0f; });
    const Array<float> part(kCount, [](uint64_t) { return 0.0f; });
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    CHECK(cudaMemcpyAsync(gradient.memory, written.memory, kCount * 8, cudaMemcpyDeviceToDevice,
                          self.stream) == cudaSuccess);
    CHECK(cudaEventRecord(event, self.stream) == cudaSuccess);
    if (with_event) CHECK(cudaStreamWaitEvent(self.other, event) == cudaSuccess);
    CHECK(ncclReduceScatter(gradient.memory, part.memory, kCount, ncclFloat32, ncclSum, self.comm,
                            self.other) == ncclSuccess);
    const std::vector<float> sums = part.values(self.other);
    if (self.rank == 0) result = sums[3];
  });
  return result;
}
void a_collective_behind_an_event_sees_what_was_written(void**) {
  assert_true(reduced_on_another_stream(true) == 2.0f);
}
void a_collective_on_the_wrong_stream_is_seen_in_the_numbers(void**) {
  assert_false(reduced_on_another_stream(false) == 2.0f);
}

void ranks_that_call_different_things_wait_until_they_abort(void**) {
  by_threads(2, [](const Rank& self) {
    const Array<float> in(8, [](uint64_t) { return 1.0f; }), out(16, [](uint64_t) { return 0.0f; });
    const ncclResult_t called =
        self.rank == 0
            ? ncclAllGather(in.memory, out.memory, 4, ncclFloat32, self.comm, self.stream)
            : ncclAllReduce(in.memory, out.memory, 4, ncclFloat32, ncclSum, self.comm, self.stream);
    CHECK(called == ncclSuccess);
    for (int i = 0; i < 20; ++i) CHECK(cudaStreamQuery(self.stream) == cudaErrorNotReady);
    ncclResult_t error = ncclSystemError;
    CHECK(ncclCommGetAsyncError(self.comm, &error) == ncclSuccess && error == ncclSuccess);
    CHECK(ncclCommAbort(self.comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(self.stream) == cudaSuccess);
  });
}

void a_stream_or_memory_of_elsewhere_is_refused(void**) {
  by_threads(2, [](const Rank& self) {
    const Array<float> in(8, [](uint64_t) { return 1.0f; });
    std::vector<float> host(8);
    CHECK(ncclAllReduce(host.data(), in.memory, 8, ncclFloat32, ncclSum, self.comm, self.stream) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(in.memory, in.memory, 9, ncclFloat32, ncclSum, self.comm, self.stream) ==
          ncclInvalidArgument);
    CHECK(cudaSetDevice(5) == cudaSuccess);
    CHECK(ncclAllReduce(in.memory, in.memory, 8, ncclFloat32, ncclSum, self.comm, nullptr) ==
          ncclInvalidUsage);
    CHECK(cudaSetDevice(self.rank) == cudaSuccess);
  });
}

void a_communicator_that_does_not_block_says_in_progress(void**) {
  ncclUniqueId id;
  assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  assert_int_equal(cudaSetDevice(0), cudaSuccess);
  ncclComm_t first = nullptr, second = nullptr;
  assert_int_equal(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  assert_int_equal(ncclCommGetAsyncError(first, &state), ncclSuccess);
  assert_int_equal(state, ncclInProgress);
  assert_int_equal(cudaSetDevice(1), cudaSuccess);
  assert_int_equal(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInProgress);
  ncclCommGetAsyncError(first, &state);
  assert_int_equal(state, ncclSuccess);
  ncclCommAbort(first);
  ncclCommAbort(second);
  assert_int_equal(cudaSetDevice(0), cudaSuccess);
}

void a_split_has_the_ranks_of_one_colour(void**) {
  by_threads(kRanks, [](const Rank& self) {
    ncclComm_t half = nullptr;
    CHECK(ncclCommSplit(self.comm, self.rank == 1 ? NCCL_SPLIT_NOCOLOR : 4, -self.rank, &half,
                        nullptr) == ncclSuccess);
    if (self.rank == 1) {
      CHECK(half == nullptr);
      return;
    }
    int rank = -1, count = 0;
    CHECK(ncclCommUserRank(half, &rank) == ncclSuccess && rank == (self.rank == 2 ? 0 : 1));
    CHECK(ncclCommCount(half, &count) == ncclSuccess && count == 2);
    const Array<float> value(1, [&](uint64_t) { return static_cast<float>(self.rank); });
    CHECK(ncclAllReduce(value.memory, value.memory, 1, ncclFloat32, ncclSum, half, self.stream) ==
          ncclSuccess);
    CHECK(value.values(self.stream)[0] == 2.0f);
    CHECK(ncclCommDestroy(half) == ncclSuccess);
  });
}

void collectives_are_replayed_by_a_graph(void**) {
  by_threads(2, [](const Rank& self) {
    const Array<float> value(4, [&](uint64_t) { return static_cast<float>(self.rank + 1); });
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(ncclAllReduce(value.memory, value.memory, 4, ncclFloat32, ncclSum, self.comm,
                        self.stream) == ncclSuccess);
    CHECK(cudaStreamEndCapture(self.stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
    for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, self.stream) == cudaSuccess);
    CHECK(value.values(self.stream)[2] == 12.0f);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(processes_exchange_as_threads_do),
      cmocka_unit_test(collectives_move_and_add_in_the_stated_order),
      cmocka_unit_test(a_collective_behind_an_event_sees_what_was_written),
      cmocka_unit_test(a_collective_on_the_wrong_stream_is_seen_in_the_numbers),
      cmocka_unit_test(ranks_that_call_different_things_wait_until_they_abort),
      cmocka_unit_test(a_stream_or_memory_of_elsewhere_is_refused),
      cmocka_unit_test(a_communicator_that_does_not_block_says_in_progress),
      cmocka_unit_test(a_split_has_the_ranks_of_one_colour),
      cmocka_unit_test(collectives_are_replayed_by_a_graph),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

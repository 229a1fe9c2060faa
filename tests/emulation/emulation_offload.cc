// Offload as the engine does it, on the emulated machine with the kernels themselves: sums of
// gradients written by the device into pinned memory, the host's update there, values going back on
// a stream of their own while the next bucket is updated.  The same bits as the host alone; and a
// wait that is left out is seen.
// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>

#include <vector>

#include "cuda_cases.h"

namespace {

using namespace cuda_cases;

constexpr int kBuckets = 5;
constexpr int kRanks = 2; // whose contributions are at hand
constexpr int kMicroBatches = 3;
constexpr uint64_t kCount = 4096 + 32; // of a shard
constexpr uint64_t kElements = kBuckets * kCount;

void good(cudaError_t error) {
  if (error != cudaSuccess) fail_msg("cudaError %d", error);
}

template <typename T>
class Pinned {
 public:
  explicit Pinned(uint64_t count) {
    void* memory = nullptr;
    good(cudaMallocHost(&memory, count * sizeof(T)));
    data_ = static_cast<T*>(memory);
    std::memset(memory, 0, count * sizeof(T));
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

struct Queue {
  Queue() { good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Queue() { cudaStreamDestroy(stream); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  // What comes next here comes after what is there now.
  void after(const Queue& other) {
    cudaEvent_t event = nullptr;
    good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    good(cudaEventRecord(event, other.stream));
    good(cudaStreamWaitEvent(stream, event));
    good(cudaEventDestroy(event));
  }
  cudaStream_t stream = nullptr;
};

// Gradients by micro-batch and rank, masters; drawn once.
struct Problem {
  std::vector<std::vector<float>> gradients;
  std::vector<float> masters;
  Problem() {
    Random random(5);
    const auto draw = [&random] {
      std::vector<float> values(kElements);
      for (float& value : values) {
        value =
            static_cast<float>(static_cast<int64_t>(random.below(1 << 20)) - (1 << 19)) / (1 << 18);
      }
      return values;
    };
    for (int i = 0; i < kMicroBatches * kRanks; ++i) gradients.push_back(draw());
    masters = draw();
  }
  const std::vector<float>& gradient(int micro, int rank) const {
    return gradients[static_cast<size_t>(micro * kRanks + rank)];
  }
};

AdamConstants constants(double norm) {
  AdamConstants adam{};
  adam.grad_scale = static_cast<float>(1 / (norm * kMicroBatches));
  adam.beta1 = 0.9f;
  adam.one_minus_beta1 = 0.1f;
  adam.beta2 = 0.999f;
  adam.one_minus_beta2 = 0.001f;
  adam.epsilon = 1e-8f;
  adam.step_size = 0.01f;
  adam.inverse_root_correction2 = 30;
  adam.decay_factor = 0.999f;
  adam.decoupled = true;
  return adam;
}

// Masters and states of the host, and where its gradients and 16-bit values lie.
struct Host {
  explicit Host(const Problem& problem)
      : masters(problem.masters), first(kElements), second(kElements) {}
  void update(const AdamConstants& adam, int bucket, const float* gradients, uint16_t* values) {
    const uint64_t at = static_cast<uint64_t>(bucket) * kCount;
    UpdateStreams streams;
    streams.master = masters.data() + at;
    streams.model = values + at;
    streams.model_dtype = ZERO_DTYPE_BF16;
    streams.grad = gradients + at;
    streams.state[0] = first.data() + at;
    streams.state[1] = second.data() + at;
    streams.count = kCount;
    host_kernels().adam(streams, adam);
  }
  std::vector<float> masters, first, second;
};

struct Result {
  double norm = 0;
  std::vector<float> masters, first, second;
  std::vector<uint16_t> values;
  bool operator==(const Result& other) const {
    return norm == other.norm && masters == other.masters && first == other.first &&
           second == other.second && values == other.values;
  }
};

Result on_the_host(const Problem& problem) {
  Host host(problem);
  std::vector<float> sums(kElements);
  Result result;
  result.values.resize(kElements);
  ExactSum norm;
  exact_sum_clear(&norm);
  for (int micro = 0; micro < kMicroBatches; ++micro) {
    const void* contributions[kRanks];
    for (int r = 0; r < kRanks; ++r) contributions[r] = problem.gradient(micro, r).data();
    ReduceArguments reduce;
    reduce.contributions = contributions;
    reduce.ranks = kRanks;
    reduce.accumulate = sums.data();
    reduce.scale = 1.0f / kRanks;
    reduce.add = micro > 0;
    reduce.count = kElements;
    reduce.norm = micro + 1 == kMicroBatches ? &norm : nullptr;
    host_kernels().reduce(reduce);
  }
  result.norm = exact_sum_root(norm);
  for (int b = 0; b < kBuckets; ++b) {
    host.update(constants(result.norm), b, sums.data(), result.values.data());
  }
  result.masters = host.masters;
  result.first = host.first;
  result.second = host.second;
  return result;
}

enum class Mistake { kNone, kUpdatesTooEarly, kForgetsTheReturn };

Result on_a_device(const Problem& problem, Mistake mistake) {
  Queue reduce_queue, return_queue, gather_queue;
  Host host(problem);
  const Pinned<float> sums(kElements);
  const Pinned<uint16_t> returned(kElements);
  const Pinned<ExactSum> norm_read(1);
  const DeviceValues<ExactSum> norm(ExactSum{});
  const DeviceValues<uint64_t> first_bad(kNone);
  succeeded(table().norm_clear(norm.data(), first_bad.data(), 1, reduce_queue.stream));
  std::vector<std::unique_ptr<DeviceValues<float>>> gradients;
  std::vector<std::unique_ptr<DeviceValues<const void*>>> pointers;
  for (const auto& values : problem.gradients) {
    gradients.push_back(std::make_unique<DeviceValues<float>>(values));
  }
  for (int micro = 0; micro < kMicroBatches; ++micro) {
    for (int b = 0; b < kBuckets; ++b) { // as they complete
      const uint64_t at = static_cast<uint64_t>(b) * kCount;
      std::vector<const void*> list;
      for (int r = 0; r < kRanks; ++r) {
        list.push_back(gradients[static_cast<size_t>(micro * kRanks + r)]->data() + at);
      }
      pointers.push_back(std::make_unique<DeviceValues<const void*>>(list));
      CudaReduce reduce;
      reduce.contributions = pointers.back()->data();
      reduce.ranks = kRanks;
      reduce.accumulate = sums.data() + at; // across the bus, once a micro-batch
      reduce.scale = 1.0f / kRanks;
      reduce.add = micro > 0;
      reduce.count = kCount;
      if (micro + 1 == kMicroBatches) {
        reduce.norm = norm.data();
        reduce.first_bad = first_bad.data();
      }
      succeeded(table().reduce(&reduce, reduce_queue.stream));
    }
  }
  good(cudaMemcpyAsync(norm_read.data(), norm.data(), sizeof(ExactSum), cudaMemcpyDeviceToHost,
                       reduce_queue.stream));
  if (mistake != Mistake::kUpdatesTooEarly) good(cudaStreamSynchronize(reduce_queue.stream));
  ExactSum sum = *norm_read.data();
  exact_sum_normalise(&sum);
  Result result;
  result.norm = exact_sum_root(sum);

  const DeviceValues<uint16_t> shard(std::vector<uint16_t>(kElements, 0));
  const DeviceValues<uint16_t> gathered(std::vector<uint16_t>(kElements, 0));
  const AdamConstants adam = constants(mistake == Mistake::kUpdatesTooEarly ? 1 : result.norm);
  for (int b = 0; b < kBuckets; ++b) {
    const uint64_t at = static_cast<uint64_t>(b) * kCount;
    host.update(adam, b, sums.data(), returned.data());
    good(cudaMemcpyAsync(shard.data() + at, returned.data() + at, kCount * sizeof(uint16_t),
                         cudaMemcpyHostToDevice, return_queue.stream));
    if (mistake != Mistake::kForgetsTheReturn) gather_queue.after(return_queue);
    good(cudaMemcpyAsync(gathered.data() + at, shard.data() + at, kCount * sizeof(uint16_t),
                         cudaMemcpyDeviceToDevice, gather_queue.stream));
  }
  good(cudaStreamSynchronize(gather_queue.stream));
  result.values = gathered.back();
  result.masters = host.masters;
  result.first = host.first;
  result.second = host.second;
  good(cudaDeviceSynchronize());
  return result;
}

void the_bits_are_those_of_the_host_alone(void**) {
  const Problem problem;
  assert_true(on_a_device(problem, Mistake::kNone) == on_the_host(problem));
}

void an_update_before_the_gradients_have_come_is_seen(void**) {
  const Problem problem;
  assert_false(on_a_device(problem, Mistake::kUpdatesTooEarly) == on_the_host(problem));
}

void a_gather_that_does_not_wait_for_the_return_is_seen(void**) {
  const Problem problem;
  const Result result = on_a_device(problem, Mistake::kForgetsTheReturn);
  const Result wanted = on_the_host(problem);
  assert_true(result.masters == wanted.masters);
  assert_false(result.values == wanted.values);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_bits_are_those_of_the_host_alone),
      cmocka_unit_test(an_update_before_the_gradients_have_come_is_seen),
      cmocka_unit_test(a_gather_that_does_not_wait_for_the_return_is_seen),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

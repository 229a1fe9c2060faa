// The local communicator at two rank processes against a plain loop over private memory in the
// same two processes, interleaved, medians:
//   bench_comm [MiB of a bucket] [repeats]
// One JSON object a line; value and baseline are GB/s of the bytes that must move, of both ranks.
// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/progress_watch.h"
#include "comm/streaming_copy.h"
#include "kernels/kernels.h"
#include "plain_loops.h"

namespace {

using namespace zero::comm;

constexpr int32_t kRanks = 2;

float* private_memory(uint64_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return static_cast<float*>(memory);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(std::shared_ptr<Communicator> comm, uint64_t bucket_bytes)
      : comm_(std::move(comm)), shard_bytes_(bucket_bytes / kRanks), count_(shard_bytes_ / 4) {
    shared_ = static_cast<float*>(comm_->allocate_shared(bucket_bytes));
    std::memset(shared_, 1, bucket_bytes);
    a_ = private_memory(shard_bytes_);
    b_ = private_memory(shard_bytes_);
    out_ = private_memory(shard_bytes_);
  }

  void plain() { plain_reduce(a_, b_, out_, count_); }

  void reduce_scatter() {
    const void* views[kRanks];
    comm_->exchange_begin(Channel::kReduce, ExchangeKind::kScatter,
                          stamp(Operation::kReduceScatter), shared_, shard_bytes_, views);
    zero::kernels::ReduceArguments arguments;
    arguments.contributions = views;
    arguments.ranks = kRanks;
    arguments.scale = 0.5f;
    arguments.accumulate = out_;
    arguments.count = count_;
    zero::kernels::host_kernels().reduce(arguments);
    comm_->exchange_end(Channel::kReduce);
  }

  void all_gather() {
    const uint64_t own = static_cast<uint64_t>(comm_->rank()) * count_;
    const void* views[kRanks];
    comm_->exchange_begin(Channel::kGather, ExchangeKind::kGather, stamp(Operation::kGather),
                          shared_ + own, 0, views);
    for (int32_t i = 0; i < kRanks; ++i) {
      if (i == comm_->rank()) continue;
      copy_streaming(shared_ + static_cast<uint64_t>(i) * count_, views[i], shard_bytes_);
    }
    comm_->exchange_end(Channel::kGather);
  }

  void meet() { comm_->barrier(Channel::kControl, {}); }

  // From the moment both are there until both are done.
  double seconds(void (Bench::*work)()) {
    meet();
    const int64_t start = zero::now_ns();
    (this->*work)();
    meet();
    return static_cast<double>(zero::now_ns() - start) * 1e-9;
  }

  uint64_t shard_bytes() const { return shard_bytes_; }

 private:
  CollectiveStamp stamp(Operation operation) {
    CollectiveStamp made;
    made.sequence = sequence_++;
    made.operation = operation;
    made.bytes = shard_bytes_;
    return made;
  }

  std::shared_ptr<Communicator> comm_;
  uint64_t shard_bytes_, count_;
  uint64_t sequence_ = 0;
  float* shared_;
  float *a_, *b_, *out_;
};

void print(const char* name, double value, const char* unit, double baseline, double ratio) {
  std::printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":%.4g,\"ratio\":%.3f}\n",
              name, value, unit, baseline, ratio);
}

void run(int32_t rank, const std::string& group, uint64_t bucket_bytes, int repeats) {
  Bench bench(make_local(group, rank, kRanks, 0), bucket_bytes);
  std::vector<double> plain, reduce, gather, reduce_ratio, gather_ratio, meet;
  const double moved = static_cast<double>(bench.shard_bytes()) * kRanks;
  for (int i = -2; i < repeats; ++i) {
    const double p = 3 * moved / bench.seconds(&Bench::plain);
    const double r = 3 * moved / bench.seconds(&Bench::reduce_scatter);
    const double g = 2 * moved / bench.seconds(&Bench::all_gather);
    const double m = bench.seconds(&Bench::meet) / 2;
    if (i < 0) continue; // first touches
    plain.push_back(p);
    reduce.push_back(r);
    gather.push_back(g);
    reduce_ratio.push_back(r / p);
    gather_ratio.push_back(g / p);
    meet.push_back(m);
  }
  if (rank != 0) return;
  const double floor = median(plain) / 1e9;
  print("local_reduce_scatter_2_ranks", median(reduce) / 1e9, "GB/s", floor, median(reduce_ratio));
  print("local_all_gather_2_ranks", median(gather) / 1e9, "GB/s", floor, median(gather_ratio));
  print("local_barrier_2_ranks", median(meet) * 1e6, "us", 125, 125e-6 / median(meet));
}

} // namespace

int main(int argc, char** argv) {
  const uint64_t bucket_bytes = static_cast<uint64_t>(argc > 1 ? std::atoi(argv[1]) : 64) << 20;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 21;
  const std::string group = "bench-" + std::to_string(getpid());
  const pid_t peer = fork();
  try {
    run(peer == 0 ? 1 : 0, group, bucket_bytes, repeats);
  } catch (const zero::Error& error) {
    std::fprintf(stderr, "bench_comm: %s\n", error.what());
    if (peer == 0) _exit(1);
    return 1;
  }
  if (peer == 0) _exit(0);
  int status = 0;
  waitpid(peer, &status, 0);
  return status == 0 ? 0 : 1;
}

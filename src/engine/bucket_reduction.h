// One bucket's gradients from all ranks to the owner of each shard: exchange, then the one kernel
// that adds in rank order, averages, accumulates, and takes norm and non-finite check on the way.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "engine/context.h"
#include "engine/gradient_totals.h"

namespace zero::engine {

class BucketReduction {
 public:
  explicit BucketReduction(Context& context);

  struct Job {
    const std::byte* send = nullptr; // the whole bucket; null: this rank has none of it
    bool sendable = false;
    bool add = false; // onto what earlier micro-batches brought
    bool take_norm = false; // this result is what the step will use
  };
  // On the reduce stream.
  void reduce(const comm::CollectiveStamp& stamp, const Job& job);
  // The norm of this rank's accumulated shard, where no reduction could take it.
  void take_norm(int32_t bucket);

  // This rank's accumulated shard of a bucket.
  std::byte* shard(int32_t bucket) const;
  zero_dtype shard_dtype(int32_t bucket) const;
  GradientTotals& totals() { return totals_; }
  const GradientTotals& totals() const { return totals_; }

 private:
  struct Part; // of a shard: what one thread reduces
  void reduce_range(int32_t bucket, uint64_t shard_begin, uint64_t count, const Job& job);
  static void run_part(void* context, uint64_t begin, uint64_t end, int32_t index);
  void note_non_finite(int32_t bucket, uint64_t bucket_chunk_begin);

  Context& context_;
  GradientTotals totals_;
  std::vector<const void*> views_;
  std::vector<const void*> present_; // the views that are not null
  std::vector<int32_t> present_rank_;
  std::vector<kernels::ExactSum> partial_; // by thread
  std::vector<uint64_t> first_bad_; // by thread: chunk inside the range, or kNone
  std::vector<std::vector<const void*>> part_views_; // by thread
  uint64_t range_begin_ = 0; // of the range in hand, elements from the shard's start
  std::vector<float> zeros_;
  std::vector<int64_t> backward_position_;
};

} // namespace zero::engine

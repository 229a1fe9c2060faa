// SPDX-License-Identifier: BSD-3-Clause
#include "engine/bucket_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"

namespace zero::engine {
namespace {

constexpr uint64_t kGrainElements = 64 * 1024;

float as_float(const void* values, zero_dtype dtype, uint64_t index,
               const kernels::KernelTable& kernels) {
  float value;
  const auto* start = static_cast<const std::byte*>(values) + index * dtype_bytes(dtype);
  kernels.cast(start, dtype, &value, ZERO_DTYPE_FP32, 1);
  return value;
}

} // namespace

void GradientTotals::clear() {
  kernels::exact_sum_clear(&sum);
  for (kernels::ExactSum& param : param_sums) kernels::exact_sum_clear(&param);
  first = NonFinite{};
}

struct BucketReduction::Part {
  BucketReduction* self;
  int32_t bucket;
  uint64_t shard_begin; // of the range, elements from the shard's start
  const Job* job;
};

BucketReduction::BucketReduction(Context& context)
    : context_(context),
      views_(static_cast<size_t>(context.ranks())),
      present_(static_cast<size_t>(context.ranks())),
      present_rank_(static_cast<size_t>(context.ranks())),
      partial_(static_cast<size_t>(context.device->parallel_width())),
      first_bad_(partial_.size()),
      part_views_(partial_.size(), std::vector<const void*>(static_cast<size_t>(context.ranks()))),
      zeros_(kGrainElements),
      backward_position_(context.plan->places.size(), -1) {
  if (context.settings.param_norms) totals_.param_sums.resize(context.plan->places.size());
  totals_.clear();
  int64_t position = 0;
  for (const zero_param_id param : context.plan->model.backward_order()) {
    backward_position_[static_cast<size_t>(param)] = position++;
  }
}

std::byte* BucketReduction::shard(int32_t bucket) const {
  const plan::Bucket& layout = context_.bucket(bucket);
  const ClassMemory& memory = context_.storage->of_bucket(bucket);
  const uint64_t size = dtype_bytes(shard_dtype(bucket));
  if (memory.extra != nullptr) return memory.extra + layout.shard_offset * size;
  if (context_.plan->placement.gradients_sharded) {
    return memory.grads + layout.shard_offset * size;
  }
  // In place: nobody but this rank reads or writes its own block of its own gradient.
  return context_.storage->whole_grads(bucket) +
         static_cast<uint64_t>(context_.rank()) * layout.shard_elements * size;
}

zero_dtype BucketReduction::shard_dtype(int32_t bucket) const {
  const plan::Bucket& layout = context_.bucket(bucket);
  return context_.plan->classes[static_cast<size_t>(layout.parameter_class)].accumulation_dtype;
}

void BucketReduction::reduce(const comm::CollectiveStamp& bucket_stamp, const Job& job) {
  comm::Communicator& comm = *context_.comm;
  const int32_t bucket = bucket_stamp.bucket;
  const plan::Bucket& layout = context_.bucket(bucket);
  const uint64_t size = context_.storage->element_bytes(bucket);
  const uint64_t shard_bytes = layout.shard_elements * size;
  const auto ranks = static_cast<uint64_t>(comm.size());
  const uint64_t chunk_bytes = kernels::kChunk * size;
  // Where memory is not the communicator's on any rank, it is on none: all cut alike.
  const uint64_t limit =
      job.sendable ? shard_bytes
                   : context_.storage->staging_bytes() / ranks / chunk_bytes * chunk_bytes;
  uint64_t piece = std::min({shard_bytes, limit, comm.largest_block()});
  if (piece < shard_bytes) piece = piece / chunk_bytes * chunk_bytes;
  if (piece == 0 && shard_bytes != 0) {
    fail(ZERO_ERR_INTERNAL, "the plan has no staging for a reduction of %llu bytes",
         static_cast<unsigned long long>(shard_bytes));
  }
  for (uint64_t offset = 0; offset < shard_bytes; offset += piece) {
    const uint64_t bytes = std::min(piece, shard_bytes - offset);
    const std::byte* send = job.send == nullptr ? nullptr : job.send + offset;
    uint64_t stride = shard_bytes;
    if (send != nullptr && !job.sendable) {
      std::byte* staging = context_.storage->reduce_staging();
      for (uint64_t r = 0; r < ranks; ++r) {
        std::memcpy(staging + r * bytes, send + r * shard_bytes, bytes);
      }
      send = staging;
      stride = bytes;
    }
    comm::CollectiveStamp stamp = bucket_stamp;
    stamp.bytes = bytes;
    stamp.detail = offset;
    comm.exchange_begin(comm::Channel::kReduce, comm::ExchangeKind::kScatter, stamp, send, stride,
                        views_.data());
    reduce_range(bucket, offset / size, bytes / size, job);
    comm.exchange_end(comm::Channel::kReduce);
  }
}

void BucketReduction::reduce_range(int32_t bucket, uint64_t shard_begin, uint64_t count,
                                   const Job& job) {
  size_t present = 0;
  for (size_t r = 0; r < views_.size(); ++r) {
    if (views_[r] == nullptr) continue;
    present_[present] = views_[r];
    present_rank_[present++] = static_cast<int32_t>(r);
  }
  present_.resize(present);
  for (size_t t = 0; t < partial_.size(); ++t) {
    kernels::exact_sum_clear(&partial_[t]);
    first_bad_[t] = kernels::kNone;
  }
  range_begin_ = shard_begin;
  Part part{this, bucket, shard_begin, &job};
  // Sums of single parameters are kept by one thread: they are few and rare.
  if (totals_.param_sums.empty()) {
    context_.device->parallel(count, kGrainElements, &BucketReduction::run_part, &part);
  } else {
    run_part(&part, 0, count, 0);
  }
  uint64_t bad = kernels::kNone;
  for (size_t t = 0; t < partial_.size(); ++t) {
    if (job.take_norm) kernels::exact_sum_merge(&totals_.sum, partial_[t]);
    bad = std::min(bad, first_bad_[t]);
  }
  kernels::exact_sum_normalise(&totals_.sum);
  if (bad != kernels::kNone) {
    const uint64_t shard_start =
        static_cast<uint64_t>(context_.rank()) * context_.bucket(bucket).shard_elements;
    note_non_finite(bucket, shard_start + shard_begin + bad);
  }
  present_.resize(views_.size());
}

// [begin, end) counts elements of the range.  first_bad_ is kept in elements of the range.
void BucketReduction::run_part(void* context, uint64_t begin, uint64_t end, int32_t index) {
  const Part& part = *static_cast<Part*>(context);
  BucketReduction& self = *part.self;
  Context& shared = self.context_;
  const auto thread = static_cast<size_t>(index);
  const uint64_t size = shared.storage->element_bytes(part.bucket);
  const auto parameter_class = static_cast<size_t>(shared.bucket(part.bucket).parameter_class);
  kernels::ReduceArguments arguments;
  arguments.contribution_dtype = shared.plan->classes[parameter_class].dtype;
  arguments.accumulate_dtype = self.shard_dtype(part.bucket);
  arguments.scale =
      shared.settings.reduce_is_sum ? 1.0f : 1.0f / static_cast<float>(shared.ranks());
  arguments.add = part.job->add;
  std::byte* accumulate =
      self.shard(part.bucket) + part.shard_begin * dtype_bytes(arguments.accumulate_dtype);
  const auto run = [&](uint64_t first, uint64_t last, kernels::ExactSum* norm) {
    // Nobody brought anything: zeros, a block at a time.
    const uint64_t block = self.present_.empty() ? kGrainElements : last - first;
    for (; first < last; first += block) {
      const uint64_t n = std::min(block, last - first);
      auto& views = self.part_views_[thread];
      for (size_t i = 0; i < self.present_.size(); ++i) {
        views[i] = static_cast<const std::byte*>(self.present_[i]) + first * size;
      }
      if (self.present_.empty()) views[0] = self.zeros_.data();
      arguments.contributions = views.data();
      arguments.ranks = static_cast<int32_t>(std::max<size_t>(1, self.present_.size()));
      arguments.accumulate = accumulate + first * dtype_bytes(arguments.accumulate_dtype);
      arguments.count = n;
      arguments.norm = norm;
      const uint64_t bad = shared.kernels->reduce(arguments);
      if (bad != kernels::kNone) {
        self.first_bad_[thread] = std::min(self.first_bad_[thread], first + bad * kernels::kChunk);
      }
    }
  };
  if (self.totals_.param_sums.empty() || !part.job->take_norm) {
    run(begin, end, &self.partial_[thread]);
    return;
  }
  const uint64_t start =
      static_cast<uint64_t>(shared.rank()) * shared.bucket(part.bucket).shard_elements +
      part.shard_begin;
  uint64_t done = begin;
  shared.plan->for_each_run(part.bucket, start + begin, start + end, [&](const plan::Run& piece) {
    kernels::ExactSum sum;
    kernels::exact_sum_clear(&sum);
    const uint64_t first = piece.bucket_offset - start;
    // The padding behind a parameter is zero: whole chunks are read.
    const uint64_t last = std::min(
        end, first + (piece.count + kernels::kChunk - 1) / kernels::kChunk * kernels::kChunk);
    run(first, last, &sum);
    kernels::exact_sum_merge(&self.totals_.param_sums[static_cast<size_t>(piece.param)], sum);
    kernels::exact_sum_merge(&self.partial_[thread], sum);
    done = last;
  });
  if (done < end) run(done, end, &self.partial_[thread]);
}

// Looks at one chunk again, to say which value it was and who brought it.
void BucketReduction::note_non_finite(int32_t bucket, uint64_t bucket_chunk_begin) {
  const plan::Bucket& layout = context_.bucket(bucket);
  const uint64_t shard_start = static_cast<uint64_t>(context_.rank()) * layout.shard_elements;
  const zero_dtype dtype =
      context_.plan->classes[static_cast<size_t>(layout.parameter_class)].dtype;
  for (uint64_t i = 0; i < kernels::kChunk; ++i) {
    const uint64_t at = bucket_chunk_begin + i;
    const float result =
        as_float(shard(bucket), shard_dtype(bucket), at - shard_start, *context_.kernels);
    if (std::isfinite(result)) continue;
    NonFinite found;
    context_.plan->for_each_run(bucket, at, at + 1, [&](const plan::Run& run) {
      found.param = run.param;
      found.element = run.param_offset;
      found.order = backward_position_[static_cast<size_t>(run.param)];
    });
    if (!found.found()) continue;
    // In place this rank's own contribution has been overwritten by the sum; it is asked last.
    const bool in_place = !context_.plan->placement.gradients_sharded &&
                          context_.storage->of_bucket(bucket).extra == nullptr;
    bool own_is_gone = false;
    for (size_t p = 0; p < present_.size(); ++p) {
      if (in_place && present_rank_[p] == context_.rank()) {
        own_is_gone = true;
        continue;
      }
      const uint64_t in_range = at - shard_start - range_begin_;
      if (!std::isfinite(as_float(present_[p], dtype, in_range, *context_.kernels))) {
        found.rank = present_rank_[p];
        break;
      }
    }
    // A finite contribution cannot make a NaN of finite ones; an infinity may be their sum.
    if (found.rank < 0 && own_is_gone) found.rank = context_.rank();
    if (found.before(totals_.first)) totals_.first = found;
    return;
  }
}

void BucketReduction::take_norm(int32_t bucket) {
  const plan::Bucket& layout = context_.bucket(bucket);
  const zero_dtype dtype = shard_dtype(bucket);
  const uint64_t size = dtype_bytes(dtype);
  const uint64_t start = static_cast<uint64_t>(context_.rank()) * layout.shard_elements;
  present_.clear();
  range_begin_ = 0;
  const auto norm = [&](uint64_t first, uint64_t last, kernels::ExactSum* sum) {
    const uint64_t bad =
        context_.kernels->norm(shard(bucket) + first * size, dtype, last - first, sum);
    if (bad != kernels::kNone) note_non_finite(bucket, start + first + bad * kernels::kChunk);
  };
  if (totals_.param_sums.empty()) {
    norm(0, layout.shard_elements, &totals_.sum);
  } else {
    context_.plan->for_each_run(
        bucket, start, start + layout.shard_elements, [&](const plan::Run& run) {
          kernels::ExactSum sum;
          kernels::exact_sum_clear(&sum);
          const uint64_t first = run.bucket_offset - start;
          norm(first,
               std::min(layout.shard_elements, first + (run.count + kernels::kChunk - 1) /
                                                           kernels::kChunk * kernels::kChunk),
               &sum);
          kernels::exact_sum_merge(&totals_.param_sums[static_cast<size_t>(run.param)], sum);
          kernels::exact_sum_merge(&totals_.sum, sum);
        });
  }
  kernels::exact_sum_normalise(&totals_.sum);
  present_.resize(views_.size());
}

} // namespace zero::engine

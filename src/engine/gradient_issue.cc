// How complete buckets leave: what a bucket needs before it is issued, the end of a micro-batch,
// and what the step asks for. SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/dtype.h"
#include "engine/gradient_reducer.h"

namespace zero::engine {

void GradientReducer::issue_complete(bool at_point) {
  if (!every_micro_batch_ && !window_.is_last()) return;
  for (;;) {
    const int32_t bucket = admission_.next_to_issue(at_point);
    if (bucket < 0) return;
    issue(bucket, window_.is_last());
  }
}

// Parameters of the bucket that hold nothing, and in a slot the gaps between parameters, become
// zeros.
void GradientReducer::clear_missing(int32_t bucket, std::byte* whole) {
  const plan::Bucket& layout = context_.bucket(bucket);
  const uint64_t size = context_.storage->element_bytes(bucket);
  for (size_t m = 0; m < layout.members.size(); ++m) {
    const plan::BucketMember& member = layout.members[m];
    const uint64_t next =
        m + 1 < layout.members.size() ? layout.members[m + 1].offset : layout.elements;
    uint64_t begin = member.offset + member.count;
    if (content_[static_cast<size_t>(member.param)] == 0) begin = member.offset;
    const uint64_t end = pooled_ ? next : member.offset + member.count;
    if (begin < end) std::memset(whole + begin * size, 0, (end - begin) * size);
  }
}

// A narrower communication dtype: each contribution is what would have travelled.  A wider one
// changes nothing: the sum is made in fp32.
void GradientReducer::round_for_communication(int32_t bucket, std::byte* whole) {
  const zero_dtype wire = context_.settings.communication_dtype;
  const plan::Bucket& layout = context_.bucket(bucket);
  const zero_dtype dtype =
      context_.plan->classes[static_cast<size_t>(layout.parameter_class)].dtype;
  if (wire == 0 || wire == dtype || !is_16_bit_float(wire)) return;
  constexpr uint64_t kBlock = 4096;
  uint16_t narrow[kBlock];
  for (uint64_t at = 0; at < layout.elements; at += kBlock) {
    const uint64_t count = std::min(kBlock, layout.elements - at);
    std::byte* values = whole + at * dtype_bytes(dtype);
    context_.kernels->cast(values, dtype, narrow, wire, count);
    context_.kernels->cast(narrow, wire, values, dtype, count);
  }
}

void GradientReducer::issue(int32_t bucket, bool take_norm) {
  const auto b = static_cast<size_t>(bucket);
  const plan::Bucket& layout = context_.bucket(bucket);
  BucketReduction::Job& job = jobs_[b];
  job.send = nullptr;
  job.sendable = context_.storage->may_be_sent(pooled_ ? ZERO_MEMORY_BUCKETS : ZERO_MEMORY_GRADS);
  if (contents_in_bucket_[b] > 0) {
    std::byte* whole = pooled_ ? context_.storage->pool_slot(bucket, admission_.slot(bucket))
                               : context_.storage->whole_grads(bucket);
    clear_missing(bucket, whole);
    round_for_communication(bucket, whole);
    job.send = whole;
  }
  job.add = accumulated_[b] != 0;
  job.take_norm = take_norm;
  accumulated_[b] = every_micro_batch_ ? 1 : 0;
  issued_[b] = 1;
  const uint64_t shard_bytes = layout.shard_elements * context_.storage->element_bytes(bucket);
  context_.bytes_sent += shard_bytes * static_cast<uint64_t>(context_.ranks() - 1);
  ++in_flight_;
  tickets_[b] =
      context_.sequence->reduce(bucket, shard_bytes, &GradientReducer::run_reduction, this);
  if (!context_.sequence->overlaps()) context_.failure.check();
}

void GradientReducer::run_reduction(void* context, const comm::CollectiveStamp& stamp) {
  auto& self = *static_cast<GradientReducer*>(context);
  const int64_t start = now_ns();
  self.reduction_.reduce(stamp, self.jobs_[static_cast<size_t>(stamp.bucket)]);
  self.reduce_ns_ += now_ns() - start;
  --self.in_flight_;
}

void GradientReducer::end_micro_batch() {
  for (size_t p = 0; p < names_.size(); ++p) {
    if (begun_ && names_[p] == Name::kAsked) {
      fail(ZERO_ERR_INVALID_STATE,
           "zero_micro_end: the buffer of %s was handed out in micro-batch %lld, expected "
           "zero_grad_ready before the end",
           quoted(static_cast<int32_t>(p)).c_str(), static_cast<long long>(window_.ended() + 1));
    }
  }
  open_micro_batch();
  for (int32_t b = 0; b < context_.plan->trained_buckets; ++b) admission_.close(b);
  issue_complete(/*at_point=*/true);
  if (window_.is_last()) norms_taken_ = true;
  window_.end();
  begun_ = false;
}

void GradientReducer::micro_end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_micro_batch();
}

void GradientReducer::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (window_.open() && window_.ended() > 0) {
    fail(ZERO_ERR_INVALID_STATE,
         "micro-batch %lld is still open: zero_micro_end must come before the step",
         static_cast<long long>(window_.ended() + 1));
  }
  if (window_.ended() == 0) {
    // A step without micro calls is one micro-batch, and the last.
    if (!window_.open()) window_.begin(1);
    end_micro_batch();
  }
  if (!every_micro_batch_ && !norms_taken_) {
    for (int32_t b = 0; b < context_.plan->trained_buckets; ++b) {
      if (issued_[static_cast<size_t>(b)] == 0) issue(b, /*take_norm=*/true);
    }
    norms_taken_ = true;
  }
  context_.sequence->drain();
  collect_reduced();
  if (!norms_taken_) {
    for (int32_t b = 0; b < context_.plan->trained_buckets; ++b) reduction_.take_norm(b);
    norms_taken_ = true;
  }
  finished_ = true;
}

void GradientReducer::window_done() {
  const std::lock_guard<std::mutex> lock(mutex_);
  window_.clear();
  begun_ = false;
  norms_taken_ = false;
  finished_ = false;
  reduce_ns_ = 0;
  std::fill(names_.begin(), names_.end(), Name::kIdle);
  std::fill(content_.begin(), content_.end(), uint8_t{0});
  std::fill(came_.begin(), came_.end(), uint8_t{0});
  std::fill(contents_in_bucket_.begin(), contents_in_bucket_.end(), 0);
  std::fill(accumulated_.begin(), accumulated_.end(), uint8_t{0});
  std::fill(issued_.begin(), issued_.end(), uint8_t{0});
  reduction_.totals().clear();
}

// Ranks may stand at different places of a micro-batch; if one is open anywhere, all end it, so
// that nobody waits for a reduction that another rank will never issue.
void GradientReducer::clear() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) fail(ZERO_ERR_INVALID_STATE, "zero_grads_clear: expected zero_step_end before");
    int64_t open = window_.open() ? 1 : 0;
    context_.comm->all_reduce_int64(
        comm::Channel::kControl, context_.sequence->control(comm::Operation::kAgree, 8), &open, 1);
    if (open > 0) {
      window_.begin_unless_open();
      for (Name& name : names_) {
        if (name == Name::kAsked) name = Name::kReady;
      }
      end_micro_batch();
    }
    context_.sequence->drain();
    collect_reduced();
  }
  window_done();
}

} // namespace zero::engine

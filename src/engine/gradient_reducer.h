// Gradients from the host program to their owners: where each may be written, when a bucket is
// complete, in what order buckets are issued, and what the step finds of them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "engine/bucket_reduction.h"
#include "engine/collective_sequence.h"
#include "engine/context.h"
#include "engine/micro_batch.h"
#include "plan/bucket_admission.h"

namespace zero::engine {

class GradientReducer {
 public:
  explicit GradientReducer(Context& context);

  // The calls of zero.h section 8.  Each checks everything before it changes anything.
  void micro_begin(int32_t is_last);
  void buffer(zero_param_id param, zero_buffer* buffer, int32_t* add);
  void ready(const zero_param_id* params, uint64_t count); // any thread
  void submit(zero_param_id param, const zero_buffer& gradient);
  void close(const zero_param_id* params, uint64_t count);
  void micro_end();
  void clear();

  // A point of the sequence (stage 3): what is complete is issued.
  void point();

  // ---- for the step ----
  // Ends the one implicit micro-batch, reduces what is not yet reduced, waits, takes missing norms.
  void finish();
  // After finish, until window_done.
  const GradientTotals& totals() const { return reduction_.totals(); }
  bool came_here(zero_param_id root) const { return came_[static_cast<size_t>(root)] != 0; }
  int64_t micro_batches() const { return window_.ended(); }
  bool micro_batch_open() const { return window_.open(); }
  std::byte* shard(int32_t bucket) const { return reduction_.shard(bucket); }
  zero_dtype shard_dtype(int32_t bucket) const { return reduction_.shard_dtype(bucket); }
  void window_done();

  int64_t reduce_ns() const { return reduce_ns_.load(); }
  int32_t buckets_in_flight() const { return in_flight_.load(); } // any thread

 private:
  enum class Name : uint8_t { kIdle, kAsked, kReady, kClosed };

  void open_micro_batch(); // pre: lock held; before the first gradient call of a micro-batch
  void check_may_come(zero_param_id param, const char* call) const;
  void open_bucket(
      int32_t bucket); // a slot for it: may wait for issued ones; throws NO_OPEN_BUCKET
  std::byte* address(zero_param_id root) const;
  void mark_done(zero_param_id param, Name how);
  void issue_complete(bool at_point);
  void issue(int32_t bucket, bool take_norm);
  void round_for_communication(int32_t bucket, std::byte* whole);
  void clear_missing(int32_t bucket, std::byte* whole);
  void end_micro_batch();
  void collect_reduced();
  std::string quoted(zero_param_id param) const;
  static void run_reduction(void* context, const comm::CollectiveStamp& stamp);

  int32_t bucket_of(zero_param_id param) const {
    return context_.plan->places[static_cast<size_t>(param)].bucket;
  }
  zero_param_id root_of(zero_param_id param) const { return context_.parameter(param).root; }

  Context& context_;
  std::mutex mutex_; // grad_ready may come from any thread
  BucketReduction reduction_;
  plan::BucketAdmission admission_;
  MicroBatchWindow window_;
  const bool pooled_; // stages 2 and 3
  const bool every_micro_batch_; // reduced in each micro-batch, not once a step
  bool begun_ = false; // admission knows of the open micro-batch
  bool norms_taken_ = false;
  bool finished_ = false; // by finish, until window_done

  std::vector<int32_t> names_in_bucket_;
  std::vector<Name> names_; // by parameter, in this micro-batch
  std::vector<uint8_t> content_; // by root: its buffer holds something to add to
  std::vector<uint8_t> touched_; // by root: written to in this micro-batch
  std::vector<uint64_t> listed_; // by parameter: the last call that listed it
  uint64_t calls_ = 0;
  std::vector<uint8_t> came_; // by root: in this window, on this rank
  std::vector<int32_t> contents_in_bucket_;
  std::vector<BucketReduction::Job> jobs_;
  std::vector<uint64_t> tickets_; // of a bucket's reduction; 0: none in flight
  std::vector<uint8_t> accumulated_; // by bucket: its shard holds earlier micro-batches
  std::vector<uint8_t> issued_; // by bucket, in this window (once a step)
  std::atomic<int64_t> reduce_ns_{0};
  std::atomic<int32_t> in_flight_{0};
};

} // namespace zero::engine

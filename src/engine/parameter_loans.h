// Whole parameters on loan.  At stage 3 a unit is gathered into a slot when one of its parameters
// is acquired and stays until the slot is wanted; at the other stages a loan is only counted.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <vector>

#include "engine/bucket_transfer.h"
#include "engine/collective_sequence.h"
#include "engine/context.h"
#include "engine/gradient_reducer.h"
#include "plan/loan_admission.h"

namespace zero::engine {

class ParameterLoans {
 public:
  ParameterLoans(Context& context, GradientReducer& reducer);

  // The calls of zero.h section 9.
  void acquire(const zero_param_id* params, uint64_t count, zero_buffer* buffers);
  void release(const zero_param_id* params, uint64_t count, bool keep_changes);
  void prefetch(const zero_param_id* params, uint64_t count);

  int32_t open_loans() const { return open_.load(); } // any thread
  // "h.0.attn.weight (2 loans), wte"; at most a few names.
  std::string open_text() const;

  // Parameters have changed: copies on hand are stale; what is kept whole is gathered again.
  // [collective] at stage 3.  Returns at once; drain the sequence.
  void values_changed();

 private:
  void check(const zero_param_id* params, uint64_t count, const char* call) const;
  void issue_gather(int32_t unit);
  std::byte* unit_memory(int32_t unit) const;
  void store_changes(zero_param_id param);
  static void run_gather(void* context, const comm::CollectiveStamp& stamp);

  Context& context_;
  GradientReducer& reducer_;
  plan::LoanAdmission admission_;
  BucketTransfer transfer_;
  const bool sharded_;
  std::vector<int32_t> loans_; // by parameter, under the name it was acquired by
  std::vector<uint64_t> tickets_; // by unit: its gather
  std::vector<std::byte*> targets_; // by unit: where it is being gathered
  std::vector<plan::LoanAdmission::Answer> answers_; // of the acquire in hand
  std::atomic<int32_t> open_{0};
};

} // namespace zero::engine

// The order of a step: finish the reductions, one small all-reduce for the verdict, one fused pass
// a bucket with the all-gather of the bucket before on its way, then counters and report.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <vector>

#include "engine/bucket_transfer.h"
#include "engine/fused_update.h"
#include "engine/host_values.h"
#include "engine/matrix_update.h"
#include "engine/parameter_loans.h"
#include "engine/step_record.h"
#include "engine/trust_ratio_update.h"
#include "optim/loss_scale.h"

namespace zero::engine {

struct StepOptions {
  double lr; // NaN: the schedule's
  double gradient_divisor; // NaN: ranks x micro-batches
};

struct StepReport {
  bool skipped = false;
  int64_t step = 0, skipped_total = 0;
  double lr = 0, grad_norm = 0, clip_scale = 1, loss_scale = 1;
  NonFinite non_finite;
  int64_t reduce_ns = 0, update_ns = 0, gather_ns = 0;
  uint64_t bytes_sent = 0;
};

// Where a run stands between two steps, beside the values of its tensors.
struct StepperState {
  int64_t steps = 0;
  int64_t skipped_total = 0;
  optim::LossScale loss_scale;
  std::vector<int64_t> param_steps; // by parameter; of roots
};

class Stepper {
 public:
  Stepper(Context& context, GradientReducer& reducer, ParameterLoans& loans);

  StepReport step(const StepOptions& options);
  // The host program's own optimizer: between the two, shard_buffer gives it the parts.
  StepReport begin(const StepOptions& options);
  void end();

  GroupValueTable& groups() { return groups_; }
  int64_t steps() const { return steps_.load(); }
  std::vector<int64_t>& param_steps() { return param_steps_; } // by parameter; of roots
  StepperState state() const;
  // Between steps.  A static loss scale, or none, stays the config's.
  void restore(const StepperState& state);
  bool scales_dynamically() const { return loss_scale_rules_.dynamic; }
  double param_grad_norm(zero_param_id param) const; // of the last step
  bool between_begin_and_end() const { return in_step_; }
  bool gradients_at_hand() const { return in_step_ && !report_.skipped; }
  // Whether the parameter is stepped by the step in hand.
  bool came(zero_param_id root) const { return update_.active(root); }
  FusedUpdate::Owned owned(int32_t bucket) const { return update_.owned(bucket); }

  // Whole values from the shards again, after they changed (stages 1 and 2), or fresh loans (3).
  void gather_values();

 private:
  void check_may_step(const StepOptions& options, bool host_optimizer) const;
  // Up to the verdict: report_ filled, constants prepared unless skipped.
  void decide(const StepOptions& options);
  void finish_step();
  void issue_value_gather(int32_t bucket);
  void issue_gradient_gather(int32_t bucket); // stage 0: whole averaged gradients everywhere
  void update_all();
  void update_by_trust_ratio();
  void update_by_matrices();
  void apply_matrices(int32_t bucket);
  void issue_direction_gather(int32_t bucket);
  static void run_direction_gather(void* context, const comm::CollectiveStamp& stamp);
  bool checks_overflow() const;
  static void run_value_gather(void* context, const comm::CollectiveStamp& stamp);
  static void run_gradient_gather(void* context, const comm::CollectiveStamp& stamp);

  Context& context_;
  GradientReducer& reducer_;
  ParameterLoans& loans_;
  GroupValueTable groups_;
  StepRecord record_;
  FusedUpdate update_;
  TrustRatioUpdate trust_ratio_;
  MatrixUpdate matrices_;
  BucketTransfer transfer_;
  ValueReturn values_; // the optimizer offloaded
  std::atomic<int64_t> steps_{0};
  int64_t skipped_total_ = 0;
  std::vector<int64_t> param_steps_;
  std::vector<uint64_t> tickets_;
  optim::LossScaleRules loss_scale_rules_;
  optim::LossScale loss_scale_;
  std::vector<double> param_norms_;
  StepReport report_;
  optim::Rates rates_{};
  double lr_override_ = 0;
  float gradient_factor_ = 1;
  bool in_step_ = false;
  bool stepped_once_ = false;
  std::atomic<int64_t> gather_ns_{0};
};

} // namespace zero::engine

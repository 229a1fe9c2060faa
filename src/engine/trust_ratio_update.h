// LAMB (You et al. 2020, algorithm 2): each parameter's step is scaled by the ratio of two norms of
// the whole parameter, although shards cut it.  The norms are exact sums, so that stage and layout
// change nothing; they travel in one small all-reduce between the two passes.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "engine/fused_update.h"

namespace zero::engine {

class TrustRatioUpdate {
 public:
  TrustRatioUpdate(Context& context, const FusedUpdate& update);

  // pre: FusedUpdate::prepare.  Then begin, directions of every bucket, agree, apply of every
  // bucket.
  void begin();
  // The direction takes the place of the gradient.
  void directions(int32_t bucket);
  // [collective] where the optimizer is sharded.  steps: of each parameter so far.
  void agree(const GroupValueTable& groups, const optim::Rates& rates, double lr_override,
             const std::vector<int64_t>& steps);
  void apply(int32_t bucket);

 private:
  static void run_directions(void* context, uint64_t begin, uint64_t end, int32_t index);
  static void run_apply(void* context, uint64_t begin, uint64_t end, int32_t index);
  static void run_norm(void* context, uint64_t begin, uint64_t end, int32_t index);
  void add_norm(const float* values, uint64_t count, kernels::ExactSum* sum);

  Context& context_;
  const FusedUpdate& update_;
  std::vector<kernels::ExactSum> direction_sums_, value_sums_; // by parameter
  std::vector<kernels::ExactSum> partial_; // by thread
  std::vector<int64_t> limbs_; // for the all-reduce
  std::vector<kernels::ApplyConstants> constants_; // by parameter
};

} // namespace zero::engine

// The step's one small all-reduce: the limbs of the norm, which parameters came, the first value
// that is not finite on each rank, and a hash of what every rank must bring alike.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "engine/context.h"
#include "engine/gradient_totals.h"

namespace zero::engine {

class StepRecord {
 public:
  explicit StepRecord(Context& context);

  // [collective] came(root) says whether a gradient of it came on this rank.  inputs_hash: of
  // micro-batches, step number, options, group values.  Throws COMM_MISMATCH naming a rank whose
  // hash differs from rank 0's.
  template <typename Came>
  void exchange(const GradientTotals& mine, Came came, uint64_t inputs_hash) {
    prepare(mine, inputs_hash);
    for (size_t p = 0; p < params_; ++p) {
      if (came(static_cast<zero_param_id>(p))) add_came(p);
    }
    agree();
  }

  // Equal on all ranks.
  const kernels::ExactSum& sum() const { return sum_; }
  const kernels::ExactSum& param_sum(zero_param_id param) const {
    return param_sums_[static_cast<size_t>(param)];
  }
  const NonFinite& first() const { return first_; }
  bool came(zero_param_id root) const;
  uint64_t bytes() const { return values_.size() * sizeof(int64_t); }

 private:
  static constexpr size_t kPerRank = 5; // order + 1, parameter, element, rank, hash
  void prepare(const GradientTotals& mine, uint64_t inputs_hash);
  void add_came(size_t param) {
    values_[came_begin_ + param / 4] += int64_t{1} << (param % 4 * 16);
  }
  void agree();

  Context& context_;
  const size_t params_;
  const size_t came_begin_;
  const size_t ranks_begin_;
  const size_t sums_begin_;
  std::vector<int64_t> values_;
  kernels::ExactSum sum_;
  std::vector<kernels::ExactSum> param_sums_;
  NonFinite first_;
};

} // namespace zero::engine

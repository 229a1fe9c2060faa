// SPDX-License-Identifier: BSD-3-Clause
#include "engine/step_record.h"

#include <algorithm>

#include "engine/collective_sequence.h"

namespace zero::engine {

StepRecord::StepRecord(Context& context)
    : context_(context),
      params_(context.plan->places.size()),
      came_begin_(kernels::kLimbs),
      ranks_begin_(came_begin_ + (params_ + 3) / 4),
      sums_begin_(ranks_begin_ + kPerRank * static_cast<size_t>(context.ranks())),
      values_(sums_begin_ + (context.settings.param_norms ? params_ * kernels::kLimbs : 0)),
      param_sums_(context.settings.param_norms ? params_ : 0) {
  kernels::exact_sum_clear(&sum_);
}

void StepRecord::prepare(const GradientTotals& mine, uint64_t inputs_hash) {
  std::fill(values_.begin(), values_.end(), 0);
  kernels::ExactSum sum = mine.sum;
  kernels::exact_sum_normalise(&sum);
  std::copy(sum.limb, sum.limb + kernels::kLimbs, values_.begin());
  int64_t* own = &values_[ranks_begin_ + kPerRank * static_cast<size_t>(context_.rank())];
  own[0] = mine.first.order + 1;
  own[1] = mine.first.param;
  own[2] = static_cast<int64_t>(mine.first.element);
  own[3] = mine.first.rank;
  own[4] = static_cast<int64_t>(inputs_hash);
  for (size_t p = 0; p < param_sums_.size(); ++p) {
    kernels::ExactSum param = mine.param_sums[p];
    kernels::exact_sum_normalise(&param);
    std::copy(param.limb, param.limb + kernels::kLimbs,
              values_.begin() + static_cast<ptrdiff_t>(sums_begin_ + p * kernels::kLimbs));
  }
}

void StepRecord::agree() {
  const comm::CollectiveStamp stamp = context_.sequence->control(comm::Operation::kRecord, bytes());
  context_.comm->all_reduce_int64(comm::Channel::kControl, stamp, values_.data(), values_.size());
  for (int32_t r = 0; r < context_.ranks(); ++r) {
    const int64_t* slot = &values_[ranks_begin_ + kPerRank * static_cast<size_t>(r)];
    const auto hash0 = static_cast<uint64_t>(values_[ranks_begin_ + 4]);
    if (static_cast<uint64_t>(slot[4]) != hash0) {
      throw Error(
          ZERO_ERR_COMM_MISMATCH,
          format("rank %d and rank 0 come to the step with different numbers: micro-batches, "
                 "step count, options, or group values (hashes %016llx and %016llx)",
                 r, static_cast<unsigned long long>(slot[4]),
                 static_cast<unsigned long long>(hash0)),
          r);
    }
  }
  std::copy(values_.begin(), values_.begin() + kernels::kLimbs, sum_.limb);
  kernels::exact_sum_normalise(&sum_);
  for (size_t p = 0; p < param_sums_.size(); ++p) {
    const auto begin = values_.begin() + static_cast<ptrdiff_t>(sums_begin_ + p * kernels::kLimbs);
    std::copy(begin, begin + kernels::kLimbs, param_sums_[p].limb);
    kernels::exact_sum_normalise(&param_sums_[p]);
  }
  first_ = NonFinite{};
  for (int32_t r = 0; r < context_.ranks(); ++r) {
    const int64_t* slot = &values_[ranks_begin_ + kPerRank * static_cast<size_t>(r)];
    const NonFinite found{slot[0] - 1, static_cast<zero_param_id>(slot[1]),
                          static_cast<uint64_t>(slot[2]), static_cast<int32_t>(slot[3])};
    if (found.before(first_)) first_ = found;
  }
}

bool StepRecord::came(zero_param_id root) const {
  const auto param = static_cast<size_t>(root);
  return ((values_[came_begin_ + param / 4] >> (param % 4 * 16)) & 0xffff) != 0;
}

} // namespace zero::engine

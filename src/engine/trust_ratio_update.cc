// SPDX-License-Identifier: BSD-3-Clause
#include "engine/trust_ratio_update.h"

#include <algorithm>
#include <cmath>

#include "engine/collective_sequence.h"

namespace zero::engine {
namespace {

constexpr uint64_t kGrainElements = 32 * 1024;

struct NormPart {
  const kernels::KernelTable* kernels;
  const float* values;
  std::vector<kernels::ExactSum>* partial;
};

struct BucketPart {
  const FusedUpdate* update;
  const kernels::KernelTable* kernels;
  const std::vector<kernels::ApplyConstants>* apply;
  int32_t bucket;
  FusedUpdate::Owned owned;
};

float* direction_of(const kernels::UpdateStreams& streams) {
  return static_cast<float*>(const_cast<void*>(streams.grad));
}

} // namespace

TrustRatioUpdate::TrustRatioUpdate(Context& context, const FusedUpdate& update)
    : context_(context), update_(update) {
  if (context.settings.optimizer.type != config::OptimizerType::kLamb) return;
  const size_t params = context.plan->places.size();
  direction_sums_.resize(params);
  value_sums_.resize(params);
  partial_.resize(static_cast<size_t>(context.device->parallel_width()));
  limbs_.resize(2 * params * kernels::kLimbs);
  constants_.resize(params);
}

void TrustRatioUpdate::begin() {
  for (kernels::ExactSum& sum : direction_sums_) kernels::exact_sum_clear(&sum);
  for (kernels::ExactSum& sum : value_sums_) kernels::exact_sum_clear(&sum);
}

void TrustRatioUpdate::run_norm(void* context, uint64_t begin, uint64_t end, int32_t index) {
  const NormPart& part = *static_cast<NormPart*>(context);
  part.kernels->norm(part.values + begin, ZERO_DTYPE_FP32, end - begin,
                     &(*part.partial)[static_cast<size_t>(index)]);
}

void TrustRatioUpdate::add_norm(const float* values, uint64_t count, kernels::ExactSum* sum) {
  for (kernels::ExactSum& partial : partial_) kernels::exact_sum_clear(&partial);
  NormPart part{context_.kernels, values, &partial_};
  context_.device->parallel(count, kGrainElements, &TrustRatioUpdate::run_norm, &part);
  for (const kernels::ExactSum& partial : partial_) kernels::exact_sum_merge(sum, partial);
}

void TrustRatioUpdate::run_directions(void* context, uint64_t begin, uint64_t end, int32_t) {
  const BucketPart& part = *static_cast<BucketPart*>(context);
  part.update->for_each_active_run(
      part.bucket, part.owned, begin, end,
      [&](const plan::Run& run, const kernels::UpdateStreams& streams) {
        part.kernels->lamb(streams, part.update->constants_[static_cast<size_t>(run.param)].lamb,
                           direction_of(streams));
      });
}

void TrustRatioUpdate::directions(int32_t bucket) {
  BucketPart part{&update_, context_.kernels, nullptr, bucket, update_.owned(bucket)};
  const uint64_t count = part.owned.end - part.owned.begin;
  context_.device->parallel(count, kGrainElements, &TrustRatioUpdate::run_directions, &part);
  update_.for_each_active_run(bucket, part.owned, 0, count,
                              [&](const plan::Run& run, const kernels::UpdateStreams& streams) {
                                const auto param = static_cast<size_t>(run.param);
                                add_norm(direction_of(streams), run.count, &direction_sums_[param]);
                                add_norm(streams.master, run.count, &value_sums_[param]);
                              });
}

void TrustRatioUpdate::agree(const GroupValueTable& groups, const optim::Rates& rates,
                             double lr_override, const std::vector<int64_t>& steps) {
  const size_t params = constants_.size();
  if (context_.plan->placement.optimizer_sharded) {
    for (size_t p = 0; p < params; ++p) {
      kernels::exact_sum_normalise(&direction_sums_[p]);
      kernels::exact_sum_normalise(&value_sums_[p]);
      std::copy_n(direction_sums_[p].limb, kernels::kLimbs, &limbs_[2 * p * kernels::kLimbs]);
      std::copy_n(value_sums_[p].limb, kernels::kLimbs, &limbs_[(2 * p + 1) * kernels::kLimbs]);
    }
    context_.comm->all_reduce_int64(
        comm::Channel::kControl,
        context_.sequence->control(comm::Operation::kRecord, limbs_.size() * sizeof(int64_t)),
        limbs_.data(), limbs_.size());
    for (size_t p = 0; p < params; ++p) {
      std::copy_n(&limbs_[2 * p * kernels::kLimbs], kernels::kLimbs, direction_sums_[p].limb);
      std::copy_n(&limbs_[(2 * p + 1) * kernels::kLimbs], kernels::kLimbs, value_sums_[p].limb);
    }
  }
  const config::OptimizerSettings& optimizer = context_.settings.optimizer;
  for (size_t p = 0; p < params; ++p) {
    if (!update_.active(static_cast<zero_param_id>(p))) continue;
    kernels::exact_sum_normalise(&direction_sums_[p]);
    kernels::exact_sum_normalise(&value_sums_[p]);
    const double direction = kernels::exact_sum_root(direction_sums_[p]);
    const double value = kernels::exact_sum_root(value_sums_[p]);
    double ratio = 1;
    if (direction > 0 && value > 0) {
      ratio = std::clamp(value / direction, optimizer.min_coefficient, optimizer.max_coefficient);
    }
    const optim::HyperParameters hyper = groups.at_update(
        context_.parameter(static_cast<zero_param_id>(p)).group, rates, lr_override);
    double rate = hyper.lr;
    if (optimizer.bias_correction) {
      rate *= std::sqrt(1 - optim::power(hyper.beta2, steps[p] + 1)) /
              (1 - optim::power(hyper.beta1, steps[p] + 1));
    }
    constants_[p] = kernels::ApplyConstants{static_cast<float>(rate * ratio), 1};
  }
}

void TrustRatioUpdate::run_apply(void* context, uint64_t begin, uint64_t end, int32_t) {
  const BucketPart& part = *static_cast<BucketPart*>(context);
  part.update->for_each_active_run(
      part.bucket, part.owned, begin, end,
      [&](const plan::Run& run, const kernels::UpdateStreams& streams) {
        part.kernels->apply(streams, (*part.apply)[static_cast<size_t>(run.param)],
                            direction_of(streams));
      });
}

void TrustRatioUpdate::apply(int32_t bucket) {
  BucketPart part{&update_, context_.kernels, &constants_, bucket, update_.owned(bucket)};
  context_.device->parallel(part.owned.end - part.owned.begin, kGrainElements,
                            &TrustRatioUpdate::run_apply, &part);
}

} // namespace zero::engine

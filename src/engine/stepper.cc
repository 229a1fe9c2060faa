// SPDX-License-Identifier: BSD-3-Clause
#include "engine/stepper.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/dtype.h"
#include "engine/master_weights.h"
#include "engine/settings_inputs.h"

namespace zero::engine {

Stepper::Stepper(Context& context, GradientReducer& reducer, ParameterLoans& loans)
    : context_(context),
      reducer_(reducer),
      loans_(loans),
      groups_(context.settings, context.plan->model),
      record_(context),
      update_(context, reducer),
      trust_ratio_(context, update_),
      matrices_(context, update_, reducer),
      transfer_(context, comm::Channel::kGather),
      values_(context, context.sequence->overlaps()),
      param_steps_(context.plan->places.size(), 0),
      tickets_(context.plan->buckets.size(), 0),
      loss_scale_rules_(loss_scale_rules(context.settings)),
      loss_scale_(optim::initial_loss_scale(loss_scale_rules_)),
      param_norms_(context.settings.param_norms ? context.plan->places.size() : 0, 0.0) {}

// bf16 may be told not to look; fp32 and fp16 always do.
bool Stepper::checks_overflow() const {
  return context_.settings.compute_dtype != ZERO_DTYPE_BF16 ||
         context_.settings.check_grad_overflow;
}

void Stepper::check_may_step(const StepOptions& options, bool host_optimizer) const {
  const bool is_host = context_.settings.optimizer.type == config::OptimizerType::kHost;
  if (in_step_) {
    fail(ZERO_ERR_INVALID_STATE, "a step has begun, expected zero_step_end");
  }
  if (host_optimizer && !is_host) {
    fail(ZERO_ERR_INVALID_STATE,
         "zero_step_begin: optimizer.type is a built-in one, expected \"libzero.host\" (or "
         "zero_step)");
  }
  if (!host_optimizer && is_host) {
    fail(ZERO_ERR_INVALID_STATE,
         "zero_step: optimizer.type is \"libzero.host\", expected zero_step_begin and "
         "zero_step_end");
  }
  if (!std::isnan(options.lr) && !(options.lr >= 0 && std::isfinite(options.lr))) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "options.lr is %g, expected a finite number >= 0, or NaN",
         options.lr);
  }
  if (!std::isnan(options.gradient_divisor) &&
      !(options.gradient_divisor > 0 && std::isfinite(options.gradient_divisor))) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "options.gradient_divisor is %g, expected a finite number > 0, or NaN",
         options.gradient_divisor);
  }
  if (loans_.open_loans() > 0) {
    fail(ZERO_ERR_INVALID_STATE, "parameters are still on loan: %s; expected zero_params_release",
         loans_.open_text().c_str());
  }
}

void Stepper::decide(const StepOptions& options) {
  reducer_.finish();
  report_ = StepReport{};
  report_.reduce_ns = reducer_.reduce_ns();
  gather_ns_ = 0;
  const int64_t micro_batches = reducer_.micro_batches();
  const double inputs[] = {options.lr, options.gradient_divisor, static_cast<double>(micro_batches),
                           static_cast<double>(steps_.load())};
  record_.exchange(
      reducer_.totals(), [this](zero_param_id root) { return reducer_.came_here(root); },
      XXH3_64bits_withSeed(inputs, sizeof(inputs), groups_.hash()));

  const optim::Rates rates = scheduled_rates(context_.settings, steps_.load() + 1);
  const double average =
      std::isnan(options.gradient_divisor)
          ? 1.0 / static_cast<double>(micro_batches)
          : (context_.settings.reduce_is_sum ? 1 : context_.ranks()) / options.gradient_divisor;
  const double loss_scale = loss_scale_.scale;
  const optim::GradientScale scale =
      optim::gradient_scale(kernels::exact_sum_root(record_.sum()), average, loss_scale,
                            context_.settings.gradient_clipping);
  report_.non_finite = record_.first();
  report_.skipped = record_.first().found() && checks_overflow();
  if (report_.skipped && !optim::may_overflow(loss_scale_rules_, loss_scale_)) {
    reducer_.window_done();
    fail(ZERO_ERR_OVERFLOW,
         "non-finite gradients at the smallest loss scale, %g; first: param \"%s\", element %llu, "
         "rank "
         "%d; nothing was updated",
         loss_scale, context_.parameter(report_.non_finite.param).name.c_str(),
         static_cast<unsigned long long>(report_.non_finite.element), report_.non_finite.rank);
  }
  optim::update_loss_scale(loss_scale_rules_, report_.skipped, &loss_scale_);
  context_.set_loss_scale(loss_scale_.scale);
  report_.lr = std::isnan(options.lr) ? rates.lr : options.lr;
  report_.loss_scale = loss_scale_.scale;
  report_.grad_norm =
      record_.first().found() ? std::numeric_limits<double>::infinity() : scale.norm;
  report_.clip_scale = report_.skipped ? 1 : scale.clip_scale;
  for (size_t p = 0; p < param_norms_.size(); ++p) {
    const zero_param_id root = context_.parameter(static_cast<int32_t>(p)).root;
    param_norms_[p] = kernels::exact_sum_root(record_.param_sum(root)) * average / loss_scale;
  }
  stepped_once_ = true;
  const bool all = context_.settings.missing_gradients_are_zero;
  update_.prepare(groups_, rates, options.lr, scale.factor, param_steps_, [&](zero_param_id root) {
    return !report_.skipped && (all || record_.came(root));
  });
  gradient_factor_ = static_cast<float>(scale.factor);
}

// On the gather stream: this rank's averaged shard to everywhere, into the whole gradient.
void Stepper::run_gradient_gather(void* context, const comm::CollectiveStamp& stamp) {
  auto& self = *static_cast<Stepper*>(context);
  const int64_t start = now_ns();
  const bool extra = self.context_.storage->of_bucket(stamp.bucket).extra != nullptr;
  BucketTransfer::Ends ends;
  ends.element_bytes = dtype_bytes(self.reducer_.shard_dtype(stamp.bucket));
  ends.shard = self.reducer_.shard(stamp.bucket);
  ends.sendable =
      self.context_.storage->may_be_sent(extra ? ZERO_MEMORY_BUCKETS : ZERO_MEMORY_GRADS);
  ends.whole = self.context_.storage->gathered_grads(stamp.bucket);
  self.transfer_.gather(stamp, stamp.bucket, ends);
  self.gather_ns_ += now_ns() - start;
}

void Stepper::run_value_gather(void* context, const comm::CollectiveStamp& stamp) {
  auto& self = *static_cast<Stepper*>(context);
  const int64_t start = now_ns();
  const plan::Bucket& layout = self.context_.bucket(stamp.bucket);
  const ClassMemory& memory = self.context_.storage->of_bucket(stamp.bucket);
  const uint64_t size = self.context_.storage->element_bytes(stamp.bucket);
  BucketTransfer::Ends ends;
  if (memory.params != nullptr) {
    ends.whole = memory.params + layout.class_offset * size;
    ends.shard =
        ends.whole + static_cast<uint64_t>(self.context_.rank()) * layout.shard_elements * size;
    ends.sendable = self.context_.storage->may_be_sent(ZERO_MEMORY_PARAMS);
  }
  self.transfer_.gather(stamp, stamp.bucket, ends);
  self.gather_ns_ += now_ns() - start;
}

void Stepper::issue_value_gather(int32_t bucket) {
  const uint64_t shard_bytes =
      context_.bucket(bucket).shard_elements * context_.storage->element_bytes(bucket);
  context_.bytes_sent += shard_bytes * static_cast<uint64_t>(context_.ranks() - 1);
  tickets_[static_cast<size_t>(bucket)] =
      context_.sequence->gather(bucket, shard_bytes, &Stepper::run_value_gather, this);
}

void Stepper::issue_gradient_gather(int32_t bucket) {
  const uint64_t shard_bytes =
      context_.bucket(bucket).shard_elements * dtype_bytes(reducer_.shard_dtype(bucket));
  context_.bytes_sent += shard_bytes * static_cast<uint64_t>(context_.ranks() - 1);
  tickets_[static_cast<size_t>(bucket)] =
      context_.sequence->gather(bucket, shard_bytes, &Stepper::run_gradient_gather, this);
}

StepReport Stepper::step(const StepOptions& options) {
  check_may_step(options, /*host_optimizer=*/false);
  decide(options);
  if (!report_.skipped) update_all();
  finish_step();
  return report_;
}

// Every direction must be known before any is applied; the plan keeps all gradients at hand for it.
void Stepper::update_by_trust_ratio() {
  const plan::Placement& placement = context_.plan->placement;
  const int32_t buckets = context_.plan->trained_buckets;
  const bool whole = !placement.optimizer_sharded;
  for (int32_t b = 0; whole && b < buckets; ++b) issue_gradient_gather(b);
  const int64_t start = now_ns();
  trust_ratio_.begin();
  for (int32_t b = 0; b < buckets; ++b) {
    if (whole) context_.sequence->wait_gather(tickets_[static_cast<size_t>(b)]);
    trust_ratio_.directions(b);
  }
  trust_ratio_.agree(groups_, rates_, lr_override_, param_steps_);
  for (int32_t b = 0; b < buckets; ++b) {
    trust_ratio_.apply(b);
    if (!whole && !placement.parameters_sharded) issue_value_gather(b);
  }
  report_.update_ns += now_ns() - start;
}

void Stepper::run_direction_gather(void* context, const comm::CollectiveStamp& stamp) {
  auto& self = *static_cast<Stepper*>(context);
  const int64_t start = now_ns();
  self.matrices_.gather(stamp);
  self.gather_ns_ += now_ns() - start;
}

void Stepper::issue_direction_gather(int32_t bucket) {
  const uint64_t shard_bytes = context_.bucket(bucket).shard_elements * sizeof(float);
  context_.bytes_sent += shard_bytes * static_cast<uint64_t>(context_.ranks() - 1);
  tickets_[static_cast<size_t>(bucket)] =
      context_.sequence->gather(bucket, shard_bytes, &Stepper::run_direction_gather, this);
}

// A bucket's directions are gathered while the bucket before is orthogonalised.
void Stepper::update_by_matrices() {
  const plan::Placement& placement = context_.plan->placement;
  const int32_t buckets = context_.plan->trained_buckets;
  const bool whole = !placement.optimizer_sharded;
  matrices_.prepare(groups_, rates_, lr_override_, gradient_factor_);
  for (int32_t b = 0; whole && b < buckets; ++b) issue_gradient_gather(b);
  const int64_t start = now_ns();
  for (int32_t b = 0; b < buckets; ++b) {
    if (whole) context_.sequence->wait_gather(tickets_[static_cast<size_t>(b)]);
    matrices_.directions(b);
    if (!whole && matrices_.has_matrix(b)) issue_direction_gather(b);
    if (b > 0) apply_matrices(b - 1);
  }
  if (buckets > 0) apply_matrices(buckets - 1);
  report_.update_ns += now_ns() - start;
}

void Stepper::apply_matrices(int32_t bucket) {
  const plan::Placement& placement = context_.plan->placement;
  if (matrices_.has_matrix(bucket)) {
    if (placement.optimizer_sharded) {
      context_.sequence->wait_gather(tickets_[static_cast<size_t>(bucket)]);
    }
    matrices_.apply(bucket);
  }
  if (placement.optimizer_sharded && !placement.parameters_sharded) issue_value_gather(bucket);
}

void Stepper::update_all() {
  if (context_.settings.optimizer.type == config::OptimizerType::kMuon) return update_by_matrices();
  if (context_.settings.optimizer.type == config::OptimizerType::kLamb) {
    return update_by_trust_ratio();
  }
  const plan::Placement& placement = context_.plan->placement;
  const int32_t buckets = context_.plan->trained_buckets;
  const bool whole = !placement.optimizer_sharded;
  // Two gathers are on their way while a bucket is updated: so many have a place to go to.
  for (int32_t b = 0; whole && b < std::min(buckets, 2); ++b) issue_gradient_gather(b);
  // The host reads what the device has reduced.
  if (placement.optimizer_on_host) context_.device->synchronize();
  for (int32_t b = 0; b < buckets; ++b) {
    if (whole) context_.sequence->wait_gather(tickets_[static_cast<size_t>(b)]);
    const int64_t start = now_ns();
    update_.update(b);
    report_.update_ns += now_ns() - start;
    values_.send(b);
    if (whole && b + 2 < buckets) issue_gradient_gather(b + 2);
    if (whole || placement.parameters_sharded) continue;
    values_.wait(b);
    issue_value_gather(b);
  }
  values_.wait_for_all();
}

StepReport Stepper::begin(const StepOptions& options) {
  check_may_step(options, /*host_optimizer=*/true);
  decide(options);
  in_step_ = true;
  if (!report_.skipped) {
    const bool whole = !context_.plan->placement.optimizer_sharded;
    for (int32_t b = 0; whole && b < context_.plan->trained_buckets; ++b) issue_gradient_gather(b);
    for (int32_t b = 0; b < context_.plan->trained_buckets; ++b) {
      if (whole) context_.sequence->wait_gather(tickets_[static_cast<size_t>(b)]);
      const FusedUpdate::Owned owned = update_.owned(b);
      context_.kernels->scale(owned.grad, owned.grad_dtype, gradient_factor_,
                              reinterpret_cast<float*>(owned.grad), owned.end - owned.begin);
    }
  }
  report_.step = steps_.load() + (report_.skipped ? 0 : 1);
  report_.skipped_total = skipped_total_ + (report_.skipped ? 1 : 0);
  report_.bytes_sent = context_.bytes_sent;
  return report_;
}

void Stepper::end() {
  if (!in_step_) fail(ZERO_ERR_INVALID_STATE, "zero_step_end: expected zero_step_begin before");
  if (loans_.open_loans() > 0) {
    fail(ZERO_ERR_INVALID_STATE,
         "zero_step_end: parameters are still on loan: %s; expected zero_params_release",
         loans_.open_text().c_str());
  }
  in_step_ = false;
  const plan::Placement& placement = context_.plan->placement;
  const bool gathers = placement.optimizer_sharded && !placement.parameters_sharded;
  for (int32_t b = 0; !report_.skipped && b < context_.plan->trained_buckets; ++b) {
    values_from_masters(context_, b, 0, context_.bucket(b).elements);
    if (gathers) issue_value_gather(b);
  }
  finish_step();
}

void Stepper::finish_step() {
  if (report_.skipped) {
    ++skipped_total_;
  } else {
    loans_.values_changed();
    context_.sequence->drain();
    for (size_t p = 0; p < param_steps_.size(); ++p) {
      if (update_.active(static_cast<zero_param_id>(p))) ++param_steps_[p];
    }
    ++steps_;
  }
  report_.step = steps_.load();
  report_.skipped_total = skipped_total_;
  report_.gather_ns = gather_ns_.load();
  report_.bytes_sent = context_.bytes_sent;
  context_.bytes_sent = 0;
  reducer_.window_done();
}

void Stepper::gather_values() {
  const plan::Placement& placement = context_.plan->placement;
  if (placement.parameters_sharded) {
    loans_.values_changed();
  } else if (placement.optimizer_sharded) {
    for (int32_t b = 0; b < context_.plan->trained_buckets; ++b) issue_value_gather(b);
  }
  context_.sequence->drain();
}

StepperState Stepper::state() const {
  return {steps_.load(), skipped_total_, loss_scale_, param_steps_};
}

void Stepper::restore(const StepperState& state) {
  steps_ = state.steps;
  skipped_total_ = state.skipped_total;
  param_steps_ = state.param_steps;
  if (loss_scale_rules_.dynamic) loss_scale_ = state.loss_scale;
  context_.set_loss_scale(loss_scale_.scale);
  stepped_once_ = false;
}

double Stepper::param_grad_norm(zero_param_id param) const {
  if (param_norms_.empty()) {
    fail(ZERO_ERR_INVALID_STATE,
         "norms of single parameters are not kept; expected \"libzero\": {\"param_norms\": true}");
  }
  if (param < 0 || param >= static_cast<int32_t>(param_norms_.size())) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "parameter %d does not exist, expected 0 to %d", param,
         static_cast<int32_t>(param_norms_.size()) - 1);
  }
  if (!stepped_once_) fail(ZERO_ERR_INVALID_STATE, "no step has been taken yet");
  return param_norms_[static_cast<size_t>(param)];
}

} // namespace zero::engine

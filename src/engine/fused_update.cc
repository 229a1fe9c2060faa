// SPDX-License-Identifier: BSD-3-Clause
#include "engine/fused_update.h"

#include "base/dtype.h"

namespace zero::engine {
namespace {

constexpr uint64_t kGrainElements = 32 * 1024;

struct Part {
  const FusedUpdate* update;
  int32_t bucket;
  FusedUpdate::Owned owned;
};

} // namespace

FusedUpdate::FusedUpdate(Context& context, const GradientReducer& reducer)
    : context_(context),
      reducer_(reducer),
      active_(context.plan->places.size(), 0),
      constants_(context.plan->places.size()) {}

bool FusedUpdate::is_trained_root(zero_param_id param) const {
  const plan::Parameter& parameter = context_.parameter(param);
  return parameter.root == param && parameter.role == ZERO_PARAM_TRAINED;
}

void FusedUpdate::set_constants(size_t param, const GroupValueTable& groups,
                                const optim::Rates& rates, double lr_override, double grad_factor,
                                int64_t step) {
  const config::OptimizerSettings& optimizer = context_.settings.optimizer;
  const plan::Parameter& parameter = context_.plan->model.parameters()[param];
  const optim::HyperParameters hyper = groups.at_update(parameter.group, rates, lr_override);
  const auto fp32 = [](double value) { return static_cast<float>(value); };
  if (optimizer.type == config::OptimizerType::kSgd) {
    kernels::SgdConstants& sgd = constants_[param].sgd;
    sgd.grad_scale = fp32(grad_factor);
    sgd.lr = fp32(hyper.lr);
    sgd.momentum = context_.plan->settings.optimizer_states > 0 ? fp32(hyper.momentum) : 0;
    sgd.one_minus_dampening = fp32(1 - optimizer.dampening);
    sgd.weight_decay = fp32(hyper.weight_decay);
    sgd.nesterov = optimizer.nesterov;
    sgd.first = step == 1;
    return;
  }
  const optim::AdamStep adam_step = optim::adam_step(hyper, step, optimizer.bias_correction);
  kernels::AdamConstants& adam = constants_[param].adam;
  adam.grad_scale = fp32(grad_factor);
  adam.beta1 = fp32(hyper.beta1);
  adam.one_minus_beta1 = fp32(1 - hyper.beta1);
  adam.beta2 = fp32(hyper.beta2);
  adam.one_minus_beta2 = fp32(1 - hyper.beta2);
  adam.epsilon = fp32(hyper.epsilon);
  adam.step_size = fp32(adam_step.step_size);
  adam.inverse_root_correction2 = fp32(adam_step.inverse_root_correction2);
  adam.decay_factor = fp32(adam_step.decay_factor);
  adam.weight_decay = fp32(hyper.weight_decay);
  adam.decoupled = optimizer.decoupled_decay;
}

FusedUpdate::Owned FusedUpdate::owned(int32_t bucket) const {
  const plan::Bucket& layout = context_.bucket(bucket);
  const plan::Placement& placement = context_.plan->placement;
  const ClassMemory& memory = context_.storage->of_bucket(bucket);
  const uint64_t size = context_.storage->element_bytes(bucket);
  Owned owned;
  if (placement.optimizer_sharded) {
    owned.begin = static_cast<uint64_t>(context_.rank()) * layout.shard_elements;
    owned.end = owned.begin + layout.shard_elements;
    owned.home = layout.shard_offset;
    owned.grad = reducer_.shard(bucket);
    owned.grad_dtype = reducer_.shard_dtype(bucket);
  } else {
    owned.end = layout.elements;
    owned.home = layout.class_offset;
    owned.grad = context_.storage->gathered_grads(bucket);
    owned.grad_dtype = reducer_.shard_dtype(bucket);
  }
  if (memory.params != nullptr) {
    owned.value =
        memory.params +
        (placement.parameters_sharded ? layout.shard_offset : layout.class_offset + owned.begin) *
            size;
  }
  if (memory.master != nullptr) owned.master = memory.master + owned.home;
  return owned;
}

std::byte* FusedUpdate::value_of(const Owned& owned, const plan::Run& run,
                                 uint64_t element_bytes) const {
  if (owned.value == nullptr) {
    return static_cast<std::byte*>(context_.parameter(run.param).data) +
           run.param_offset * element_bytes;
  }
  return owned.value + (run.bucket_offset - owned.begin) * element_bytes;
}

void FusedUpdate::update(int32_t bucket) {
  Part part{this, bucket, owned(bucket)};
  context_.device->parallel(part.owned.end - part.owned.begin, kGrainElements,
                            &FusedUpdate::run_part, &part);
}

void FusedUpdate::run_part(void* context, uint64_t begin, uint64_t end, int32_t) {
  const Part& part = *static_cast<Part*>(context);
  const FusedUpdate& self = *part.update;
  const Context& shared = self.context_;
  const Owned& owned = part.owned;
  const plan::Bucket& layout = shared.bucket(part.bucket);
  const zero_dtype dtype = shared.plan->classes[static_cast<size_t>(layout.parameter_class)].dtype;
  const uint64_t size = dtype_bytes(dtype);
  const ClassMemory& memory = shared.storage->of_bucket(part.bucket);
  const bool sgd = shared.settings.optimizer.type == config::OptimizerType::kSgd;
  shared.plan->for_each_run(part.bucket, owned.begin + begin, owned.begin + end,
                            [&](const plan::Run& run) {
                              const auto param = static_cast<size_t>(run.param);
                              if (self.active_[param] == 0) return;
                              const uint64_t at = run.bucket_offset - owned.begin;
                              kernels::UpdateStreams streams;
                              std::byte* value = self.value_of(owned, run, size);
                              if (owned.master == nullptr) {
                                streams.master = reinterpret_cast<float*>(value);
                              } else {
                                streams.master = owned.master + at;
                                streams.model = value;
                                streams.model_dtype = dtype;
                              }
                              streams.grad = owned.grad + at * dtype_bytes(owned.grad_dtype);
                              streams.grad_dtype = owned.grad_dtype;
                              for (size_t k = 0; k < memory.states.size() && k < 2; ++k) {
                                streams.state[k] = memory.states[k] + owned.home + at;
                              }
                              streams.count = run.count;
                              if (sgd) {
                                shared.kernels->sgd(streams, self.constants_[param].sgd);
                              } else {
                                shared.kernels->adam(streams, self.constants_[param].adam);
                              }
                            });
}

} // namespace zero::engine

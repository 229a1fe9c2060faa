// SPDX-License-Identifier: BSD-3-Clause
#include "engine/fused_update.h"

#include "kernels/host/blocked_update.h"

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
  switch (optimizer.type) {
    case config::OptimizerType::kAdagrad: {
      kernels::AdagradConstants& adagrad = constants_[param].adagrad;
      adagrad.grad_scale = fp32(grad_factor);
      adagrad.lr = fp32(hyper.lr);
      adagrad.epsilon = fp32(hyper.epsilon);
      adagrad.weight_decay = fp32(hyper.weight_decay);
      return;
    }
    case config::OptimizerType::kLion: {
      kernels::LionConstants& lion = constants_[param].lion;
      lion.grad_scale = fp32(grad_factor);
      lion.beta1 = fp32(hyper.beta1);
      lion.one_minus_beta1 = fp32(1 - hyper.beta1);
      lion.beta2 = fp32(hyper.beta2);
      lion.one_minus_beta2 = fp32(1 - hyper.beta2);
      lion.lr = fp32(hyper.lr);
      lion.decay_factor = fp32(1 - hyper.lr * hyper.weight_decay);
      return;
    }
    case config::OptimizerType::kLamb: {
      kernels::LambConstants& lamb = constants_[param].lamb;
      lamb.grad_scale = fp32(grad_factor);
      lamb.beta1 = fp32(hyper.beta1);
      lamb.one_minus_beta1 = fp32(1 - hyper.beta1);
      lamb.beta2 = fp32(hyper.beta2);
      lamb.one_minus_beta2 = fp32(1 - hyper.beta2);
      lamb.epsilon = fp32(hyper.epsilon);
      lamb.weight_decay = fp32(hyper.weight_decay);
      lamb.epsilon_inside_sqrt = optimizer.epsilon_inside_sqrt;
      return;
    }
    default:
      set_adam(param, hyper, grad_factor, step);
  }
}

void FusedUpdate::set_adam(size_t param, const optim::HyperParameters& hyper, double grad_factor,
                           int64_t step) {
  const config::OptimizerSettings& optimizer = context_.settings.optimizer;
  const auto fp32 = [](double value) { return static_cast<float>(value); };
  optim::HyperParameters rates = hyper;
  // Beside Muon the auxiliary AdamW has a rate of its own; the schedule moves both alike.
  if (optimizer.type == config::OptimizerType::kMuon) {
    rates.lr = optimizer.lr > 0 ? optimizer.muon_adam_lr * (hyper.lr / optimizer.lr) : 0;
  }
  const optim::AdamStep adam_step = optim::adam_step(rates, step, optimizer.bias_correction);
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
  if (memory.host_params != nullptr) {
    owned.value = memory.host_params + layout.shard_offset * size;
  } else if (memory.params != nullptr) {
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
  context_.host().parallel(part.owned.end - part.owned.begin, kGrainElements,
                           &FusedUpdate::run_part, &part);
}

namespace {

// One optimizer's kernel, for whole streams and for the blocks of narrow ones.
template <auto Member, typename Constants>
void call(const kernels::KernelTable& table, const kernels::UpdateStreams& streams,
          const void* constants) {
  (table.*Member)(streams, *static_cast<const Constants*>(constants));
}

kernels::BlockUpdate kernel_of(config::OptimizerType type) {
  using kernels::KernelTable;
  switch (type) {
    case config::OptimizerType::kSgd:
      return &call<&KernelTable::sgd, kernels::SgdConstants>;
    case config::OptimizerType::kAdagrad:
      return &call<&KernelTable::adagrad, kernels::AdagradConstants>;
    case config::OptimizerType::kLion:
      return &call<&KernelTable::lion, kernels::LionConstants>;
    default:
      return &call<&KernelTable::adam, kernels::AdamConstants>;
  }
}

} // namespace

bool FusedUpdate::is_narrow(int32_t bucket) const {
  const plan::ParameterClass& klass =
      context_.plan->classes[static_cast<size_t>(context_.bucket(bucket).parameter_class)];
  return is_16_bit_float(klass.dtype) &&
         (!klass.keeps_master || klass.master_is_remainder || klass.state_dtype != ZERO_DTYPE_FP32);
}

void FusedUpdate::update_run(int32_t bucket, const Owned& owned, const plan::Run& run,
                             const kernels::UpdateStreams& streams) const {
  const kernels::BlockUpdate kernel = kernel_of(context_.settings.optimizer.type);
  const Constants& constants = constants_[static_cast<size_t>(run.param)];
  if (!is_narrow(bucket)) return kernel(*context_.kernels, streams, &constants);
  const plan::ParameterClass& klass =
      context_.plan->classes[static_cast<size_t>(context_.bucket(bucket).parameter_class)];
  const ClassMemory& memory = context_.storage->of_bucket(bucket);
  const uint64_t home = owned.home + (run.bucket_offset - owned.begin);
  std::byte* value = value_of(owned, run, dtype_bytes(klass.dtype));
  kernels::WideStreams wide;
  if (klass.master_is_remainder) {
    wide.remainder = memory.remainder + home;
    wide.ties = memory.ties + home / 32;
    wide.model = value;
  } else if (klass.keeps_master) {
    wide.master = memory.master + home;
    wide.model = value;
  } else {
    wide.master = value;
    wide.master_dtype = klass.dtype;
  }
  wide.model_dtype = klass.dtype;
  wide.grad = streams.grad;
  wide.grad_dtype = streams.grad_dtype;
  wide.state_dtype = klass.state_dtype;
  for (size_t k = 0; k < memory.states.size() && k < 2; ++k) {
    wide.state[k] = memory.states[k] + home * dtype_bytes(klass.state_dtype);
  }
  wide.count = run.count;
  kernels::update_blocked(*context_.kernels, wide, kernel, &constants);
}

void FusedUpdate::run_part(void* context, uint64_t begin, uint64_t end, int32_t) {
  const Part& part = *static_cast<Part*>(context);
  const FusedUpdate& self = *part.update;
  self.for_each_active_run(part.bucket, part.owned, begin, end,
                           [&](const plan::Run& run, const kernels::UpdateStreams& streams) {
                             self.update_run(part.bucket, part.owned, run, streams);
                           });
}

} // namespace zero::engine

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/stored_state.h"

#include "engine/state_ranges.h"

namespace zero::engine {
namespace {

using checkpoint::StoredPart;

// Every rank writes its shard, at stage 0 as well; rank 0 writes the buffers.
std::vector<checkpoint::Range> ranges_of(const plan::Plan& plan, zero_param_id root) {
  std::vector<checkpoint::Range> ranges;
  const uint64_t elements = plan.model.parameters()[static_cast<size_t>(root)].elements;
  const plan::ParameterPlace& place = plan.places[static_cast<size_t>(root)];
  if (elements == 0) return ranges;
  if (place.bucket < 0) return {{0, elements, 0, 0}};
  const uint64_t shard = plan.buckets[static_cast<size_t>(place.bucket)].shard_elements;
  const uint64_t first = place.offset / shard, last = (place.offset + elements - 1) / shard;
  for (uint64_t rank = first; rank <= last; ++rank) {
    const zero_span span = plan.shard_span(root, static_cast<int32_t>(rank));
    ranges.push_back({span.offset, span.count, 0, static_cast<int32_t>(rank)});
  }
  return ranges;
}

checkpoint::StoredGroup stored_group(const plan::Group& group) {
  const plan::GroupValues& v = group.values;
  return {group.name, v.frozen, v.lr,      v.lr_scale, v.weight_decay,
          v.beta1,    v.beta2,  v.epsilon, v.momentum};
}

} // namespace

std::string optimizer_family(const config::Settings& settings) {
  switch (settings.optimizer.type) {
    case config::OptimizerType::kNone:
      return "";
    case config::OptimizerType::kAdam:
    case config::OptimizerType::kAdamW:
      return "adam";
    case config::OptimizerType::kSgd:
      return "sgd";
    case config::OptimizerType::kAdagrad:
      return "adagrad";
    case config::OptimizerType::kLion:
      return "lion";
    case config::OptimizerType::kLamb:
      return "lamb";
    case config::OptimizerType::kMuon:
      return "muon";
    case config::OptimizerType::kHost:
      return "host";
  }
  return "";
}

std::vector<std::string> state_names(const config::Settings& settings, int32_t states) {
  std::vector<std::string> names;
  switch (settings.optimizer.type) {
    case config::OptimizerType::kAdam:
    case config::OptimizerType::kAdamW:
    case config::OptimizerType::kLamb:
      return {"exp_avg", "exp_avg_sq"};
    case config::OptimizerType::kLion:
      return {"exp_avg"};
    case config::OptimizerType::kAdagrad:
      return {"sum"};
    case config::OptimizerType::kMuon: // its momentum, or Adam's two where it steps by Adam
      return {"momentum_buffer", "exp_avg_sq"};
    case config::OptimizerType::kSgd:
      if (states > 0) names.push_back("momentum_buffer");
      return names;
    default:
      for (int32_t i = 0; i < states; ++i) names.push_back("state" + std::to_string(i));
      return names;
  }
}

checkpoint::Manifest describe_state(const Context& context, Stepper& stepper, bool weights_only) {
  const plan::Plan& plan = *context.plan;
  const StepperState state = stepper.state();
  checkpoint::Manifest manifest;
  manifest.writer =
      format("libzero %d.%d.%d", ZERO_VERSION_MAJOR, ZERO_VERSION_MINOR, ZERO_VERSION_PATCH);
  manifest.step = state.steps;
  manifest.skipped_total = state.skipped_total;
  manifest.world_size = context.comm->size();
  manifest.stage = context.settings.stage;
  manifest.weights_only = weights_only;
  if (!weights_only) {
    manifest.optimizer = optimizer_family(context.settings);
    manifest.state_names = state_names(context.settings, plan.settings.optimizer_states);
    manifest.has_loss_scale = context.settings.compute_dtype == ZERO_DTYPE_FP16;
    manifest.loss_scale = {state.loss_scale.scale, state.loss_scale.credits,
                           state.loss_scale.iteration, state.loss_scale.last_overflow};
  }
  for (const plan::Group& group : stepper.groups().groups()) {
    manifest.groups.push_back(stored_group(group));
  }
  const std::vector<plan::Parameter>& parameters = plan.model.parameters();
  manifest.parameters.reserve(parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    const plan::Parameter& from = parameters[p];
    const auto id = static_cast<zero_param_id>(p);
    checkpoint::StoredParameter to;
    to.name = from.name;
    to.shape = from.shape;
    to.elements = from.elements;
    to.dtype = from.dtype;
    to.role = from.role;
    to.group = from.group;
    to.tied_to = from.tied_to;
    to.steps = state.param_steps[static_cast<size_t>(from.root)];
    if (from.root == id) {
      const std::vector<checkpoint::Range> ranges = ranges_of(plan, id);
      const bool full = from.role == ZERO_PARAM_TRAINED && !weights_only;
      const auto add = [&](zero_part kind, int32_t index) {
        const plan::ParameterPlace& place = plan.places[p];
        zero_dtype dtype = from.dtype;
        if (kind != ZERO_PART_VALUE) {
          const plan::Bucket& bucket = plan.buckets[static_cast<size_t>(place.bucket)];
          const plan::ParameterClass& klass =
              plan.classes[static_cast<size_t>(bucket.parameter_class)];
          dtype = kind == ZERO_PART_STATE ? klass.state_dtype
                  : klass.keeps_master    ? ZERO_DTYPE_FP32
                                          : klass.dtype;
        }
        to.parts.push_back(StoredPart{kind, index, dtype, ranges});
      };
      add(full ? ZERO_PART_MASTER : ZERO_PART_VALUE, 0);
      for (size_t i = 0; full && i < manifest.state_names.size(); ++i) {
        add(ZERO_PART_STATE, static_cast<int32_t>(i));
      }
    }
    manifest.parameters.push_back(std::move(to));
  }
  return manifest;
}

} // namespace zero::engine

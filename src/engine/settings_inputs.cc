// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings_inputs.h"

#include <cmath>

#include "base/dtype.h"
#include "comm/communicator.h"
#include "engine/matrix_update.h"

namespace zero::engine {
namespace {

int32_t states_of(const config::OptimizerSettings& optimizer) {
  switch (optimizer.type) {
    case config::OptimizerType::kNone:
      return 0;
    case config::OptimizerType::kSgd:
      return optimizer.momentum != 0 ? 1 : 0;
    case config::OptimizerType::kAdagrad:
    case config::OptimizerType::kLion:
      return 1;
    case config::OptimizerType::kHost:
      return optimizer.host_states;
    default:
      return 2;
  }
}

} // namespace

bool needs_all_gradients(const config::Settings& settings) {
  return settings.optimizer.type == config::OptimizerType::kHost ||
         settings.optimizer.type == config::OptimizerType::kLamb ||
         settings.optimizer.type == config::OptimizerType::kMuon;
}

plan::PlanSettings plan_settings(const config::Settings& settings,
                                 const PlanSurroundings& surroundings,
                                 const plan::ParameterTable& model) {
  plan::PlanSettings plan;
  plan.stage = settings.stage;
  plan.group.ranks = surroundings.ranks;
  plan.group.kind = surroundings.comm;
  plan.group.own_staging_bytes = comm::staging_bytes_for(surroundings.comm, surroundings.ranks);
  plan.reduce_bucket_elements = settings.reduce_bucket_elements;
  plan.prefetch_elements = settings.prefetch_bucket_elements;
  plan.persistence_threshold_elements = settings.persistence_threshold_elements;
  plan.model_persistence_elements = settings.model_persistence_threshold_elements;
  plan.max_live_elements = settings.max_live_elements;
  plan.live_elements = settings.live_elements;
  plan.open_buckets = settings.open_buckets;
  plan.staging_segment_bytes = settings.staging_segment_bytes;
  plan.optimizer_states = states_of(settings.optimizer);
  plan.all_gradients_at_once = needs_all_gradients(settings);
  if (settings.optimizer.type == config::OptimizerType::kMuon) {
    plan.gathers_directions = true;
    plan.matrix_workspace_elements = matrix_workspace_elements(model);
  }
  plan.optimizer_present = settings.optimizer.type != config::OptimizerType::kNone;
  plan.accumulation_dtype = settings.accumulation_dtype;
  plan.master_dtype = settings.master_dtype;
  plan.master_is_remainder = settings.master_is_remainder;
  plan.state_dtype = settings.state_dtype;
  // Micro-batches of 16-bit gradients are added in the accumulation dtype.  The gradients
  // themselves have no room for it, so at stages 0 and 1 each micro-batch is reduced, as at 2
  // and 3.
  const bool wider_sums =
      is_16_bit_float(settings.compute_dtype) && settings.accumulation_dtype == ZERO_DTYPE_FP32;
  plan.reproducible_stage = settings.reproducible_stage || wider_sums;
  plan.param_norms = settings.param_norms;
  plan.checkpoint_background = settings.checkpoint_background;
  plan.own_allocator = surroundings.own_allocator;
  plan.place = surroundings.place;
  plan.offload_optimizer = settings.offload_optimizer;
  plan.offload_param = settings.offload_param;
  plan.offload_pinned = settings.offload_pinned;
  return plan;
}

optim::ScheduleParameters schedule_parameters(const config::Settings& settings) {
  const config::ScheduleSettings& from = settings.schedule;
  optim::ScheduleParameters to;
  to.schedule = static_cast<optim::Schedule>(static_cast<int>(from.type));
  to.warmup_is_linear = from.warmup_is_linear;
  to.warmup_min_lr = from.warmup_min_lr;
  to.warmup_max_lr = from.warmup_max_lr;
  to.warmup_max_is_base = !from.has_warmup_max_lr;
  to.warmup_steps = from.warmup_steps;
  to.total_steps = from.total_steps;
  to.warmup_min_ratio = from.warmup_min_ratio;
  to.cosine_min_ratio = from.cosine_min_ratio;
  to.cycle_min_lr = from.cycle_min_lr;
  to.cycle_max_lr = from.cycle_max_lr;
  to.decay_lr_rate = from.decay_lr_rate;
  to.cycle_first_steps = from.cycle_first_steps;
  to.cycle_second_steps = from.cycle_second_steps;
  to.cycle_first_stairs = from.cycle_first_stairs;
  to.cycle_second_stairs = from.cycle_second_stairs;
  to.decay_steps = from.decay_steps;
  to.cycle_momentum = from.cycle_momentum;
  to.cycle_min_momentum = from.cycle_min_momentum;
  to.cycle_max_momentum = from.cycle_max_momentum;
  to.decay_momentum_rate = from.decay_momentum_rate;
  to.range_min_lr = from.range_min_lr;
  to.range_step_rate = from.range_step_rate;
  to.range_steps = from.range_steps;
  to.range_staircase = from.range_staircase;
  return to;
}

optim::LossScaleRules loss_scale_rules(const config::Settings& settings) {
  const config::LossScaleSettings& from = settings.loss_scale;
  optim::LossScaleRules rules;
  if (settings.compute_dtype != ZERO_DTYPE_FP16) return rules;
  rules.dynamic = from.dynamic;
  rules.initial = from.dynamic ? std::ldexp(1.0, from.initial_power) : from.static_scale;
  rules.minimum = from.min_scale;
  rules.window = from.window;
  rules.hysteresis = from.hysteresis;
  rules.consecutive_hysteresis = from.consecutive_hysteresis;
  return rules;
}

optim::Rates scheduled_rates(const config::Settings& settings, int64_t update) {
  const config::OptimizerSettings& optimizer = settings.optimizer;
  const double momentum =
      optimizer.type == config::OptimizerType::kSgd ? optimizer.momentum : optimizer.beta1;
  return optim::rates_at(schedule_parameters(settings), optimizer.lr, momentum, update);
}

} // namespace zero::engine

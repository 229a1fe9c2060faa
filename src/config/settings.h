// What a checked config means: plain values, no holes, no strings to parse again.  The reader
// fills it from a DeepSpeed file; the engine turns it into the inputs of plan, optim and comm.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <string>
#include <vector>

namespace zero::config {

enum class OptimizerType { kNone, kAdam, kAdamW, kSgd, kAdagrad, kLion, kLamb, kMuon, kHost };

// "optimizer".  What a type does not use keeps its default.
struct OptimizerSettings {
  OptimizerType type = OptimizerType::kNone;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double momentum = 0; // SGD, Muon
  double dampening = 0; // SGD
  bool nesterov = false; // SGD
  bool decoupled_decay = true; // false: L2 (Adam with adam_w_mode false)
  bool bias_correction = true;
  double max_coefficient = 10; // LAMB
  double min_coefficient = 0.01; // LAMB
  bool epsilon_inside_sqrt = false; // LAMB
  double muon_lr = 0.02;
  double muon_adam_lr = 3e-4;
  int32_t host_states = 0; // "libzero.host": fp32 states a parameter
};

enum class ScheduleType {
  kConstant,
  kWarmup,
  kWarmupDecay,
  kWarmupCosine,
  kOneCycle,
  kLrRangeTest
};

// "scheduler": section 2.5 of the DeepSpeed behaviour reference.
struct ScheduleSettings {
  ScheduleType type = ScheduleType::kConstant;
  bool warmup_is_linear = false; // else logarithmic
  double warmup_min_lr = 0;
  double warmup_max_lr = 0.001;
  bool has_warmup_max_lr = false; // WarmupLR: absent means the optimizer's rate
  int64_t warmup_steps = 1000;
  int64_t total_steps = 0;
  double warmup_min_ratio = 0;
  double cosine_min_ratio = 1e-4;
  double cycle_min_lr = 0, cycle_max_lr = 0, decay_lr_rate = 0;
  int64_t cycle_first_steps = 2000, cycle_second_steps = 2000;
  int64_t cycle_first_stairs = 0, cycle_second_stairs = 0, decay_steps = 0;
  bool cycle_momentum = true;
  double cycle_min_momentum = 0.8, cycle_max_momentum = 0.9, decay_momentum_rate = 0;
  double range_min_lr = 1e-3, range_step_rate = 1.0;
  int64_t range_steps = 2000;
  bool range_staircase = false;
};

// "fp16": the loss-scale state machine of section 2.9.
struct LossScaleSettings {
  bool enabled = false; // fp16
  bool dynamic = true;
  double static_scale = 1;
  int32_t initial_power = 16;
  int64_t window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1;
};

enum class InitialValues { kRank, kVerify, kLocal }; // "libzero.initial_values"

struct Settings {
  int32_t stage = 0;
  // Batch triple; 0 where the file does not say (an embedded runtime needs only accumulation).
  int64_t train_batch = 0, micro_batch = 0;
  int64_t accumulation_steps = 1;
  zero_dtype compute_dtype = ZERO_DTYPE_FP32; // fp16 or bf16 when that section is enabled
  zero_dtype accumulation_dtype = ZERO_DTYPE_FP32;
  zero_dtype communication_dtype = 0; // 0: the parameter's own
  bool check_grad_overflow = true; // bf16
  // Of 16-bit parameters: a master of their own dtype is the parameter itself.
  zero_dtype master_dtype = ZERO_DTYPE_FP32;
  zero_dtype state_dtype = ZERO_DTYPE_FP32;
  bool master_is_remainder = false; // "libzero.master_weights": "remainder"
  double gradient_clipping = 0; // 0: off
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1;
  bool reduce_is_sum = false; // gradient_allreduce_op: "sum"

  // zero_optimization, in elements
  uint64_t reduce_bucket_elements = 500000000;
  uint64_t prefetch_bucket_elements = 50000000;
  uint64_t persistence_threshold_elements = 100000;
  uint64_t model_persistence_threshold_elements = UINT64_MAX;
  uint64_t max_live_elements = 1000000000;
  int32_t overlap_comm = -1; // -1: where the communicator allows; 0, 1
  // To host memory, for ranks on a device: the optimizer from stage 1, parameters at stage 3.
  bool offload_optimizer = false, offload_param = false;
  bool offload_pinned = false; // masters and states too; what a device copies always is

  // libzero
  int32_t open_buckets = 4; // 0: "all"
  uint64_t live_elements = 0; // "libzero.live_parameters"; 0: the plan's default
  uint64_t memory_budget = 0; // bytes a rank and place; 0: none
  bool reproducible_stage = false; // "libzero.reproducible": "stage"
  bool param_norms = false;
  bool checkpoint_background = false;
  bool missing_gradients_are_zero = false;
  InitialValues initial_values = InitialValues::kRank;
  int32_t initial_rank = 0;
  std::string comm; // "self", "local", ...; "" when the environment decides
  int64_t comm_timeout_ns = 600000000000;
  int32_t threads = 0; // host kernel threads a rank; 0: cores / ranks of this machine
  uint64_t staging_segment_bytes = 4u << 20; // "libzero.staging_segment_bytes"
  bool device_is_host = true; // "libzero.device": "host" | "cuda"

  std::string group; // "libzero.group": where local ranks meet; "" when the environment decides

  // Asked for by a valid file, but not carried out by this build, as "key = value". Whoever starts
  // a runtime refuses unless it is empty, so that nothing is downgraded in silence. Element types
  // are not in here: the runtime judges them with the model at hand.
  std::vector<std::string> not_in_this_build;

  OptimizerSettings optimizer;
  ScheduleSettings schedule;
  LossScaleSettings loss_scale;
};

} // namespace zero::config

// One function a section; every key that acts is read here and nowhere else.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/settings_of.h"

#include <algorithm>

#include "base/dtype.h"
#include "config/optimizer_rules.h"
#include "config/option_value.h"

namespace zero::config {
namespace {

// "float32" and "fp32" alike; 0 for "".
zero_dtype dtype_of(const std::string& name) {
  if (name == "float32") return ZERO_DTYPE_FP32;
  if (name == "float16") return ZERO_DTYPE_FP16;
  if (name == "bfloat16") return ZERO_DTYPE_BF16;
  return dtype_from_name(name);
}

class Reader {
 public:
  Reader(const Judgement& judgement, std::string prefix)
      : judgement_(judgement), prefix_(std::move(prefix)) {}

  void read(const char* name, double* place) const {
    const std::optional<double> value = number_of(node(name).text);
    if (value) *place = *value;
  }
  void read(const char* name, int64_t* place) const {
    *place = judgement_.integer(prefix_ + name, *place);
  }
  void read(const char* name, int32_t* place) const {
    *place = static_cast<int32_t>(judgement_.integer(prefix_ + name, *place));
  }
  void read(const char* name, uint64_t* place) const {
    *place =
        static_cast<uint64_t>(judgement_.integer(prefix_ + name, static_cast<int64_t>(*place)));
  }
  void read(const char* name, bool* place) const { *place = node(name).truth; }
  std::string text(const char* name) const { return judgement_.text(prefix_ + name); }
  bool given(const char* name) const { return judgement_.given(prefix_ + name); }
  const Node& node(const char* name) const { return judgement_.at(prefix_ + name); }

 private:
  const Judgement& judgement_;
  std::string prefix_;
};

void read_top(const Reader& top, Settings* settings) {
  top.read("train_batch_size", &settings->train_batch);
  top.read("train_micro_batch_size_per_gpu", &settings->micro_batch);
  top.read("gradient_accumulation_steps", &settings->accumulation_steps);
  top.read("gradient_clipping", &settings->gradient_clipping);
  top.read("prescale_gradients", &settings->prescale_gradients);
  top.read("gradient_predivide_factor", &settings->gradient_predivide_factor);
  settings->reduce_is_sum = top.text("gradient_allreduce_op") == "sum";
  settings->communication_dtype = dtype_of(top.text("communication_data_type"));
}

void read_precision(const Reader& top, Settings* settings) {
  const bool fp16 = top.node("fp16.enabled").truth;
  const bool bf16 = top.node("bf16.enabled").truth;
  settings->compute_dtype = fp16 ? ZERO_DTYPE_FP16 : bf16 ? ZERO_DTYPE_BF16 : ZERO_DTYPE_FP32;
  const zero_dtype accumulation = dtype_of(top.text("data_types.grad_accum_dtype"));
  const bool narrow_master = (fp16 && top.node("fp16.fp16_master_weights_and_grads").truth) ||
                             (bf16 && top.node("bf16.bf16_master_weights_and_grads").truth);
  if (narrow_master) {
    settings->master_dtype = settings->compute_dtype;
    settings->accumulation_dtype = settings->compute_dtype;
  }
  if (bf16 && top.node("bf16.bf16_optimizer_states").truth) {
    settings->state_dtype = ZERO_DTYPE_BF16;
  }
  if (accumulation != 0) settings->accumulation_dtype = accumulation;
  top.read("bf16.check_grad_overflow", &settings->check_grad_overflow);
}

void read_loss_scale(const Reader& fp16, LossScaleSettings* scale) {
  fp16.read("enabled", &scale->enabled);
  double static_scale = 0;
  fp16.read("loss_scale", &static_scale);
  scale->dynamic = static_scale == 0;
  scale->static_scale = scale->dynamic ? 1 : static_scale;
  fp16.read("initial_scale_power", &scale->initial_power);
  fp16.read("loss_scale_window", &scale->window);
  fp16.read("hysteresis", &scale->hysteresis);
  fp16.read("consecutive_hysteresis", &scale->consecutive_hysteresis);
  fp16.read("min_loss_scale", &scale->min_scale);
}

void read_zero(const Reader& zero, Settings* settings) {
  zero.read("stage", &settings->stage);
  zero.read("reduce_bucket_size", &settings->reduce_bucket_elements);
  zero.read("stage3_prefetch_bucket_size", &settings->prefetch_bucket_elements);
  zero.read("stage3_param_persistence_threshold", &settings->persistence_threshold_elements);
  if (zero.given("stage3_model_persistence_threshold")) {
    zero.read("stage3_model_persistence_threshold",
              &settings->model_persistence_threshold_elements);
  }
  zero.read("stage3_max_live_parameters", &settings->max_live_elements);
  const Node& overlap = zero.node("overlap_comm");
  settings->overlap_comm = overlap.is(NodeKind::kNull) ? -1 : overlap.truth ? 1 : 0;
  settings->offload_optimizer = zero.text("offload_optimizer.device") == "cpu";
  settings->offload_param = zero.text("offload_param.device") == "cpu";
  zero.read("offload_optimizer.pin_memory", &settings->offload_pinned);
}

void read_initial_values(const std::string& text, Settings* settings) {
  if (text == "verify") {
    settings->initial_values = InitialValues::kVerify;
  } else if (text == "local") {
    settings->initial_values = InitialValues::kLocal;
  } else {
    settings->initial_values = InitialValues::kRank;
    settings->initial_rank = static_cast<int32_t>(integer_of(text.substr(5)).value_or(0));
  }
}

void read_libzero(const Reader& own, Settings* settings) {
  const Node& buckets = own.node("open_buckets");
  settings->open_buckets =
      buckets.text == "all" ? 0 : static_cast<int32_t>(integer_of(buckets.text).value_or(4));
  own.read("live_parameters", &settings->live_elements);
  own.read("memory_budget", &settings->memory_budget);
  settings->reproducible_stage = own.text("reproducible") == "stage";
  own.read("param_norms", &settings->param_norms);
  own.read("checkpoint_background", &settings->checkpoint_background);
  settings->master_is_remainder = own.text("master_weights") == "remainder";
  settings->missing_gradients_are_zero = own.text("missing_gradients") == "zero";
  read_initial_values(own.text("initial_values"), settings);
  const std::string comm = own.text("comm");
  settings->comm = comm == "auto" ? "" : comm;
  double seconds = 600;
  own.read("comm_timeout_seconds", &seconds);
  settings->comm_timeout_ns = static_cast<int64_t>(seconds * 1e9);
  own.read("threads", &settings->threads);
  own.read("staging_segment_bytes", &settings->staging_segment_bytes);
  settings->device_is_host = own.text("device") == "host";
  settings->group = own.text("group");
}

void read_optimizer(const Reader& section, OptimizerSettings* optimizer) {
  optimizer->type = optimizer_type(section.text("type")).value_or(OptimizerType::kNone);
  const Node& betas = section.node("params.betas");
  optimizer->beta1 = *number_of(betas.items[0].text);
  optimizer->beta2 = *number_of(betas.items[1].text);
  section.read("params.lr", &optimizer->lr);
  section.read("params.eps", &optimizer->epsilon);
  section.read("params.weight_decay", &optimizer->weight_decay);
  section.read("params.momentum", &optimizer->momentum);
  section.read("params.dampening", &optimizer->dampening);
  section.read("params.nesterov", &optimizer->nesterov);
  section.read("params.bias_correction", &optimizer->bias_correction);
  bool adam_w_mode = true;
  section.read("params.adam_w_mode", &adam_w_mode);
  const bool is_l2 = optimizer->type == OptimizerType::kAdam && !adam_w_mode;
  optimizer->decoupled_decay = !is_l2 && optimizer->type != OptimizerType::kSgd &&
                               optimizer->type != OptimizerType::kAdagrad;
  section.read("params.max_coeff", &optimizer->max_coefficient);
  section.read("params.min_coeff", &optimizer->min_coefficient);
  section.read("params.eps_inside_sqrt", &optimizer->epsilon_inside_sqrt);
  section.read("params.muon_lr", &optimizer->muon_lr);
  section.read("params.adam_lr", &optimizer->muon_adam_lr);
  section.read("params.states", &optimizer->host_states);
}

void read_warmup(const Reader& params, ScheduleSettings* schedule) {
  schedule->warmup_is_linear = params.text("warmup_type") == "linear";
  params.read("warmup_min_lr", &schedule->warmup_min_lr);
  params.read("warmup_max_lr", &schedule->warmup_max_lr);
  schedule->has_warmup_max_lr =
      schedule->type != ScheduleType::kWarmup || params.given("warmup_max_lr");
  params.read("warmup_num_steps", &schedule->warmup_steps);
  params.read("total_num_steps", &schedule->total_steps);
  params.read("warmup_min_ratio", &schedule->warmup_min_ratio);
  params.read("cos_min_ratio", &schedule->cosine_min_ratio);
}

void read_cycle(const Reader& params, ScheduleSettings* schedule) {
  params.read("cycle_min_lr", &schedule->cycle_min_lr);
  params.read("cycle_max_lr", &schedule->cycle_max_lr);
  params.read("decay_lr_rate", &schedule->decay_lr_rate);
  params.read("cycle_first_step_size", &schedule->cycle_first_steps);
  params.read("cycle_second_step_size", &schedule->cycle_second_steps);
  params.read("cycle_first_stair_count", &schedule->cycle_first_stairs);
  params.read("cycle_second_stair_count", &schedule->cycle_second_stairs);
  params.read("decay_step_size", &schedule->decay_steps);
  params.read("cycle_momentum", &schedule->cycle_momentum);
  params.read("cycle_min_mom", &schedule->cycle_min_momentum);
  params.read("cycle_max_mom", &schedule->cycle_max_momentum);
  params.read("decay_mom_rate", &schedule->decay_momentum_rate);
}

void read_range_test(const Reader& params, ScheduleSettings* schedule) {
  params.read("lr_range_test_min_lr", &schedule->range_min_lr);
  params.read("lr_range_test_step_size", &schedule->range_steps);
  params.read("lr_range_test_step_rate", &schedule->range_step_rate);
  params.read("lr_range_test_staircase", &schedule->range_staircase);
}

} // namespace

Settings settings_of(const Judgement& judgement) {
  Settings settings;
  const Reader top(judgement, "");
  read_top(top, &settings);
  read_precision(top, &settings);
  read_loss_scale(Reader(judgement, "fp16."), &settings.loss_scale);
  read_zero(Reader(judgement, "zero_optimization."), &settings);
  read_libzero(Reader(judgement, "libzero."), &settings);
  read_optimizer(Reader(judgement, "optimizer."), &settings.optimizer);
  settings.schedule.type =
      schedule_type(judgement.text("scheduler.type")).value_or(ScheduleType::kConstant);
  const Reader params(judgement, "scheduler.params.");
  read_warmup(params, &settings.schedule);
  read_cycle(params, &settings.schedule);
  read_range_test(params, &settings.schedule);
  settings.not_in_this_build = judgement.later;
  return settings;
}

} // namespace zero::config

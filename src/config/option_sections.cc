// Sections of a DeepSpeed file, and spellings that stand for others.
// SPDX-License-Identifier: BSD-3-Clause
#include "config/option_table.h"

namespace zero::config {
namespace {

using enum Standing;
using enum Regime;

const Section kSections[] = {
    {"", kLax, kActs, "", ""},
    {"fp16", kStrict, kActs, "", ""},
    {"bf16", kStrict, kActs, "", ""},
    {"data_types", kLax, kActs, "", ""},
    {"optimizer", kLax, kActs, "", ""},
    {"optimizer.params", kLax, kActs, "", ""},
    {"scheduler", kLax, kActs, "", ""},
    {"scheduler.params", kLax, kActs, "", ""},
    {"zero_optimization", kStrict, kActs, "", ""},
    {"zero_optimization.offload_optimizer", kStrict, kActs, "", ""},
    {"zero_optimization.offload_param", kStrict, kActs, "", ""},
    {"zero_optimization.leaf_module", kStrict, kActs, "", ""},
    {"zero_optimization.zenflow", kFree, kRefuse, "", "asynchronous updates are not implemented"},
    {"zero_optimization.zeropp_loco_param", kFree, kRefuse, "",
     "quantised communication is not implemented"},
    {"libzero", kStrict, kActs, "", ""},
    {"checkpoint", kLax, kActs, " parallel_write writer ", ""},
    {"amp", kLax, kActs, "", ""},
    {"torch_autocast", kLax, kActs, " dtype lower_precision_safe_modules ", ""},
    {"aio", kFree, kActs, "", "tuning of NVMe offload"},

    {"activation_checkpointing", kFree, kWarn, "", "the host program owns its activations"},
    {"autotuning", kFree, kWarn, "", ""},
    {"tensorboard", kStrict, kWarn, " enabled output_path job_name ", ""},
    {"wandb", kStrict, kWarn, " enabled group team project ", ""},
    {"csv_monitor", kStrict, kWarn, " enabled output_path job_name ", ""},
    {"comet", kStrict, kWarn,
     " enabled samples_log_interval project workspace api_key experiment_name experiment_key "
     "online "
     "mode ",
     ""},
    {"comms_logger", kStrict, kWarn, " enabled prof_all prof_ops verbose debug ", ""},
    {"timers", kFree, kActs, "", "libzero prints nothing"},
    {"flops_profiler", kFree, kWarn, "", ""},
    {"eigenvalue", kFree, kWarn, "", ""},
    {"pipeline", kFree, kWarn, "", "there is no pipeline"},
    {"nebula", kFree, kWarn, "", ""},
    {"datastates_ckpt", kFree, kWarn, "", ""},
    {"hybrid_engine", kStrict, kWarn,
     " enabled max_out_tokens inference_tp_size release_inference_cache pin_parameters "
     "tp_gather_partition_size enable_cuda_graph ",
     ""},
    {"compile", kStrict, kWarn,
     " deepcompile free_activation free_activation_threshold offload_activation "
     "offload_activation_pin_memory offload_opt_states double_buffer symmetric_memory debug_log "
     "offload_parameters sync_before_reduce sync_after_reduce sync_before_allgather "
     "sync_after_allgather keep_int_input_tensors keep_all_input_tensors passes enabled backend "
     "kwargs ",
     ""},
    {"elasticity", kFree, kRefuse, "", "it chooses the batch size"},
    {"progressive_layer_drop", kFree, kRefuse, "", ""},
    {"curriculum_learning", kFree, kRefuse, "", ""},
    {"data_efficiency", kFree, kRefuse, "", ""},
    {"compression_training", kFree, kRefuse, "", ""},
    {"quantize_training", kFree, kRefuse, "", ""},
    {"sparse_attention", kFree, kRefuse, "", ""},
    {"tensor_parallel", kFree, kRefuse, "", ""},
    {"expert_parallel", kFree, kRefuse, "", ""},
    {"weight_quantization", kFree, kRefuse, "", ""},
};

const Alias kAliases[] = {
    // DeepSpeed reads both names of these.
    {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size",
     nullptr},
    {"zero_optimization.param_persistence_threshold",
     "zero_optimization.stage3_param_persistence_threshold", nullptr},
    {"zero_optimization.model_persistence_threshold",
     "zero_optimization.stage3_model_persistence_threshold", nullptr},
    {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters",
     nullptr},
    {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance",
     nullptr},
    {"zero_optimization.gather_16bit_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save", nullptr},
    {"zero_optimization.module_granularity_threshold",
     "zero_optimization.stage3_module_granularity_threshold", nullptr},
    {"zero_optimization.use_all_reduce_for_fetch_params",
     "zero_optimization.stage3_use_all_reduce_for_fetch_params", nullptr},
    {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential",
     nullptr},
    // Old spellings.
    {"bfloat16", "bf16", "old spelling of bf16"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save",
     "deprecated -> stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device",
     "deprecated -> offload_optimizer.device=cpu"},
    {"zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device",
     "deprecated -> offload_param.device=cpu"},
};

} // namespace

std::span<const Section> sections() {
  return kSections;
}
std::span<const Alias> aliases() {
  return kAliases;
}

} // namespace zero::config

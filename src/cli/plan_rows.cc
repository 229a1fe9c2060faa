// A plan for each stage and choice of offload through zero_plan_create: what a run of it would
// hold, to the byte. SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_rows.h"

#include <algorithm>
#include <cstdlib>

#include "cli/last_error.h"

namespace zero::cli {
namespace {

constexpr const char* kOptimizerDevice = "zero_optimization.offload_optimizer.device";
constexpr const char* kParamDevice = "zero_optimization.offload_param.device";
constexpr const char* kStage = "zero_optimization.stage";

bool names_device(const zero_config* config, const char* key) {
  const std::string value = config_value(config, key);
  return !value.empty() && value != "null" && value != "\"none\"";
}

Offload configs_offload(const zero_config* config) {
  if (names_device(config, kParamDevice)) return Offload::kOptimizerAndParams;
  return names_device(config, kOptimizerDevice) ? Offload::kOptimizer : Offload::kNone;
}

class Planner {
 public:
  Planner(zero_config* config, const PlannedModel& model, const PlanLimits& limits)
      : config_(config), model_(model), limits_(limits) {}

  bool row(int32_t stage, Offload offload, PlanRow* row, std::string* error) const;

 private:
  bool plan(PlanRow* row, std::string* error) const;
  void judge(PlanRow* row) const;
  uint64_t host_share() const {
    return limits_.host_bytes / static_cast<uint64_t>(limits_.ranks_per_host);
  }

  zero_config* config_;
  const PlannedModel& model_;
  const PlanLimits& limits_;
};

bool Planner::plan(PlanRow* row, std::string* error) const {
  const std::string number = std::to_string(row->stage);
  const auto where = [](bool offloaded) { return offloaded ? "\"cpu\"" : "\"none\""; };
  zero_plan_options options;
  zero_plan_options_init(&options, sizeof options);
  options.world_size = limits_.world;
  options.place = limits_.on_host ? ZERO_PLACE_HOST : ZERO_PLACE_DEVICE;
  options.comm = limits_.world == 1 ? ZERO_COMM_SELF
                 : limits_.on_host  ? ZERO_COMM_LOCAL
                                    : ZERO_COMM_NCCL;
  zero_plan* plan = nullptr;
  if (zero_config_set(config_, kStage, number.c_str()) != ZERO_OK ||
      zero_config_set(config_, kOptimizerDevice, where(row->offload != Offload::kNone)) !=
          ZERO_OK ||
      zero_config_set(config_, kParamDevice, where(row->offload == Offload::kOptimizerAndParams)) !=
          ZERO_OK ||
      zero_plan_create(config_, model_.model.get(), &options, &plan) != ZERO_OK) {
    *error = "stage " + number + ": " + last_error_text();
    return false;
  }
  for (size_t use = 0; use < kMemoryUses; ++use) {
    for (const zero_place place : {ZERO_PLACE_HOST, ZERO_PLACE_PINNED, ZERO_PLACE_DEVICE}) {
      uint64_t bytes = 0;
      zero_plan_memory(plan, 0, place, static_cast<zero_memory_use>(use), &bytes);
      (place == options.place ? row->device : row->host)[use] += bytes;
    }
  }
  zero_plan_destroy(plan);
  return true;
}

void Planner::judge(PlanRow* row) const {
  const uint64_t needed = row->device[ZERO_MEMORY_TOTAL] + limits_.reserve_bytes;
  const uint64_t limit = limits_.on_host ? host_share() : limits_.gpu_bytes;
  if (limit == 0) return;
  const char* place = limits_.on_host ? "host memory" : "GPU memory";
  if (!limits_.on_host && limits_.host_bytes > 0 && row->host[ZERO_MEMORY_TOTAL] > host_share()) {
    row->binds = "model states in host memory";
  } else if (needed > limit) {
    row->binds = std::string("model states in ") + place;
  } else {
    row->fits = true;
    row->free_bytes = limit - needed;
    row->binds = std::string("activations in ") + place;
  }
  if (limits_.activation_bytes == 0) {
    if (row->fits) row->binds = "";
    return;
  }
  row->micro_batch = static_cast<int64_t>(
      std::min<uint64_t>(row->free_bytes / limits_.activation_bytes, INT64_MAX));
}

bool Planner::row(int32_t stage, Offload offload, PlanRow* row, std::string* error) const {
  row->stage = stage;
  row->offload = offload;
  row->runs =
      offload == Offload::kNone && (limits_.on_host || zero_has_feature(ZERO_FEATURE_CUDA) != 0);
  if (!plan(row, error)) return false;
  judge(row);
  return true;
}

std::vector<Offload> choices_at(int32_t stage, const PlanLimits& limits) {
  if (stage == 0 || limits.on_host) return {Offload::kNone};
  if (stage < 3) return {Offload::kNone, Offload::kOptimizer};
  return {Offload::kNone, Offload::kOptimizer, Offload::kOptimizerAndParams};
}

} // namespace

const char* offload_name(Offload offload) {
  if (offload == Offload::kNone) return "-";
  return offload == Offload::kOptimizer ? "optimizer" : "optimizer+params";
}

const char* memory_use_word(size_t use) {
  constexpr const char* kWords[kMemoryUses] = {"total",   "params",    "grads",
                                               "master",  "optimizer", "gathered",
                                               "buckets", "staging",   "tables"};
  return kWords[use];
}

bool plan_rows(zero_config* config, const PlannedModel& model, const PlanLimits& limits,
               std::vector<PlanRow>* rows, std::string* error) {
  const auto stage_of_file = static_cast<int32_t>(std::atoi(config_value(config, kStage).c_str()));
  const Offload offload_of_file = configs_offload(config);
  const Planner planner(config, model, limits);
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const Offload offload : choices_at(stage, limits)) {
      rows->emplace_back();
      if (!planner.row(stage, offload, &rows->back(), error)) return false;
      rows->back().is_configs = stage == stage_of_file && offload == offload_of_file;
    }
  }
  return true;
}

} // namespace zero::cli

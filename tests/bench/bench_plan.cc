// How long a plan takes and what it holds: 10^12 parameters in 10^5 tensors on 4,096 ranks, and
// GPT-2's size for comparison.  One JSON object a line; baseline is the goal: a second, 500 MB.
// SPDX-License-Identifier: BSD-3-Clause
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "plan/plan.h"

namespace {

using zero::plan::Parameter;
using zero::plan::ParameterTable;
using zero::plan::Plan;
using zero::plan::PlanSettings;

ParameterTable tensors(int32_t count, std::vector<int64_t> shape, bool alternate) {
  ParameterTable model;
  for (int32_t i = 0; i < count; ++i) {
    Parameter parameter;
    parameter.name = "model.layers." + std::to_string(i / 10) + ".weight." + std::to_string(i);
    parameter.shape = shape;
    parameter.unit = i / 10;
    if (alternate && i % 2 == 1) parameter.dtype = ZERO_DTYPE_BF16;
    model.add(std::move(parameter));
  }
  return model;
}

size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

void report(const std::string& name, double value, const char* unit, double baseline) {
  std::printf("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"baseline\":%.6g,\"ratio\":%.4g}\n",
              name.c_str(), value, unit, baseline, value / baseline);
}

void measure(const std::string& name, const ParameterTable& model, int32_t stage, int32_t ranks) {
  PlanSettings settings;
  settings.stage = stage;
  settings.group.ranks = ranks;
  settings.group.kind = ZERO_COMM_NCCL;
  settings.optimizer_present = true;
  settings.optimizer_states = 2;
  const size_t before = heap_bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto plan = Plan::make(settings, model);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const size_t held = heap_bytes() - before;
  report(name + "_seconds", taken.count(), "s", 1);
  report(name + "_held", static_cast<double>(held) / 1e6, "MB", 500);
  // Not below 1: what the plan says its tables take at most, against what it holds.
  report(name + "_tables_bound", static_cast<double>(plan->memory.bytes[ZERO_MEMORY_TABLES]) / 1e6,
         "MB", static_cast<double>(held) / 1e6);
}

} // namespace

int main() {
  try {
    const ParameterTable small = tensors(148, {768, 1092}, false);
    measure("plan_gpt2_size_4_ranks_stage_2", small, 2, 4);
    for (const bool alternate : {false, true}) {
      const ParameterTable model = tensors(100000, {10000, 1000}, alternate);
      for (const int32_t stage : {0, 1, 2, 3}) {
        measure("plan_1e12_4096_ranks_stage_" + std::to_string(stage) +
                    (alternate ? "_two_dtypes" : ""),
                model, stage, 4096);
      }
    }
  } catch (const zero::Error& error) {
    std::fprintf(stderr, "bench_plan: %s\n", error.what());
    return 1;
  }
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_estimates.h"

#include <algorithm>

namespace zero::cli {
namespace {

constexpr double kSafety = 1.5;

constexpr const char* kStage2Offload =
    "DeepSpeed counts the 16-bit parameters alone; ours adds the gradient buckets that are open, "
    "and its host bytes are 18 a parameter (gradients, masters, two states, the 16-bit parameters "
    "on "
    "their way) without the factor 1.5";
constexpr const char* kStage2 =
    "18 bytes over the ranks hold a 16-bit and an fp32 gradient, ours only the fp32 one (16 over "
    "the ranks), and adds the open buckets; DeepSpeed's host bytes are a copy while the model is "
    "built, which a plan does not count";
constexpr const char* kStage3All =
    "4 bytes of the largest layer are its 16-bit parameters and gradients; ours plans loans for "
    "the two largest units or 1/8 of the model, what is kept whole, and the open buckets; on the "
    "host DeepSpeed counts 18 bytes with the factor 1.5 and, without zero.Init, a whole fp32 model "
    "a rank, ours 18 bytes: 2 parameters, 4 gradients, 4 masters, 8 states";
constexpr const char* kStage3Optimizer =
    "as with all offloaded, and both keep the 16-bit shard of the parameters on the GPU, of which "
    "ours has a second copy on the host, where it is updated";
constexpr const char* kStage3 =
    "the 18 bytes over the ranks are ours too (2 parameters, 4 gradients, 4 masters, 8 states); "
    "where DeepSpeed adds 4 bytes of the largest layer, ours adds loans, what is kept whole and "
    "the open buckets";

double real(uint64_t value) {
  return static_cast<double>(value);
}

uint64_t bytes(double value) {
  return value < 0x1p63 ? static_cast<uint64_t>(value) : uint64_t{1} << 63;
}

} // namespace

std::vector<Estimate> deepspeed_estimates(const ModelCounts& counts, const PlanLimits& limits) {
  const double p = real(counts.parameters), layer = real(counts.largest_layer);
  const double world = limits.world, gpus = limits.ranks_per_host;
  const double machines = (limits.world + limits.ranks_per_host - 1) / limits.ranks_per_host;
  std::vector<Estimate> list;
  const auto add = [&list](int32_t stage, Offload offload, bool zero_init, double gpu, double host,
                           const char* difference) {
    list.push_back({stage, offload, zero_init, bytes(gpu), bytes(host), difference});
  };
  add(2, Offload::kOptimizer, false, 2 * p, p * std::max(4 * world, 16.0) * kSafety,
      kStage2Offload);
  add(2, Offload::kNone, false, 2 * p + real(bytes(18 * p / world)), p * 4 * gpus * kSafety,
      kStage2);
  const double all = 18 / machines, optimizer = 16 / machines;
  for (const bool zero_init : {true, false}) {
    add(3, Offload::kOptimizerAndParams, zero_init, 4 * layer,
        p * (zero_init ? all : std::max(4 * gpus, all)) * kSafety, kStage3All);
  }
  for (const bool zero_init : {true, false}) {
    add(3, Offload::kOptimizer, zero_init, 4 * layer + real(bytes(2 * p / world)),
        p * (zero_init ? optimizer : std::max(4 * gpus, optimizer)) * kSafety, kStage3Optimizer);
  }
  for (const bool zero_init : {true, false}) {
    add(3, Offload::kNone, zero_init, 4 * layer + real(bytes(18 * p / world)),
        (zero_init ? layer : p) * 4 * gpus * kSafety, kStage3);
  }
  return list;
}

} // namespace zero::cli

// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.h"

#include "base/dtype.h"
#include "base/error.h"
#include "plan/bucket_layout.h"
#include "plan/fingerprint.h"
#include "plan/gather_units.h"
#include "plan/gradient_pool.h"
#include "plan/loan_slots.h"
#include "plan/memory_plan.h"
#include "plan/parameter_class.h"

namespace zero::plan {
namespace {

void check_settings(const PlanSettings& settings) {
  if (settings.stage < 0 || settings.stage > 3) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: stage is %d, expected 0, 1, 2 or 3", settings.stage);
  }
  if (settings.group.ranks < 1) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: number of ranks is %d, expected >= 1",
         settings.group.ranks);
  }
  if (settings.group.kind == ZERO_COMM_SELF && settings.group.ranks != 1) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: the self communicator has 1 rank, not %d",
         settings.group.ranks);
  }
  if (settings.group.kind < ZERO_COMM_SELF || settings.group.kind > ZERO_COMM_USER) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: communicator kind is %d, expected 1 to 5",
         settings.group.kind);
  }
  if (settings.alignment == 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: alignment is 0, expected >= 1 element");
  }
  if (settings.open_buckets < 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: open_buckets is %d, expected >= 1, or 0 for all",
         settings.open_buckets);
  }
  if (settings.optimizer_states < 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: optimizer states is %d, expected >= 0",
         settings.optimizer_states);
  }
  if (settings.staging_segment_bytes == 0 || settings.staging_segment_bytes % 64 != 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "plan: staging_segment_bytes is %llu, expected a multiple of 64 above 0",
         static_cast<unsigned long long>(settings.staging_segment_bytes));
  }
  const zero_dtype dtype = settings.accumulation_dtype;
  if (dtype != ZERO_DTYPE_FP32 && !is_16_bit_float(dtype)) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: accumulation dtype is %s, expected fp32, fp16 or bf16",
         dtype_name(dtype));
  }
  if (settings.place != ZERO_PLACE_HOST && settings.place != ZERO_PLACE_DEVICE) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "plan: place is %d, expected 1 (host) or 3 (device)",
         settings.place);
  }
}

void check_storage(const Placement& placement, const ParameterTable& model) {
  if (!placement.parameters_sharded) return;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.storage != ZERO_STORAGE_CALLER) continue;
    fail(ZERO_ERR_CONFIG_CONFLICT,
         "param \"%s\": its storage is the caller's, but with sharded parameters (stage 3) nobody "
         "holds it whole; expected library storage, or stage 0, 1 or 2",
         parameter.name.c_str());
  }
}

// For roots from the buckets, for aliases from their roots.
void place_parameters(const ParameterTable& model, const std::vector<Bucket>& buckets,
                      std::vector<ParameterPlace>& places) {
  for (const Bucket& bucket : buckets) {
    for (const BucketMember& member : bucket.members) {
      places[static_cast<size_t>(member.param)] = ParameterPlace{bucket.number, member.offset};
    }
  }
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = places[static_cast<size_t>(model.parameters()[i].root)];
  }
}

Placement placement_of(const PlanSettings& settings) {
  Placement placement = Placement::of_stage(settings.stage);
  if (settings.place != ZERO_PLACE_DEVICE) return placement;
  placement.optimizer_on_host =
      settings.offload_optimizer && settings.optimizer_present && placement.optimizer_sharded;
  placement.parameters_on_host = settings.offload_param && placement.parameters_sharded;
  return placement;
}

} // namespace

std::shared_ptr<const Plan> Plan::make(const PlanSettings& settings, const ParameterTable& model) {
  check_settings(settings);
  auto plan = std::make_shared<Plan>();
  plan->settings = settings;
  plan->placement = placement_of(settings);
  plan->model = model;
  check_storage(plan->placement, model);

  const bool at_units = plan->placement.parameters_sharded;
  const std::vector<zero_param_id> order = model.backward_order();
  plan->units = make_units(model, plan->unit_of);
  plan->classes = make_classes(settings, model, order);
  plan->buckets = make_buckets(settings, model, order,
                               at_units ? plan->unit_of : std::vector<int32_t>(), plan->classes);
  for (const Bucket& bucket : plan->buckets) {
    if (plan->classes[static_cast<size_t>(bucket.parameter_class)].trained) ++plan->trained_buckets;
  }
  plan->places.resize(model.parameters().size());
  const uint64_t buffer_bytes = place_buffers(model, plan->places);
  place_parameters(model, plan->buckets, plan->places);
  plan->pools = make_pools(settings, plan->placement, model, plan->classes, plan->buckets,
                           plan->units.size());
  if (at_units) {
    place_units(settings, model, plan->classes, plan->buckets, plan->units);
    plan->loans = make_loan_slots(settings, plan->units, plan->live_elements);
  }
  plan->memory = make_memory_plan(*plan, buffer_bytes);
  plan->fingerprint = plan_fingerprint(*plan);
  return plan;
}

const Region* Plan::find_region(RegionKind kind, int32_t parameter_class, int32_t state) const {
  for (const Region& region : memory.regions) {
    if (region.kind == kind && region.parameter_class == parameter_class && region.state == state) {
      return &region;
    }
  }
  return nullptr;
}

} // namespace zero::plan

// SPDX-License-Identifier: BSD-3-Clause
#include "plan/memory_plan.h"

#include <algorithm>

#include "base/checked.h"
#include "base/dtype.h"

namespace zero::plan {
namespace {

constexpr uint64_t kRegionAlignment = 64; // bytes
constexpr uint64_t kStateBytes = 4; // masters and optimizer states are fp32

uint64_t bytes_of(uint64_t elements, uint64_t size) {
  return checked_multiply(elements, size, "bytes of a region");
}

// Puts regions behind one another, each place and use in an allocation of its own.
class RegionWriter {
 public:
  explicit RegionWriter(MemoryPlan& memory) : memory_(memory) {}

  void add(RegionKind kind, zero_memory_use use, uint64_t bytes, int32_t klass = -1,
           int32_t state = -1) {
    add_at(memory_.place, kind, use, bytes, klass, state);
  }
  void add_at(zero_place place, RegionKind kind, zero_memory_use use, uint64_t bytes,
              int32_t klass = -1, int32_t state = -1) {
    uint64_t& end = memory_.placed[place][use];
    Region region{kind, use, klass, state, round_up(end, kRegionAlignment), bytes, place};
    end = checked_add(region.offset, bytes, "bytes of an allocation");
    memory_.regions.push_back(region);
  }

 private:
  MemoryPlan& memory_;
};

bool lent_from_library(const ParameterClass& klass) {
  return klass.storage == ZERO_STORAGE_LIBRARY;
}

// Two segments, neither bigger than the plan's largest bucket that passes through them.
uint64_t staging_bytes(const Plan& plan, uint64_t largest_bucket_bytes) {
  const uint64_t needed = round_up(largest_bucket_bytes, kRegionAlignment);
  return 2 * std::min(plan.settings.staging_segment_bytes, needed);
}

// Two buckets in turn; for the host program's own optimizer all of them, which it sees at once.
uint64_t gathered_gradient_elements(const Plan& plan, const ParameterClass& klass) {
  if (plan.settings.all_gradients_at_once && !plan.placement.optimizer_sharded) {
    return klass.elements;
  }
  uint64_t largest = 0;
  for (const int32_t bucket : klass.buckets) {
    largest = std::max(largest, plan.buckets[static_cast<size_t>(bucket)].elements);
  }
  return std::min(klass.elements, 2 * largest);
}

// Masters and states of a class; owned: elements of each.
void add_optimizer_regions(const Plan& plan, int32_t index, uint64_t owned, RegionWriter& writer) {
  const ParameterClass& klass = plan.classes[static_cast<size_t>(index)];
  const PlanSettings& settings = plan.settings;
  const zero_place home = !plan.placement.optimizer_on_host ? settings.place
                          : settings.offload_pinned         ? ZERO_PLACE_PINNED
                                                            : ZERO_PLACE_HOST;
  if (klass.keeps_master) {
    // A remainder is 16 bits and one for ties; owned is a multiple of 32.
    const uint64_t bytes = klass.master_is_remainder
                               ? checked_add(2 * owned, owned / 8, "remainder")
                               : bytes_of(owned, kStateBytes);
    writer.add_at(home, RegionKind::kMaster, ZERO_MEMORY_MASTER, bytes, index);
  }
  for (int32_t state = 0; state < settings.optimizer_states; ++state) {
    writer.add_at(home, RegionKind::kState, ZERO_MEMORY_OPTIMIZER,
                  bytes_of(owned, dtype_bytes(klass.state_dtype)), index, state);
  }
  if (!plan.placement.optimizer_on_host || plan.placement.parameters_on_host) return;
  // Pinned: the device fetches what was updated.
  writer.add_at(ZERO_PLACE_PINNED, RegionKind::kHostParams,
                klass.keeps_master ? ZERO_MEMORY_PARAMS : ZERO_MEMORY_MASTER,
                bytes_of(owned, dtype_bytes(klass.dtype)), index);
}

void add_gradient_regions(const Plan& plan, int32_t index, RegionWriter& writer) {
  const ParameterClass& klass = plan.classes[static_cast<size_t>(index)];
  const Placement& placement = plan.placement;
  const uint64_t size = dtype_bytes(klass.dtype);
  const uint64_t accumulated = dtype_bytes(klass.accumulation_dtype);
  // Of what is reduced, where the update reads it; the device writes it there.
  const zero_place sums = placement.optimizer_on_host ? ZERO_PLACE_PINNED : plan.settings.place;
  if (placement.gradients_sharded) {
    writer.add_at(sums, RegionKind::kGrads, ZERO_MEMORY_GRADS,
                  bytes_of(klass.shard_elements, accumulated), index);
    writer.add(RegionKind::kPool, ZERO_MEMORY_BUCKETS,
               bytes_of(plan.pools[static_cast<size_t>(index)].elements(), size), index);
    return;
  }
  writer.add(RegionKind::kGrads, ZERO_MEMORY_GRADS, bytes_of(klass.elements, size), index);
  const bool other_dtype = klass.accumulation_dtype != klass.dtype;
  if (plan.settings.reproducible_stage || other_dtype || placement.optimizer_on_host) {
    writer.add_at(sums, RegionKind::kExtraShard,
                  placement.optimizer_on_host ? ZERO_MEMORY_GRADS : ZERO_MEMORY_BUCKETS,
                  bytes_of(klass.shard_elements, accumulated), index);
  }
}

void add_class_regions(const Plan& plan, int32_t index, RegionWriter& writer) {
  const ParameterClass& klass = plan.classes[static_cast<size_t>(index)];
  const Placement& placement = plan.placement;
  const uint64_t held = placement.parameters_sharded ? klass.shard_elements : klass.elements;
  if (lent_from_library(klass)) {
    writer.add_at(placement.parameters_on_host ? ZERO_PLACE_PINNED : plan.settings.place,
                  RegionKind::kParams, ZERO_MEMORY_PARAMS, bytes_of(held, dtype_bytes(klass.dtype)),
                  index);
  }
  if (!klass.trained) return;
  add_gradient_regions(plan, index, writer);
  // Sums or directions that no other memory can hold whole.
  const bool sums = !placement.optimizer_sharded && klass.accumulation_dtype != klass.dtype;
  if (sums || (placement.optimizer_sharded && plan.settings.gathers_directions)) {
    writer.add(
        RegionKind::kGatheredGrads, ZERO_MEMORY_BUCKETS,
        bytes_of(gathered_gradient_elements(plan, klass), dtype_bytes(klass.accumulation_dtype)),
        index);
  }
  if (!plan.settings.optimizer_present) return;
  const uint64_t owned = placement.optimizer_sharded ? klass.shard_elements : klass.elements;
  add_optimizer_regions(plan, index, owned, writer);
}

// What a rank's piece of a checkpoint holds: its shard of masters (or values) and states, the
// buffers, and the padding of each part to a page.
uint64_t checkpoint_bytes(const Plan& plan, uint64_t buffer_bytes) {
  constexpr uint64_t kPage = 4096;
  const auto states = static_cast<uint64_t>(plan.settings.optimizer_states);
  uint64_t bytes = checked_add(buffer_bytes, (1 + states) * kPage, "checkpoint staging");
  for (const ParameterClass& klass : plan.classes) {
    const uint64_t first = klass.keeps_master ? kStateBytes : dtype_bytes(klass.dtype);
    const uint64_t each =
        klass.trained ? first + states * dtype_bytes(klass.state_dtype) : dtype_bytes(klass.dtype);
    // A range starts at 64 bytes: where the alignment is less, as in tests, it is padded.
    const uint64_t starts = plan.settings.alignment % 32 == 0 ? 0 : klass.members.size();
    bytes = checked_add(bytes, bytes_of(klass.shard_elements, each), "checkpoint staging");
    bytes = checked_add(bytes, starts * (1 + states) * kRegionAlignment, "checkpoint staging");
  }
  return round_up(bytes, kPage);
}

void add_staging(const Plan& plan, MemoryPlan& memory, RegionWriter& writer) {
  const RankGroup& group = plan.settings.group;
  if (group.ranks == 1) return;
  const bool foreign = plan.settings.own_allocator && group.kind == ZERO_COMM_LOCAL;
  bool any_caller = false;
  uint64_t largest_trained = 0, largest_gathered = 0;
  for (const Bucket& bucket : plan.buckets) {
    const ParameterClass& klass = plan.classes[static_cast<size_t>(bucket.parameter_class)];
    const uint64_t bytes = bytes_of(bucket.elements, dtype_bytes(klass.dtype));
    const bool caller = klass.storage == ZERO_STORAGE_CALLER;
    any_caller = any_caller || caller;
    if (klass.trained) largest_trained = std::max(largest_trained, bytes);
    if (caller || foreign) largest_gathered = std::max(largest_gathered, bytes);
  }
  if (foreign) {
    writer.add(RegionKind::kReduceStaging, ZERO_MEMORY_STAGING,
               staging_bytes(plan, largest_trained));
  }
  if (foreign || any_caller) {
    writer.add(RegionKind::kGatherStaging, ZERO_MEMORY_STAGING,
               staging_bytes(plan, largest_gathered));
  }
  memory.communicator_staging_bytes = group.own_staging_bytes;
  uint64_t& staging = memory.placed[memory.place][ZERO_MEMORY_STAGING];
  staging = checked_add(staging, group.own_staging_bytes, "staging bytes");
}

void add_up(MemoryPlan& memory) {
  for (const zero_place place : kPlacesHeld) {
    uint64_t(&at)[16] = memory.placed[place];
    for (int32_t use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; ++use) {
      at[ZERO_MEMORY_TOTAL] = checked_add(at[ZERO_MEMORY_TOTAL], at[use], "bytes of a rank");
      memory.bytes[use] = checked_add(memory.bytes[use], at[use], "bytes of a rank");
    }
    memory.bytes[ZERO_MEMORY_TOTAL] =
        checked_add(memory.bytes[ZERO_MEMORY_TOTAL], at[ZERO_MEMORY_TOTAL], "bytes of a rank");
  }
}

} // namespace

bool MemoryPlan::takes_part_in_collectives(zero_memory_use use, const Placement& placement) {
  switch (use) {
    case ZERO_MEMORY_PARAMS: // gathered into, or, sharded, gathered from
      return !placement.parameters_on_host;
    case ZERO_MEMORY_STAGING:
      return true;
    case ZERO_MEMORY_GRADS: // whole ones are reduced where they lie, a shard is a result
      return !placement.gradients_sharded;
    case ZERO_MEMORY_BUCKETS: // the pool, and what sums and directions are gathered from
      return true;
    case ZERO_MEMORY_GATHERED:
      return placement.parameters_sharded;
    default:
      return false;
  }
}

uint64_t MemoryPlan::allocation_bytes(zero_place at, zero_memory_use use) const {
  uint64_t end = 0;
  for (const Region& region : regions) {
    if (region.place == at && region.use == use) end = std::max(end, region.offset + region.bytes);
  }
  return end;
}

uint64_t place_buffers(const ParameterTable& model, std::vector<ParameterPlace>& places) {
  uint64_t end = 0;
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    const Parameter& parameter = model.parameters()[i];
    if (parameter.role != ZERO_PARAM_BUFFER || parameter.storage != ZERO_STORAGE_LIBRARY) continue;
    if (parameter.root != static_cast<zero_param_id>(i)) {
      places[i] = places[static_cast<size_t>(parameter.root)];
      continue;
    }
    places[i] = ParameterPlace{-1, round_up(end, kRegionAlignment)};
    end = checked_add(places[i].offset, parameter.elements * dtype_bytes(parameter.dtype),
                      "bytes of buffers");
  }
  return end;
}

MemoryPlan make_memory_plan(const Plan& plan, uint64_t buffer_bytes) {
  MemoryPlan memory;
  memory.place = plan.settings.place;
  RegionWriter writer(memory);
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    add_class_regions(plan, static_cast<int32_t>(c), writer);
  }
  if (buffer_bytes > 0) {
    writer.add(RegionKind::kBufferParams, ZERO_MEMORY_PARAMS, buffer_bytes);
  }
  if (plan.placement.parameters_sharded) {
    const LoanSlots& loans = plan.loans;
    writer.add(RegionKind::kLoanSlots, ZERO_MEMORY_GATHERED,
               loans.bytes() - loans.persistent_bytes);
    writer.add(RegionKind::kPersistent, ZERO_MEMORY_GATHERED, loans.persistent_bytes);
  }
  if (plan.settings.matrix_workspace_elements > 0) {
    writer.add(RegionKind::kMatrixWorkspace, ZERO_MEMORY_OPTIMIZER,
               bytes_of(plan.settings.matrix_workspace_elements, kStateBytes));
  }
  if (plan.settings.checkpoint_background) {
    uint64_t caller_bytes = 0; // of buffers that lie in the host program's memory
    for (size_t p = 0; p < plan.model.parameters().size(); ++p) {
      const Parameter& parameter = plan.model.parameters()[p];
      const bool own = parameter.root == static_cast<zero_param_id>(p);
      if (parameter.role != ZERO_PARAM_BUFFER || !own) continue;
      if (parameter.storage != ZERO_STORAGE_CALLER) continue;
      caller_bytes += round_up(parameter.elements * dtype_bytes(parameter.dtype), kRegionAlignment);
    }
    // Read by the threads that write files, filled by the device.
    const bool host = memory.place == ZERO_PLACE_HOST;
    writer.add_at(host ? ZERO_PLACE_HOST : ZERO_PLACE_PINNED, RegionKind::kCheckpointStaging,
                  ZERO_MEMORY_STAGING,
                  checkpoint_bytes(plan, buffer_bytes + kRegionAlignment + caller_bytes));
  }
  add_staging(plan, memory, writer);
  memory.placed[ZERO_PLACE_HOST][ZERO_MEMORY_TABLES] = table_bytes_bound(count_tables(plan));
  add_up(memory);
  return memory;
}

uint64_t loading_bytes(const Plan& plan) {
  constexpr uint64_t kPage = 4096;
  constexpr uint64_t kEdge = 2 * sizeof(uint32_t); // of ties, which two parameters may share
  const auto states = static_cast<uint64_t>(plan.settings.optimizer_states);
  uint64_t bytes = 0;
  for (const ParameterClass& klass : plan.classes) {
    const bool sharded =
        klass.trained ? plan.placement.optimizer_sharded : plan.placement.parameters_sharded;
    const uint64_t written = sharded ? klass.shard_elements : klass.elements;
    uint64_t each = dtype_bytes(klass.dtype);
    if (klass.trained) each += states * dtype_bytes(klass.state_dtype);
    bytes = checked_add(bytes, bytes_of(written, each), "bytes of a load");
    if (!klass.trained || !klass.keeps_master || !plan.settings.optimizer_present) continue;
    const uint64_t masters = klass.master_is_remainder
                                 ? 2 * written + written / 8 + kEdge * klass.members.size()
                                 : bytes_of(written, kStateBytes);
    bytes = checked_add(bytes, masters, "bytes of a load");
  }
  for (size_t p = 0; p < plan.model.parameters().size(); ++p) {
    const Parameter& parameter = plan.model.parameters()[p];
    if (parameter.role != ZERO_PARAM_BUFFER) continue;
    if (parameter.root != static_cast<zero_param_id>(p)) continue;
    bytes = checked_add(bytes, parameter.elements * dtype_bytes(parameter.dtype), "buffers");
  }
  return round_up(bytes, kPage);
}

TableCounts count_tables(const Plan& plan) {
  TableCounts counts;
  counts.parameters = plan.model.parameters().size();
  for (const Parameter& parameter : plan.model.parameters()) {
    counts.text_bytes += parameter.name.size() + parameter.shape.size() * sizeof(int64_t);
  }
  counts.groups = plan.model.groups().size();
  counts.classes = plan.classes.size();
  counts.buckets = plan.buckets.size();
  for (const Bucket& bucket : plan.buckets) counts.members += bucket.members.size();
  counts.units = plan.units.size();
  counts.ranks = static_cast<uint64_t>(plan.settings.group.ranks);
  return counts;
}

uint64_t held_table_bytes(const Plan& plan) {
  const auto list = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  uint64_t bytes = sizeof(Plan) + list(plan.classes) + list(plan.buckets) + list(plan.places) +
                   list(plan.units) + list(plan.unit_of) + list(plan.pools) +
                   list(plan.memory.regions) + list(plan.model.parameters()) +
                   list(plan.model.groups());
  for (const ParameterClass& klass : plan.classes)
    bytes += list(klass.members) + list(klass.buckets);
  for (const Bucket& bucket : plan.buckets) bytes += list(bucket.members);
  for (const GatherUnit& unit : plan.units) {
    bytes += list(unit.members) + list(unit.buckets) + list(unit.slot_offset_bytes);
  }
  for (const Parameter& parameter : plan.model.parameters()) {
    bytes += 2 * parameter.name.capacity() + list(parameter.shape);
  }
  return bytes;
}

// Names are held twice (list and index) in each of two models (the host program's, the plan's).
uint64_t table_bytes_bound(const TableCounts& counts) {
  return (uint64_t{64} << 10) + 1024 * counts.parameters + 4 * counts.text_bytes +
         256 * counts.groups + 512 * counts.classes + 1024 * counts.buckets + 128 * counts.members +
         512 * counts.units + 256 * counts.ranks;
}

} // namespace zero::plan

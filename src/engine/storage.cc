// SPDX-License-Identifier: BSD-3-Clause
#include "engine/storage.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "plan/memory_plan.h"

namespace zero::engine {
namespace {

constexpr zero_memory_use kAllocated[] = {
    ZERO_MEMORY_PARAMS,   ZERO_MEMORY_GRADS,   ZERO_MEMORY_MASTER, ZERO_MEMORY_OPTIMIZER,
    ZERO_MEMORY_GATHERED, ZERO_MEMORY_BUCKETS, ZERO_MEMORY_STAGING};

const char* use_name(zero_memory_use use) {
  switch (use) {
    case ZERO_MEMORY_PARAMS:
      return "parameters";
    case ZERO_MEMORY_GRADS:
      return "gradients";
    case ZERO_MEMORY_MASTER:
      return "master weights";
    case ZERO_MEMORY_OPTIMIZER:
      return "optimizer state";
    case ZERO_MEMORY_GATHERED:
      return "gathered parameters";
    case ZERO_MEMORY_BUCKETS:
      return "gradient buckets";
    default:
      return "staging";
  }
}

} // namespace

Storage::Storage(const plan::Plan& plan, comm::Communicator& comm, device::Device& device,
                 device::Device& host, const zero_allocator* allocator, memory::Ledger& ledger)
    : plan_(plan),
      comm_(comm),
      device_(device),
      host_(host),
      allocator_(allocator),
      ledger_(ledger),
      table_bytes_(plan::held_table_bytes(plan)),
      classes_(plan.classes.size()) {
  for (ClassMemory& memory : classes_) {
    memory.states.assign(static_cast<size_t>(plan.settings.optimizer_states), nullptr);
  }
  shared_from_comm_ = comm.needs_shared_memory() && allocator == nullptr;
  allocations_.reserve(32);
  // The communicator has its staging for as long as this runtime has its plan.
  ledger_.add(plan.memory.place, ZERO_MEMORY_STAGING, plan.memory.communicator_staging_bytes);
  ledger_.add(ZERO_PLACE_HOST, ZERO_MEMORY_TABLES, table_bytes_);
}

Storage::~Storage() {
  ledger_.remove(plan_.memory.place, ZERO_MEMORY_STAGING, plan_.memory.communicator_staging_bytes);
  ledger_.remove(ZERO_PLACE_HOST, ZERO_MEMORY_TABLES, table_bytes_);
  for (const Allocation& allocation : allocations_) {
    ledger_.remove(allocation.place, allocation.use, allocation.bytes);
    if (allocation.from_comm) {
      ledger_.remove_shared(allocation.bytes);
      comm_.release_shared(allocation.memory);
    } else if (allocator_ != nullptr) {
      const int32_t ordinal = allocation.place == ZERO_PLACE_DEVICE ? device_.ordinal() : -1;
      allocator_->release(allocator_->user_data, allocation.place, ordinal, allocation.memory,
                          allocation.bytes);
    } else if (allocation.place == ZERO_PLACE_PINNED) {
      device_.release_pinned(allocation.memory, allocation.bytes);
    } else {
      home(allocation.place).release(allocation.memory, allocation.bytes);
    }
  }
}

bool Storage::may_be_sent(zero_memory_use use) const {
  if (!comm_.needs_shared_memory()) return true;
  return shared_from_comm_ && plan::MemoryPlan::takes_part_in_collectives(use, plan_.placement);
}

void* Storage::allocate(zero_place place, zero_memory_use use, uint64_t bytes) {
  if (allocator_ == nullptr) {
    return place == ZERO_PLACE_PINNED ? device_.allocate_pinned(bytes)
                                      : home(place).allocate(bytes);
  }
  const int32_t ordinal = place == ZERO_PLACE_DEVICE ? device_.ordinal() : -1;
  void* memory = allocator_->allocate(allocator_->user_data, place, ordinal, use, bytes, 4096);
  if (memory == nullptr) {
    fail(ZERO_ERR_OUT_OF_MEMORY, "the host program's allocator refused %llu bytes for %s",
         static_cast<unsigned long long>(bytes), use_name(use));
  }
  home(place).fill(memory, 0, bytes);
  return memory;
}

// What takes part in collectives lies where ranks train.
bool Storage::from_comm(zero_place place, zero_memory_use use) const {
  if (place != plan_.memory.place || !comm_.needs_shared_memory()) return false;
  const bool sent = plan::MemoryPlan::takes_part_in_collectives(use, plan_.placement);
  return use == ZERO_MEMORY_STAGING || (sent && shared_from_comm_);
}

void Storage::allocate_private() {
  for (const zero_place place : plan::kPlacesHeld) {
    for (const zero_memory_use use : kAllocated) {
      const uint64_t bytes = plan_.memory.allocation_bytes(place, use);
      if (bytes == 0 || from_comm(place, use)) continue;
      void* memory = allocate(place, use, bytes);
      allocations_.push_back({place, use, memory, bytes, false});
      ledger_.add(place, use, bytes);
      place_regions(place, use, static_cast<std::byte*>(memory));
    }
  }
}

void Storage::allocate_shared() {
  const zero_place place = plan_.memory.place;
  for (const zero_memory_use use : kAllocated) {
    const uint64_t bytes = plan_.memory.allocation_bytes(place, use);
    if (bytes == 0 || !from_comm(place, use)) continue;
    void* memory = comm_.allocate_shared(bytes);
    allocations_.push_back({place, use, memory, bytes, true});
    ledger_.add(place, use, bytes);
    ledger_.add_shared(bytes);
    place_regions(place, use, static_cast<std::byte*>(memory));
  }
}

void Storage::place_regions(zero_place place, zero_memory_use use, std::byte* base) {
  for (const plan::Region& region : plan_.memory.regions) {
    if (region.place == place && region.use == use) place_region(region, base + region.offset);
  }
}

void Storage::place_region(const plan::Region& region, std::byte* start) {
  ClassMemory* memory =
      region.parameter_class < 0 ? nullptr : &classes_[static_cast<size_t>(region.parameter_class)];
  switch (region.kind) {
    case plan::RegionKind::kParams:
      memory->params = start;
      if (plan_.placement.parameters_on_host) memory->host_params = start;
      break;
    case plan::RegionKind::kHostParams:
      memory->host_params = start;
      break;
    case plan::RegionKind::kBufferParams:
      buffer_params_ = start;
      break;
    case plan::RegionKind::kGrads:
      memory->grads = start;
      break;
    case plan::RegionKind::kExtraShard:
      memory->extra = start;
      break;
    case plan::RegionKind::kMatrixWorkspace:
      matrix_workspace_ = reinterpret_cast<float*>(start);
      break;
    case plan::RegionKind::kGatheredGrads:
      memory->gathered = start;
      break;
    case plan::RegionKind::kMaster:
      if (plan_.classes[static_cast<size_t>(region.parameter_class)].master_is_remainder) {
        const uint64_t owned = region.bytes / 17 * 8; // 2 1/8 bytes each
        memory->remainder = reinterpret_cast<uint16_t*>(start);
        memory->ties = reinterpret_cast<uint32_t*>(start + 2 * owned);
      } else {
        memory->master = reinterpret_cast<float*>(start);
      }
      break;
    case plan::RegionKind::kState:
      memory->states[static_cast<size_t>(region.state)] = start;
      break;
    case plan::RegionKind::kPool:
      memory->pool = start;
      break;
    case plan::RegionKind::kLoanSlots:
      loan_slots_ = start;
      break;
    case plan::RegionKind::kPersistent:
      persistent_ = start;
      break;
    case plan::RegionKind::kReduceStaging:
      reduce_staging_ = start;
      staging_segment_bytes_ = region.bytes / 2;
      break;
    case plan::RegionKind::kCheckpointStaging:
      checkpoint_staging_ = start;
      checkpoint_staging_bytes_ = region.bytes;
      break;
    case plan::RegionKind::kGatherStaging:
      gather_staging_ = start;
      staging_segment_bytes_ = region.bytes / 2;
      break;
  }
}

std::byte* Storage::whole_value(zero_param_id param) const {
  const plan::Parameter& parameter = plan_.model.parameters()[static_cast<size_t>(param)];
  const plan::Parameter& root = plan_.model.parameters()[static_cast<size_t>(parameter.root)];
  if (root.storage == ZERO_STORAGE_CALLER) return static_cast<std::byte*>(root.data);
  const plan::ParameterPlace& place = plan_.places[static_cast<size_t>(param)];
  if (place.bucket < 0) return buffer_params_ + place.offset;
  if (plan_.placement.parameters_sharded) return nullptr;
  const plan::Bucket& bucket = plan_.buckets[static_cast<size_t>(place.bucket)];
  return of_class(bucket.parameter_class).params +
         (bucket.class_offset + place.offset) * dtype_bytes(root.dtype);
}

std::byte* Storage::whole_grads(int32_t bucket) const {
  const plan::Bucket& layout = plan_.buckets[static_cast<size_t>(bucket)];
  return of_class(layout.parameter_class).grads + layout.class_offset * element_bytes(bucket);
}

std::byte* Storage::gathered_grads(int32_t bucket) const {
  const plan::Bucket& layout = plan_.buckets[static_cast<size_t>(bucket)];
  const plan::ParameterClass& klass = plan_.classes[static_cast<size_t>(layout.parameter_class)];
  const ClassMemory& memory = of_class(layout.parameter_class);
  if (memory.gathered == nullptr) return whole_grads(bucket);
  const uint64_t size = dtype_bytes(klass.accumulation_dtype);
  if (plan_.settings.all_gradients_at_once && !plan_.placement.optimizer_sharded) {
    return memory.gathered + layout.class_offset * size;
  }
  // Buckets of a class in turn: at most two of all are on their way at once.
  const auto at = std::find(klass.buckets.begin(), klass.buckets.end(), bucket);
  if ((at - klass.buckets.begin()) % 2 == 0) return memory.gathered;
  const plan::Region* region =
      plan_.find_region(plan::RegionKind::kGatheredGrads, layout.parameter_class);
  return memory.gathered + region->bytes - layout.elements * size;
}

std::byte* Storage::pool_slot(int32_t bucket, int32_t slot) const {
  const plan::Bucket& layout = plan_.buckets[static_cast<size_t>(bucket)];
  const plan::GradientPool& pool = plan_.pools[static_cast<size_t>(layout.parameter_class)];
  uint64_t elements = static_cast<uint64_t>(slot) * pool.normal_elements;
  if (slot >= pool.normal_slots) {
    elements = static_cast<uint64_t>(pool.normal_slots) * pool.normal_elements +
               static_cast<uint64_t>(slot - pool.normal_slots) * pool.large_elements;
  }
  return of_class(layout.parameter_class).pool + elements * element_bytes(bucket);
}

uint64_t Storage::element_bytes(int32_t bucket) const {
  const plan::Bucket& layout = plan_.buckets[static_cast<size_t>(bucket)];
  return dtype_bytes(plan_.classes[static_cast<size_t>(layout.parameter_class)].dtype);
}

} // namespace zero::engine

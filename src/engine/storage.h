// The memory of a runtime: one allocation for each place and use, cut as the plan says.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "memory/ledger.h"
#include "plan/plan.h"

namespace zero::engine {

// Where the memory of one class starts; null where the plan has none.
struct ClassMemory {
  std::byte* params = nullptr; // whole flat, or the shard (parameters_sharded); CALLER: null
  // The optimizer offloaded: the shard in host memory, which the host updates; may be params.
  std::byte* host_params = nullptr;
  std::byte* grads = nullptr; // whole flat, or the shard (gradients_sharded)
  std::byte* extra = nullptr; // stages 0 and 1: a shard of sums, where they cannot lie in grads
  std::byte* gathered = nullptr; // stage 0: whole sums of two buckets, or of all
  float* master = nullptr; // 16-bit, unless kept otherwise
  uint16_t* remainder = nullptr; // bf16: what completes the parameter to its master, with ties
  uint32_t* ties = nullptr;
  std::byte* pool = nullptr;
  std::vector<std::byte*> states; // of the class's state dtype
};

class Storage {
 public:
  // host: whose memory is what the plan has in host memory; the device itself on the host.
  Storage(const plan::Plan& plan, comm::Communicator& comm, device::Device& device,
          device::Device& host, const zero_allocator* allocator, memory::Ledger& ledger);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Private memory; throws OUT_OF_MEMORY naming use and size.  What was allocated is freed by the
  // destructor.
  void allocate_private();
  // [collective] Memory that takes part in collectives.
  void allocate_shared();

  const ClassMemory& of_class(int32_t parameter_class) const {
    return classes_[static_cast<size_t>(parameter_class)];
  }
  const ClassMemory& of_bucket(int32_t bucket) const {
    return of_class(plan_.buckets[static_cast<size_t>(bucket)].parameter_class);
  }
  std::byte* loan_slots() const { return loan_slots_; }
  std::byte* persistent() const { return persistent_; }
  std::byte* reduce_staging() const { return reduce_staging_; }
  std::byte* gather_staging() const { return gather_staging_; }
  uint64_t staging_bytes() const { return staging_segment_bytes_; }
  std::byte* checkpoint_staging() const { return checkpoint_staging_; }
  uint64_t checkpoint_staging_bytes() const { return checkpoint_staging_bytes_; }
  // Whether memory of this use may be handed to an exchange as it is.
  bool may_be_sent(zero_memory_use use) const;

  // The whole value between steps: flat memory, the caller's own, or a buffer's.  Null at stage 3
  // for what is sharded.
  std::byte* whole_value(zero_param_id param) const;
  // Where the whole gradient bucket lies (stages 0 and 1).
  std::byte* whole_grads(int32_t bucket) const;
  // Where the whole sums of a bucket come together (stage 0).
  std::byte* gathered_grads(int32_t bucket) const;
  float* matrix_workspace() const { return matrix_workspace_; } // Muon
  std::byte* pool_slot(int32_t bucket, int32_t slot) const;
  uint64_t element_bytes(int32_t bucket) const;

 private:
  device::Device& home(zero_place place) { return place == ZERO_PLACE_HOST ? host_ : device_; }
  bool from_comm(zero_place place, zero_memory_use use) const;
  void* allocate(zero_place place, zero_memory_use use, uint64_t bytes);
  void place_regions(zero_place place, zero_memory_use use, std::byte* base);
  void place_region(const plan::Region& region, std::byte* start);

  struct Allocation {
    zero_place place;
    zero_memory_use use;
    void* memory;
    uint64_t bytes;
    bool from_comm;
  };
  const plan::Plan& plan_;
  comm::Communicator& comm_;
  device::Device& device_;
  device::Device& host_;
  const zero_allocator* allocator_;
  memory::Ledger& ledger_;
  const uint64_t table_bytes_;
  std::vector<Allocation> allocations_;
  std::vector<ClassMemory> classes_;
  std::byte* buffer_params_ = nullptr;
  std::byte* loan_slots_ = nullptr;
  std::byte* persistent_ = nullptr;
  float* matrix_workspace_ = nullptr;
  std::byte* reduce_staging_ = nullptr;
  std::byte* gather_staging_ = nullptr;
  uint64_t staging_segment_bytes_ = 0;
  std::byte* checkpoint_staging_ = nullptr;
  uint64_t checkpoint_staging_bytes_ = 0;
  bool shared_from_comm_ = false;
};

} // namespace zero::engine

// The plan: every decision about layout and memory, made from shapes and settings alone.  Pure; the
// engine only carries it out.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/parameter_table.h"
#include "plan/placement.h"
#include "plan/plan_settings.h"

namespace zero::plan {

// Parameters that are laid out, reduced and gathered together.
struct ParameterClass {
  zero_dtype dtype = ZERO_DTYPE_FP32;
  bool trained = true;
  // 16-bit: how its master and states are kept; see PlanSettings.
  bool keeps_master = false;
  bool master_is_remainder = false;
  zero_dtype state_dtype = ZERO_DTYPE_FP32;
  // What sums of its gradients are rounded to: fp32 for fp32, else as the settings say.
  zero_dtype accumulation_dtype = ZERO_DTYPE_FP32;
  zero_storage storage = ZERO_STORAGE_LIBRARY;
  RankGroup group;
  std::vector<zero_param_id> members; // roots, in backward order
  std::vector<int32_t> buckets; // numbers of its buckets, in layout order
  uint64_t elements = 0; // sum of its buckets' elements, padding included
  uint64_t shard_elements = 0; // elements / ranks
  uint64_t real_elements = 0; // without padding
};

// One parameter inside a bucket.  Whole, never cut between buckets.
struct BucketMember {
  zero_param_id param = -1;
  uint64_t offset = 0; // elements from the bucket's start; a multiple of the alignment
  uint64_t count = 0; // the parameter's elements
};

struct Bucket {
  int32_t number = 0; // plan order: trained ones first, by the place of their last member in
                      // backward order; then frozen ones likewise
  int32_t parameter_class = 0;
  int32_t unit = -1; // index into Plan::units
  std::vector<BucketMember> members;
  uint64_t elements = 0; // a multiple of ranks x alignment
  uint64_t shard_elements = 0; // elements / ranks
  uint64_t class_offset = 0; // where it starts in the class's whole flat memory, elements
  uint64_t shard_offset = 0; // where its shard starts in the class's flat shard, elements
  bool large = false; // uses the large slot of the pool
};

// Where a parameter lies.  For an alias: where its root does.  For a buffer: bucket is -1 and
// offset counts bytes in the buffer region.
struct ParameterPlace {
  int32_t bucket = -1;
  uint64_t offset = 0;
};

// Slots for buckets whose gradients are being written, a class (stages 2 and 3).
struct GradientPool {
  uint64_t normal_elements = 0;
  int32_t normal_slots = 0;
  uint64_t large_elements = 0;
  int32_t large_slots = 0;
  uint64_t elements() const;
};

// Parameters gathered together at stage 3.  The caller's units, then one for each parameter alone;
// numbered by the first registration among their members.
struct GatherUnit {
  int32_t caller_unit = -1;
  std::vector<zero_param_id> members; // roots
  std::vector<int32_t> buckets; // of all classes
  std::vector<uint64_t> slot_offset_bytes; // of each bucket inside a slot
  uint64_t bytes = 0;
  uint64_t elements = 0;
  bool persistent = false; // kept whole; persistent_offset_bytes says where
  uint64_t persistent_offset_bytes = 0;
  bool large = false; // uses a large slot
};

struct LoanSlots {
  uint64_t normal_bytes = 0;
  int32_t normal_slots = 0;
  uint64_t large_bytes = 0;
  int32_t large_slots = 0;
  uint64_t persistent_bytes = 0;
  uint64_t bytes() const;
};

// A part of a rank's shard of a bucket that belongs to one parameter.
struct Run {
  zero_param_id param = -1;
  uint64_t param_offset = 0; // elements, from the parameter's start
  uint64_t bucket_offset = 0; // elements, from the bucket's start
  uint64_t count = 0; // elements, without padding
};

// What one allocation (a place and a use) is cut into.
enum class RegionKind {
  kParams, // [class] LIBRARY: whole flat memory, or the shard at stage 3
  kHostParams, // [class] trained, the optimizer offloaded: the host's copy of the shard, which it
               // updates; none where the shard itself is the host's
  kBufferParams, // every parameter of role BUFFER in LIBRARY storage
  kGrads, // [class] whole flat, or the shard
  kExtraShard, // [class] stages 0 and 1: reproducible, or sums of another dtype than the gradients
  kGatheredGrads, // [class] stage 0 with an extra shard of another dtype: whole sums, two buckets
  kMatrixWorkspace, // Muon: one matrix and what orthogonalising it needs
  kMaster, // [class] 16-bit: shard or whole
  kState, // [class][state] shard or whole
  kPool, // [class] gradient slots
  kLoanSlots, // stage 3
  kPersistent, // stage 3
  kReduceStaging, // two segments: gradients in memory that is not the communicator's
  kGatherStaging, // two segments: CALLER parameters, memory that is not the communicator's
  kCheckpointStaging // a copy of what this rank saves, while it is written in the background
};
struct Region {
  RegionKind kind;
  zero_memory_use use;
  int32_t parameter_class = -1;
  int32_t state = -1;
  uint64_t offset = 0; // bytes, inside the allocation of its place and use; a multiple of 64
  uint64_t bytes = 0;
  zero_place place = ZERO_PLACE_HOST;
};

constexpr zero_place kPlacesHeld[] = {ZERO_PLACE_HOST, ZERO_PLACE_PINNED, ZERO_PLACE_DEVICE};

struct MemoryPlan {
  zero_place place = ZERO_PLACE_HOST; // where ranks train; all but what a region says lies there
  std::vector<Region> regions;
  uint64_t bytes[16] = {}; // by zero_memory_use, at all places; TOTAL is their sum
  uint64_t placed[5][16] = {}; // the same by zero_place
  // Part of bytes[STAGING]: the communicator's own, which it allocates itself.
  uint64_t communicator_staging_bytes = 0;
  // What one allocation for this use holds: up to the end of its last region.  0 for TABLES, which
  // are the plan's bound on the library's own heap, in host memory.
  uint64_t allocation_bytes(zero_place at, zero_memory_use use) const;
  // True: the allocation of this use takes part in collectives and comes from the communicator.
  static bool takes_part_in_collectives(zero_memory_use use, const Placement& placement);
};

class Plan {
 public:
  // Throws INVALID_ARGUMENT, CONFIG_CONFLICT (CALLER at stage 3, naming the parameter),
  // UNSUPPORTED.
  static std::shared_ptr<const Plan> make(const PlanSettings& settings,
                                          const ParameterTable& model);

  PlanSettings settings;
  Placement placement;
  ParameterTable model;
  std::vector<ParameterClass> classes;
  std::vector<Bucket> buckets; // by number
  int32_t trained_buckets = 0; // the first so many are reduced
  std::vector<ParameterPlace> places; // by parameter
  std::vector<GatherUnit> units; // at every stage; empty regions below stage 3
  std::vector<int32_t> unit_of; // by parameter; -1 for buffers
  std::vector<GradientPool> pools; // by class
  LoanSlots loans;
  uint64_t live_elements = 0; // "libzero.live_parameters" as it took effect
  MemoryPlan memory;
  uint64_t fingerprint = 0; // of model, layout-relevant settings and their order

  // The runs of rank's shard of a bucket, in order.  At stage 0 what a rank owns of the optimizer
  // state is the whole: see owned_span.
  std::vector<Run> runs(int32_t bucket, int32_t rank) const;
  // Calls visit(run) without allocating.
  template <typename Visit>
  void for_each_run(int32_t bucket, uint64_t begin, uint64_t end, Visit visit) const;
  // The part of a parameter inside rank's shard (the reduction's owner), at every stage.
  zero_span shard_span(zero_param_id param, int32_t rank) const;
  // The part whose master and state rank holds: the whole at stage 0, else shard_span.
  zero_span owned_span(zero_param_id param, int32_t rank) const;
  const Region* find_region(RegionKind kind, int32_t parameter_class = -1,
                            int32_t state = -1) const;

  // One line a bucket, then memory by use.
  std::string text() const;
};

// Hash of one parameter's identity (name, shape, dtype, role, storage, group, tie, unit).
uint64_t parameter_hash(const ParameterTable& model, zero_param_id param);
// One line that says what parameter_hash covers, for mismatch sentences; without a parameter of
// that number: "nothing (the model has N parameters)".
std::string parameter_line(const ParameterTable& model, zero_param_id param);

template <typename Visit>
void Plan::for_each_run(int32_t bucket, uint64_t begin, uint64_t end, Visit visit) const {
  const std::vector<BucketMember>& members = buckets[static_cast<size_t>(bucket)].members;
  size_t low = 0, high = members.size(); // first member that ends after begin
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (members[middle].offset + members[middle].count <= begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; low < members.size() && members[low].offset < end; ++low) {
    const BucketMember& member = members[low];
    const uint64_t first = member.offset > begin ? member.offset : begin;
    const uint64_t member_end = member.offset + member.count;
    const uint64_t last = member_end < end ? member_end : end;
    if (first < last) visit(Run{member.param, first - member.offset, first, last - first});
  }
}

} // namespace zero::plan

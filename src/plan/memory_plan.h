// What one rank will hold, byte for byte: every allocation and how it is cut into regions.  Equal
// on all ranks, since all shards of a bucket have one size.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "plan/plan.h"

namespace zero::plan {

// Reads all of `plan` but its memory.  buffer_bytes: see place_buffers.
MemoryPlan make_memory_plan(const Plan& plan, uint64_t buffer_bytes);

// What loading a checkpoint may take beside that, and gives back: a copy of all that it writes.
uint64_t loading_bytes(const Plan& plan);

// Where parameters of role BUFFER in libzero's memory lie; returns the bytes of their region.
uint64_t place_buffers(const ParameterTable& model, std::vector<ParameterPlace>& places);

// The bound on tables that ZERO_MEMORY_TABLES states: bytes of heap for the plan, the model and the
// engine's records, for so much of each.
struct TableCounts {
  uint64_t parameters = 0;
  uint64_t text_bytes = 0; // names and shapes
  uint64_t groups = 0;
  uint64_t classes = 0;
  uint64_t buckets = 0;
  uint64_t members = 0; // in all buckets: a rank has at most one run for each
  uint64_t units = 0;
  uint64_t ranks = 0;
};
TableCounts count_tables(const Plan& plan);
uint64_t table_bytes_bound(const TableCounts& counts);
// What the tables of a plan really take, by the capacity of its lists; within the bound.
uint64_t held_table_bytes(const Plan& plan);

} // namespace zero::plan

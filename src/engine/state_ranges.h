// What this rank holds of a parameter's value, master and states, range by range: read as a
// checkpoint stores it, written from whatever dtype it was stored in.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "engine/context.h"

namespace zero::engine {

class StateRanges {
 public:
  explicit StateRanges(Context& context) : context_(context) {}

  // The dtype that `read` gives; root: its own root.
  zero_dtype dtype(zero_param_id root, zero_part part) const;
  // What this rank must be given in a load: all of it that lies here.
  zero_span wanted(zero_param_id root) const;

  // pre: inside this rank's shard_span, or `wanted`; nobody is writing.
  void read(zero_param_id root, zero_part part, int32_t index, uint64_t offset, uint64_t count,
            std::byte* out) const;
  // Where the bytes lie that `read` gives; null: it makes them.
  const std::byte* find(zero_param_id root, zero_part part, int32_t index, uint64_t offset) const;
  // VALUE and MASTER of a trained parameter set its master and its value.  Values of other ranks'
  // shards are stale until the stepper has gathered them.  pre: inside `wanted`.
  void write(zero_param_id root, zero_part part, int32_t index, uint64_t offset, uint64_t count,
             const std::byte* data, zero_dtype dtype);
  void clear_states(zero_param_id root);
  // The memory that such a write changes, maybe in several parts, and some bits beside it.
  using VisitMemory = std::function<void(std::byte* memory, uint64_t bytes)>;
  void for_each_memory(zero_param_id root, zero_part part, int32_t index, uint64_t offset,
                       uint64_t count, const VisitMemory& visit) const;

 private:
  std::byte* value_at(zero_param_id root, uint64_t offset) const;
  uint64_t home_of(zero_param_id root, uint64_t offset) const;
  std::byte* state_at(zero_param_id root, int32_t index, uint64_t offset) const;
  const plan::ParameterClass& class_of(zero_param_id root) const;
  void write_master(zero_param_id root, uint64_t offset, uint64_t count, const float* masters);
  void read_master(zero_param_id root, uint64_t offset, uint64_t count, float* out) const;

  Context& context_;
};

} // namespace zero::engine

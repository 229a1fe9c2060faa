// One parameter's parts - value, gradient, master, optimizer state: this rank's in place, or the
// whole, gathered from and scattered to its owners.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "engine/bucket_transfer.h"
#include "engine/context.h"
#include "engine/parameter_loans.h"
#include "engine/stepper.h"

namespace zero::engine {

class ParameterAccess {
 public:
  ParameterAccess(Context& context, ParameterLoans& loans, Stepper& stepper)
      : context_(context),
        loans_(loans),
        stepper_(stepper),
        transfer_(context, comm::Channel::kControl) {}

  zero_buffer shard_buffer(zero_param_id param, zero_part part, int32_t index) const;
  // [collective]
  void get(zero_param_id param, zero_part part, int32_t index, void* values, uint64_t bytes);
  void set(zero_param_id param, zero_part part, int32_t index, const void* values, uint64_t bytes);
  void broadcast(int32_t root);

 private:
  struct Located {
    std::byte* start = nullptr; // of this rank's span
    zero_span span; // of the root
    zero_dtype dtype = ZERO_DTYPE_FP32;
    bool whole = false; // this rank holds all of it
    zero_dtype inner = 0; // how it is kept; 0: as a remainder
    int32_t bucket = -1;
    uint64_t begin = 0; // of the span, elements from the bucket's start
  };
  void read_part(const Located& located, zero_part part, const std::byte* start, std::byte* out);
  Located locate(zero_param_id param, zero_part part, int32_t index, const char* call) const;

  Context& context_;
  ParameterLoans& loans_;
  Stepper& stepper_;
  BucketTransfer transfer_; // made once, so that a broadcast allocates nothing
};

} // namespace zero::engine

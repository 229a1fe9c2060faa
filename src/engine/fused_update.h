// One pass over a bucket's owned elements: unscale x clip -> optimizer -> write-back.  The run list
// says which parameter, and so which hyper-parameters and step count, an element belongs to.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "base/dtype.h"
#include "engine/context.h"
#include "engine/gradient_reducer.h"
#include "engine/group_values.h"

namespace zero::engine {

class FusedUpdate {
 public:
  FusedUpdate(Context& context, const GradientReducer& reducer);

  // Constants of every parameter for this update.  steps: updates of each parameter so far.
  // active(root): whether it is stepped at all.
  template <typename Active>
  void prepare(const GroupValueTable& groups, const optim::Rates& rates, double lr_override,
               double grad_factor, const std::vector<int64_t>& steps, Active active) {
    for (size_t p = 0; p < active_.size(); ++p) {
      active_[p] =
          is_trained_root(static_cast<zero_param_id>(p)) && active(static_cast<zero_param_id>(p));
      if (active_[p] != 0) {
        set_constants(p, groups, rates, lr_override, grad_factor, steps[p] + 1);
      }
    }
  }
  bool active(zero_param_id root) const { return active_[static_cast<size_t>(root)] != 0; }
  void update(int32_t bucket);
  // One run by Adam with the constants of its parameter.
  void adam(zero_param_id param, const kernels::UpdateStreams& streams) const {
    context_.kernels->adam(streams, constants_[static_cast<size_t>(param)].adam);
  }

  // Where an owned range of a bucket lies: pointers to its first element.
  struct Owned {
    uint64_t begin = 0, end = 0; // elements of the bucket
    std::byte* grad = nullptr;
    zero_dtype grad_dtype = ZERO_DTYPE_FP32;
    std::byte* value = nullptr; // null: CALLER, scattered
    float* master = nullptr; // null: the value is the master, or kept as a remainder
    uint64_t home = 0; // index of begin in the class's state memory
  };
  Owned owned(int32_t bucket) const;
  // The value of one run; its model memory.
  std::byte* value_of(const Owned& owned, const plan::Run& run, uint64_t element_bytes) const;

  // Calls visit(run, streams) for each run of active parameters in [begin, end) of the owned range.
  template <typename Visit>
  void for_each_active_run(int32_t bucket, const Owned& owned, uint64_t begin, uint64_t end,
                           Visit visit) const;

 private:
  union Constants {
    kernels::AdamConstants adam;
    kernels::SgdConstants sgd;
    kernels::AdagradConstants adagrad;
    kernels::LionConstants lion;
    kernels::LambConstants lamb;
  };
  bool is_trained_root(zero_param_id param) const;
  void set_constants(size_t param, const GroupValueTable& groups, const optim::Rates& rates,
                     double lr_override, double grad_factor, int64_t step);
  void set_adam(size_t param, const optim::HyperParameters& hyper, double grad_factor,
                int64_t step);
  static void run_part(void* context, uint64_t begin, uint64_t end, int32_t index);

  // Whether the class keeps masters or states in 16 bits, which go through blocks of fp32.
  bool is_narrow(int32_t bucket) const;
  void update_run(int32_t bucket, const Owned& owned, const plan::Run& run,
                  const kernels::UpdateStreams& streams) const;
  friend class TrustRatioUpdate;
  Context& context_;
  const GradientReducer& reducer_;
  std::vector<uint8_t> active_;
  std::vector<Constants> constants_;
};

template <typename Visit>
void FusedUpdate::for_each_active_run(int32_t bucket, const Owned& owned, uint64_t begin,
                                      uint64_t end, Visit visit) const {
  const plan::Bucket& layout = context_.bucket(bucket);
  const zero_dtype dtype =
      context_.plan->classes[static_cast<size_t>(layout.parameter_class)].dtype;
  const ClassMemory& memory = context_.storage->of_bucket(bucket);
  const uint64_t size = dtype_bytes(dtype);
  context_.plan->for_each_run(
      bucket, owned.begin + begin, owned.begin + end, [&](const plan::Run& run) {
        if (active_[static_cast<size_t>(run.param)] == 0) return;
        const uint64_t at = run.bucket_offset - owned.begin;
        kernels::UpdateStreams streams;
        std::byte* value = value_of(owned, run, size);
        if (owned.master == nullptr) {
          streams.master = reinterpret_cast<float*>(value);
        } else {
          streams.master = owned.master + at;
          streams.model = value;
          streams.model_dtype = dtype;
        }
        streams.grad = owned.grad + at * dtype_bytes(owned.grad_dtype);
        streams.grad_dtype = owned.grad_dtype;
        for (size_t k = 0; k < memory.states.size() && k < 2; ++k) {
          streams.state[k] = reinterpret_cast<float*>(memory.states[k]) + owned.home + at;
        }
        streams.count = run.count;
        visit(run, streams);
      });
}

} // namespace zero::engine

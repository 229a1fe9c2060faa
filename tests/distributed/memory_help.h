// What the tests of memory share: a model of blocks, a step, and what the ledger says.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "training.h"

namespace memory_help {

// Weights of 16 bits where the run has them, norms in fp32; every block a unit.
inline training::ModelSpec blocks_model() {
  training::ModelSpec model;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, int32_t unit) {
    training::ParamSpec param;
    param.name = name;
    param.group = shape.size() > 1 ? 0 : 1;
    param.shape = std::move(shape);
    param.unit = unit;
    model.push_back(param);
  };
  add("embedding", {500, 64}, 0);
  for (int32_t block = 1; block <= 12; ++block) {
    const std::string name = "block." + std::to_string(block);
    add(name + ".norm", {64}, block);
    add(name + ".up", {64, 128}, block);
    add(name + ".down", {128, 64}, block);
  }
  return model;
}

// A step of zero gradients, each parameter on loan in its turn.
inline void train(zero_runtime* runtime, const training::ModelSpec& model, int64_t accumulation) {
  for (int64_t micro = 0; micro < accumulation; ++micro) {
    OK(zero_micro_begin(runtime, -1));
    for (size_t p = model.size(); p-- > 0;) {
      const auto id = static_cast<zero_param_id>(p);
      zero_buffer value, gradient;
      int32_t add = 0;
      OK(zero_params_acquire(runtime, &id, 1, nullptr, &value));
      OK(zero_grad_buffer(runtime, id, nullptr, &gradient, &add));
      if (add == 0) std::memset(gradient.data, 0, gradient.bytes);
      OK(zero_grad_ready(runtime, &id, 1, nullptr));
      OK(zero_params_release(runtime, &id, 1, 0, nullptr));
    }
    OK(zero_micro_end(runtime, nullptr));
  }
  OK(zero_step(runtime, nullptr, nullptr, nullptr));
}

inline uint64_t usage(const zero_runtime* runtime, zero_memory_use use, bool planned) {
  zero_memory_info info;
  zero_memory_info_init(&info, sizeof(info));
  OK(zero_memory_usage(runtime, ZERO_PLACE_HOST, use, &info));
  return planned ? info.planned : info.current;
}

} // namespace memory_help

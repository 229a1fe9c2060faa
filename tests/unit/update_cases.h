// What the tests of fused updates share: the streams of one update between guards, every vector
// target compared with the scalar kernel.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "kernel_cases.h"

namespace kernel_cases {

struct State {
  Array master, model, grad, first, second;
  bool has_model;

  UpdateStreams streams() {
    UpdateStreams s;
    s.master = master.floats();
    if (has_model) s.model = model.data();
    s.model_dtype = model.dtype();
    s.grad = grad.data();
    s.grad_dtype = grad.dtype();
    s.state[0] = first.floats();
    s.state[1] = second.floats();
    s.count = master.count();
    return s;
  }
};

inline State make_state(zero_dtype grad, zero_dtype model, bool has_model, uint64_t count,
                        uint64_t offset, Numbers numbers, uint64_t seed) {
  Random random(seed);
  State s = {Array(ZERO_DTYPE_FP32, count, offset),
             Array(model, count, offset),
             Array(grad, count, offset),
             Array(ZERO_DTYPE_FP32, count, offset),
             Array(ZERO_DTYPE_FP32, count, offset),
             has_model};
  s.master.fill(random, numbers);
  s.model.fill(random, numbers);
  s.grad.fill(random, numbers);
  s.first.fill(random, numbers);
  s.second.fill(random, numbers);
  if (numbers == Numbers::kFinite) { // a second moment is a mean of squares
    for (uint64_t i = 0; i < count; i++) s.second.set(i, std::fabs(s.second.at(i)));
  }
  return s;
}

inline void assert_same_state(const std::string& what, const State& wanted, const State& got) {
  assert_same((what + ", master").c_str(), wanted.master, got.master);
  assert_same((what + ", model").c_str(), wanted.model, got.model);
  assert_same((what + ", grad").c_str(), wanted.grad, got.grad, Nan::kSameBits);
  assert_same((what + ", first state").c_str(), wanted.first, got.first);
  assert_same((what + ", second state").c_str(), wanted.second, got.second);
}

template <typename Update>
void compare(const std::string& what, const State& before, const Update& update) {
  State wanted = before;
  update(scalar_kernels(), wanted.streams());
  for (const KernelTable* table : vector_tables()) {
    State got = before;
    update(*table, got.streams());
    assert_same_state(std::string(table->name) + ", " + what, wanted, got);
  }
}

template <typename Check>
void for_each_kind(const Check& check) {
  uint64_t seed = 1;
  for (const zero_dtype grad : kDtypes) {
    for (int model = 0; model < 4; model++) {
      for (const Numbers numbers : {Numbers::kFinite, Numbers::kAwkward}) {
        for (uint64_t count = 0; count <= 200; count += count < 40 ? 1 : 23) {
          const zero_dtype model_dtype = model == 3 ? ZERO_DTYPE_FP32 : kDtypes[model];
          check(make_state(grad, model_dtype, model != 3, count, seed % 5, numbers, seed));
          seed++;
        }
      }
    }
  }
}

} // namespace kernel_cases

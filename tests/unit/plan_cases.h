// What the tests of the plan share: cmocka in C++, models made by hand and at random.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}
#undef fail // cmocka's macro would hide zero::fail

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "plan/plan.h"

namespace plan_cases {

using namespace zero;
using namespace zero::plan;

#define SAY_AND_FAIL(...)      \
  do {                         \
    print_error(__VA_ARGS__);  \
    print_error("\n");         \
    _fail(__FILE__, __LINE__); \
  } while (0)
#define EXPECT(condition)                                       \
  do {                                                          \
    if (!(condition)) SAY_AND_FAIL("not true: %s", #condition); \
  } while (0)
#define EXPECT_EQUAL(a, b) plan_cases::expect_equal((a), (b), #a, #b, __LINE__)

template <typename A, typename B>
void expect_equal(A a, B b, const char* a_text, const char* b_text, int line) {
  if (a == static_cast<A>(b)) return;
  SAY_AND_FAIL("line %d: %s is %lld, expected %s = %lld", line, a_text, static_cast<long long>(a),
               b_text, static_cast<long long>(b));
}

// Runs `call`, which must throw with this status and a sentence that holds every one of `words`.
inline void expect_error(zero_status status, const std::vector<std::string>& words,
                         const std::function<void()>& call) {
  std::string message;
  zero_status seen = ZERO_OK;
  try {
    call();
  } catch (const Error& error) {
    seen = error.status();
    message = error.message();
  }
  if (seen != status) SAY_AND_FAIL("status %d, expected %d (%s)", seen, status, message.c_str());
  for (const std::string& word : words) {
    if (message.find(word) == std::string::npos) {
      SAY_AND_FAIL("no \"%s\" in: %s", word.c_str(), message.c_str());
    }
  }
}

inline Parameter param(const std::string& name, std::vector<int64_t> shape,
                       zero_dtype dtype = ZERO_DTYPE_FP32) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = std::move(shape);
  parameter.dtype = dtype;
  return parameter;
}

inline ParameterTable model_of(const std::vector<std::vector<int64_t>>& shapes,
                               zero_dtype dtype = ZERO_DTYPE_FP32) {
  ParameterTable model;
  for (const auto& shape : shapes) {
    model.add(param("p" + std::to_string(model.parameters().size()), shape, dtype));
  }
  return model;
}

inline PlanSettings settings_of(int32_t stage, int32_t ranks) {
  PlanSettings settings;
  settings.stage = stage;
  settings.group.ranks = ranks;
  settings.group.kind = ranks == 1 ? ZERO_COMM_SELF : ZERO_COMM_LOCAL;
  settings.optimizer_present = true;
  settings.optimizer_states = 2;
  return settings;
}

// GPT-2's parameters with a tied head; unit: one a block.
inline ParameterTable gpt2(int64_t layers, int64_t width, int64_t vocabulary, int64_t positions,
                           const std::function<void(Parameter&)>& change = {}) {
  ParameterTable model;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, int32_t unit) {
    Parameter parameter = param(name, std::move(shape));
    parameter.unit = unit;
    if (change) change(parameter);
    model.add(parameter);
  };
  add("wte", {vocabulary, width}, -1);
  add("wpe", {positions, width}, -1);
  for (int32_t layer = 0; layer < layers; ++layer) {
    const std::string h = "h." + std::to_string(layer) + ".";
    for (const char* norm : {"ln_1.", "ln_2."}) {
      add(h + norm + "weight", {width}, layer);
      add(h + norm + "bias", {width}, layer);
    }
    add(h + "attn.c_attn.weight", {width, 3 * width}, layer);
    add(h + "attn.c_attn.bias", {3 * width}, layer);
    add(h + "attn.c_proj.weight", {width, width}, layer);
    add(h + "attn.c_proj.bias", {width}, layer);
    add(h + "mlp.c_fc.weight", {width, 4 * width}, layer);
    add(h + "mlp.c_fc.bias", {4 * width}, layer);
    add(h + "mlp.c_proj.weight", {4 * width, width}, layer);
    add(h + "mlp.c_proj.bias", {width}, layer);
  }
  add("ln_f.weight", {width}, -1);
  add("ln_f.bias", {width}, -1);
  Parameter head = param("lm_head", {vocabulary, width}, model.parameters().front().dtype);
  head.tied_to = 0;
  model.add(head);
  return model;
}

// A generator whose numbers are the same everywhere (std distributions are not).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() { // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t limit) { return next() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <typename T>
  T pick(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

struct RandomCase {
  PlanSettings settings;
  ParameterTable model;
};

inline std::vector<int64_t> random_shape(Random& random, int64_t ranks) {
  const std::vector<int64_t> sizes = {0,
                                      1,
                                      ranks - 1,
                                      ranks,
                                      ranks + 1,
                                      31,
                                      32,
                                      33,
                                      7,
                                      104729,
                                      32 * ranks,
                                      1 << 18,
                                      (1 << 18) + 1,
                                      1 << 20,
                                      65537,
                                      3 << 20,
                                      2147483647,
                                      32 * ranks + 1,
                                      3218569051,
                                      97};
  switch (random.below(8)) {
    case 0:
      return {};
    case 1:
      return {random.pick(sizes), 0};
    case 2:
      return {static_cast<int64_t>(random.below(40)), static_cast<int64_t>(random.below(70))};
    default:
      return {random.pick(sizes)};
  }
}

// Anything a host program may register: alternating classes, ties, buffers, units, orders.
inline RandomCase random_case(uint64_t seed, int32_t ranks, uint64_t most_parameters = 40) {
  static char callers_memory;
  Random random(seed);
  RandomCase made;
  PlanSettings& settings = made.settings;
  settings = settings_of(static_cast<int32_t>(random.below(4)), ranks);
  settings.alignment = random.pick<uint64_t>({32, 32, 32, 1, 7});
  settings.reduce_bucket_elements =
      random.pick<uint64_t>({0, 1, 3, 64, 1000, 1000000, 500000000, 500000000});
  settings.persistence_threshold_elements = random.pick<uint64_t>({0, 10, 100000, 100000});
  settings.model_persistence_elements = random.pick<uint64_t>({0, 1000, UINT64_MAX, UINT64_MAX});
  settings.live_elements = random.pick<uint64_t>({0, 0, 1, 5000, 1000000000});
  settings.max_live_elements = random.pick<uint64_t>({1, 100000, 1000000000});
  settings.open_buckets = static_cast<int32_t>(random.below(6));
  settings.optimizer_present = !random.one_in(6);
  settings.optimizer_states = static_cast<int32_t>(random.below(3));
  settings.accumulation_dtype =
      random.pick<zero_dtype>({ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, ZERO_DTYPE_BF16});
  settings.reproducible_stage = random.one_in(3);
  settings.own_allocator = random.one_in(4);
  if (ranks > 1 && random.one_in(3)) {
    settings.group.kind = ZERO_COMM_USER;
    settings.group.own_staging_bytes = 4096;
  }

  ParameterTable& model = made.model;
  GroupValues values;
  values.frozen = random.one_in(2);
  model.add_group("may be frozen", values);
  model.add_group("empty", GroupValues());
  const uint64_t count = random.below(most_parameters + 1);
  std::vector<zero_param_id> order;
  for (uint64_t i = 0; i < count; ++i) {
    Parameter parameter = param("p" + std::to_string(i), random_shape(random, ranks));
    parameter.role =
        random.pick<zero_param_role>({ZERO_PARAM_TRAINED, ZERO_PARAM_TRAINED, ZERO_PARAM_TRAINED,
                                      ZERO_PARAM_FROZEN, ZERO_PARAM_BUFFER});
    parameter.dtype = random.pick<zero_dtype>(
        {ZERO_DTYPE_FP32, ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP16});
    if (parameter.role == ZERO_PARAM_BUFFER && random.one_in(2)) {
      parameter.dtype = ZERO_DTYPE_INT64;
    }
    if (settings.stage < 3 && random.one_in(4)) {
      parameter.storage = ZERO_STORAGE_CALLER;
      parameter.data = &callers_memory;
    }
    parameter.group = static_cast<zero_group_id>(random.below(2));
    parameter.unit = static_cast<int32_t>(random.below(7)) - 1;
    if (i > 0 && random.one_in(8)) {
      const auto root = static_cast<zero_param_id>(random.below(i));
      Parameter alias = param(parameter.name, model.parameters()[static_cast<size_t>(root)].shape,
                              model.parameters()[static_cast<size_t>(root)].dtype);
      alias.tied_to = root;
      parameter = alias;
    }
    const zero_param_id id = model.add(parameter);
    const Parameter& added = model.parameters().back();
    if (added.root == id && added.role != ZERO_PARAM_BUFFER) order.push_back(id);
  }
  if (random.one_in(2)) { // a random order of some of them
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    order.resize(random.below(order.size() + 1));
    model.set_backward_order(order);
  }
  return made;
}

constexpr uint64_t kCases = 4000;

using Check = void (*)(const RandomCase&, const Plan&);

inline void for_random_models(Check check) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const int32_t ranks = seed % 100 == 0 ? 4096 : static_cast<int32_t>(1 + seed % 64);
    const RandomCase made = random_case(seed, ranks);
    check(made, *Plan::make(made.settings, made.model));
  }
}

inline bool is_laid_out(const ParameterTable& model, size_t i) {
  const Parameter& parameter = model.parameters()[i];
  return parameter.root == static_cast<zero_param_id>(i) && parameter.role != ZERO_PARAM_BUFFER;
}

inline const Bucket& bucket_of(const Plan& plan, size_t i) {
  return plan.buckets[static_cast<size_t>(plan.places[i].bucket)];
}

inline const ParameterClass& class_of(const Plan& plan, const Bucket& bucket) {
  return plan.classes[static_cast<size_t>(bucket.parameter_class)];
}

// A file of the shared corpus, or "" where there is none.
inline std::string corpus_models() {
  const char* shared = std::getenv("LIBZERO_SHARED");
  const std::string folder = shared == nullptr ? "" : std::string(shared) + "/corpus/models";
  return !folder.empty() && std::filesystem::is_directory(folder) ? folder : "";
}

} // namespace plan_cases

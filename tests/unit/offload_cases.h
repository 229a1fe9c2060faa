// What the tests of offload share: a device whose memory is the host's but apart from what the plan
// keeps there, and runs of some ranks on it.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}
#undef fail // ours is a function

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "engine/runtime.h"

namespace offload_cases {

using namespace zero;
using namespace zero::engine;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Says that it is a device; what is done to its memory is done by host code all the same.
class Card final : public device::Device {
 public:
  zero_place place() const override { return ZERO_PLACE_DEVICE; }
  int32_t ordinal() const override { return 0; }
  void* allocate(uint64_t bytes) override { return host_->allocate(bytes); }
  void release(void* memory, uint64_t bytes) override { host_->release(memory, bytes); }
  void copy(void* dst, const void* src, uint64_t bytes) override { host_->copy(dst, src, bytes); }
  void fill(void* dst, uint8_t value, uint64_t bytes) override { host_->fill(dst, value, bytes); }
  void synchronize() override {}
  std::unique_ptr<device::Event> create_event() override { return host_->create_event(); }
  std::unique_ptr<device::Stream> create_stream(bool inline_stream) override {
    return host_->create_stream(inline_stream);
  }
  int32_t parallel_width() const override { return 1; }
  void parallel(uint64_t count, uint64_t grain, device::Part part, void* context) override {
    host_->parallel(count, grain, part, context);
  }

 private:
  std::unique_ptr<device::Device> host_ = device::make_host_device(1);
};

struct Case {
  int32_t stage = 2;
  int32_t ranks = 1;
  zero_dtype dtype = ZERO_DTYPE_FP32;
  std::string optimizer = R"("type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1})";
  std::string sections; // more of the file, each with a comma before it
  std::string zero; // more of zero_optimization, likewise
  std::vector<int64_t> sizes = {1000, 5, 4097, 33};
  int64_t accumulation = 1;
  int32_t steps = 3;
  bool callers = false;
  int64_t infinite_in_step = -1; // one gradient, of the last rank
  std::string checkpoint; // where to save at the end, or ""
};

enum class Home { kHost, kDevice, kOptimizer, kPinned, kBoth, kParams };

inline std::string section(Home home) {
  const std::string optimizer = R"(, "offload_optimizer": {"device": "cpu")";
  const std::string params = R"(, "offload_param": {"device": "cpu"})";
  switch (home) {
    case Home::kOptimizer:
      return optimizer + "}";
    case Home::kPinned:
      return optimizer + R"(, "pin_memory": true})";
    case Home::kBoth:
      return optimizer + "}" + params;
    case Home::kParams:
      return params;
    default:
      return "";
  }
}

inline config::Config config_of(const Case& made, Home home) {
  std::string text = R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": )" +
                     std::to_string(made.accumulation) + R"(, "optimizer": {)" + made.optimizer +
                     R"(}, "zero_optimization": {"stage": )" + std::to_string(made.stage) +
                     section(home) + made.zero + "}";
  if (made.dtype == ZERO_DTYPE_BF16 && made.sections.find("\"bf16\":") == std::string::npos) {
    text += R"(, "bf16": {"enabled": true})";
  }
  if (made.dtype == ZERO_DTYPE_FP16) {
    text += R"(, "fp16": {"enabled": true, "initial_scale_power": 4})";
  }
  return config::Config::load_text(text + made.sections + "}");
}

inline std::vector<std::byte> narrowed(const std::vector<float>& values, zero_dtype dtype) {
  std::vector<std::byte> bytes(values.size() * dtype_bytes(dtype));
  kernels::host_kernels().cast(values.data(), ZERO_DTYPE_FP32, bytes.data(), dtype, values.size());
  return bytes;
}

inline float noise(uint64_t seed) {
  seed = (seed + 1) * 0x9e3779b97f4a7c15u;
  seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
  return static_cast<float>(static_cast<int64_t>(seed >> 40) - (1 << 23)) / (1 << 23);
}

// One rank of a run, from its values to what all ranks agree on at the end.
class Rank {
 public:
  Rank(const Case& made, Home home, std::shared_ptr<comm::Communicator> comm)
      : made_(made),
        rank_(comm->rank()),
        runtime_(config_of(made, home), std::move(comm), nullptr,
                 home == Home::kHost ? nullptr : std::make_unique<Card>()) {
    for (size_t p = 0; p < made.sizes.size(); ++p) {
      std::vector<float> first(static_cast<size_t>(made.sizes[p]));
      for (size_t i = 0; i < first.size(); ++i) first[i] = noise(1000 * p + i);
      values_.push_back(narrowed(first, made.dtype));
    }
    plan::ParameterTable model;
    for (size_t p = 0; p < made.sizes.size(); ++p) {
      plan::Parameter parameter;
      parameter.name = "p" + std::to_string(p);
      parameter.shape = {made.sizes[p]};
      parameter.dtype = made.dtype;
      parameter.data = values_[p].data();
      if (made.callers) parameter.storage = ZERO_STORAGE_CALLER;
      model.add(parameter);
    }
    runtime_.shard_params(model);
  }

  Runtime& runtime() { return runtime_; }

  // gradient(param, element, micro-batch of the step)
  template <typename Gradient>
  StepReport step(Gradient gradient) {
    for (int64_t micro = 0; micro < made_.accumulation; ++micro) {
      runtime_.reducer("test").micro_begin(micro + 1 == made_.accumulation);
      for (size_t p = made_.sizes.size(); p-- > 0;) {
        std::vector<float> values(static_cast<size_t>(made_.sizes[p]));
        for (size_t i = 0; i < values.size(); ++i) values[i] = gradient(p, i, micro);
        std::vector<std::byte> bytes = narrowed(values, made_.dtype);
        zero_buffer buffer{};
        buffer.data = bytes.data();
        buffer.bytes = bytes.size();
        buffer.count = values.size();
        buffer.dtype = made_.dtype;
        buffer.place = ZERO_PLACE_HOST;
        runtime_.reducer("test").submit(static_cast<zero_param_id>(p), buffer);
      }
      runtime_.reducer("test").micro_end();
    }
    return runtime_.stepper("test").step({kNone, kNone});
  }

  // Whatever a run leaves: values as the next forward pass sees them, masters, states.
  std::vector<std::byte> everything() {
    std::vector<std::byte> all;
    for (size_t p = 0; p < made_.sizes.size(); ++p) {
      const auto id = static_cast<zero_param_id>(p);
      const auto append = [&](const void* bytes, uint64_t count) {
        const auto* first = static_cast<const std::byte*>(bytes);
        all.insert(all.end(), first, first + count);
      };
      zero_buffer loan{};
      runtime_.loans("test").acquire(&id, 1, &loan);
      append(loan.data, loan.bytes);
      runtime_.loans("test").release(&id, 1, false);
      const auto part = [&](zero_part which, int32_t index, uint64_t size) {
        std::vector<std::byte> values(static_cast<size_t>(made_.sizes[p]) * size);
        runtime_.access("test").get(id, which, index, values.data(), values.size());
        append(values.data(), values.size());
      };
      part(ZERO_PART_VALUE, 0, dtype_bytes(made_.dtype));
      part(ZERO_PART_MASTER, 0, 4);
      for (int32_t s = 0; s < runtime_.plan("test").settings.optimizer_states; ++s) {
        part(ZERO_PART_STATE, s, 4);
      }
    }
    return all;
  }

  float noisy(size_t p, size_t i, int64_t micro, int64_t step) const {
    return noise(7919 * static_cast<uint64_t>(step) + 104729 * static_cast<uint64_t>(micro) +
                 1000003 * p + 31 * i + 17 * static_cast<uint64_t>(rank_));
  }

 private:
  const Case& made_;
  const int32_t rank_;
  std::vector<std::vector<std::byte>> values_;
  Runtime runtime_;
};

// Runs work(rank) on every rank; what one throws ends the test.
template <typename Work>
void on_ranks(const Case& made, Home home, Work work) {
  static std::atomic<int> runs = 0;
  const std::string group = "offload-" + std::to_string(getpid()) + "-" + std::to_string(runs++);
  std::vector<std::string> errors(static_cast<size_t>(made.ranks));
  const auto one = [&](int32_t r) {
    try {
      auto comm = made.ranks == 1 ? comm::make_self()
                                  : comm::make_local(group, r, made.ranks, INT64_C(30000000000));
      Rank rank(made, home, std::move(comm));
      work(rank, r);
      rank.runtime().close();
    } catch (const std::exception& error) {
      errors[static_cast<size_t>(r)] = error.what();
    }
  };
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < made.ranks; ++r) threads.emplace_back(one, r);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) print_error("%s\n", error.c_str());
    assert_true(error.empty());
  }
}

struct Outcome {
  std::vector<std::byte> everything;
  std::vector<double> norms;
};

inline Outcome train(const Case& made, Home home) {
  Outcome outcome;
  on_ranks(made, home, [&](Rank& rank, int32_t r) {
    for (int32_t s = 0; s < made.steps; ++s) {
      const StepReport report = rank.step([&](size_t p, size_t i, int64_t micro) {
        const bool bad = s == made.infinite_in_step && r + 1 == made.ranks && p == 2 && i == 3000;
        return bad ? std::numeric_limits<float>::infinity() : rank.noisy(p, i, micro, s);
      });
      if (r == 0) outcome.norms.push_back(report.grad_norm);
    }
    std::vector<std::byte> all = rank.everything();
    if (r == 0) outcome.everything = std::move(all);
  });
  return outcome;
}

inline void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  const bool same = a.everything == b.everything && a.norms == b.norms;
  if (!same) print_error("differs: %s\n", what.c_str());
  assert_true(same);
}

} // namespace offload_cases

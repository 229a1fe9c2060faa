// One rank of a report's test: a config, a communicator, a small fp32 model, a runtime.  Every
// check ends the process, see ranks.h.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <deque>

#include "ranks.h"

namespace reports {

using Floats = std::vector<float>;

// SGD of rate 1 subtracts the averaged gradient.
constexpr const char* kSgd = R"({"type": "SGD", "params": {"lr": 1}})";

struct Setup {
  int32_t stage = 0;
  double clipping = 0;
  std::string optimizer = kSgd;
  std::string zero; // more keys of zero_optimization, ", \"key\": value"
  std::string top; // more keys, ", \"key\": value"
  std::string text() const {
    return "{\"optimizer\": " + optimizer + ", \"gradient_clipping\": " + std::to_string(clipping) +
           ", \"zero_optimization\": {\"stage\": " + std::to_string(stage) +
           ", \"stage3_param_persistence_threshold\": 0" + zero + "}" + top + "}";
  }
};

class Rank {
 public:
  Rank(int32_t rank, int32_t ranks, const std::string& group, const Setup& setup,
       const zero_allocator* allocator = nullptr) {
    const std::string text = setup.text();
    OK(zero_config_load_text(text.data(), text.size(), &config_));
    if (ranks > 1) {
      OK(zero_comm_create_local(group.c_str(), rank, ranks, 60 * ::ranks::kSecond, &comm_));
    } else {
      OK(zero_comm_create_self(&comm_));
    }
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm_;
    init.allocator = allocator;
    OK(zero_init(config_, &init, &runtime));
    OK(zero_model_create(&model));
  }
  ~Rank() {
    zero_runtime_destroy(runtime);
    zero_model_destroy(model);
    zero_comm_destroy(comm_);
    zero_config_destroy(config_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  static zero_param_options options() {
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    return options;
  }
  zero_param_id add(const std::string& name, const std::vector<int64_t>& shape,
                    const Floats& values, zero_param_options options) {
    data_.push_back(values);
    data_.back().resize(values.size() + 1); // a place to point at, also when empty
    if (options.tied_to < 0) options.data = data_.back().data();
    zero_param_id id = -1;
    OK(zero_param_add(model, name.c_str(), shape.data(), static_cast<int32_t>(shape.size()),
                      &options, &id));
    counts_.push_back(values.size());
    return id;
  }
  zero_param_id add(const std::string& name, const Floats& values) {
    return add(name, {static_cast<int64_t>(values.size())}, values, options());
  }
  void shard() { OK(zero_shard_params(runtime, model)); }

  // A complete gradient, in place.
  void give(zero_param_id param, const Floats& values) {
    zero_buffer buffer;
    int32_t add = -1;
    OK(zero_grad_buffer(runtime, param, nullptr, &buffer, &add));
    EXPECT(buffer.count == values.size());
    auto* out = static_cast<float*>(buffer.data);
    for (size_t i = 0; i < values.size(); ++i) out[i] = add != 0 ? out[i] + values[i] : values[i];
    OK(zero_grad_ready(runtime, &param, 1, nullptr));
  }
  void micro_end() { OK(zero_micro_end(runtime, nullptr)); }
  zero_step_info step(double divisor = NAN) {
    zero_step_options options;
    zero_step_options_init(&options, sizeof(options));
    options.gradient_divisor = divisor;
    zero_step_info info;
    zero_step_info_init(&info, sizeof(info));
    OK(zero_step(runtime, &options, nullptr, &info));
    return info;
  }
  Floats get(zero_param_id param, zero_part part = ZERO_PART_VALUE, int32_t index = 0) {
    Floats values(counts_[static_cast<size_t>(param)]);
    OK(zero_param_get(runtime, param, part, index, values.data(), values.size() * 4));
    return values;
  }
  void close() { OK(zero_runtime_close(runtime)); }

  zero_runtime* runtime = nullptr;
  zero_model* model = nullptr;

 private:
  zero_config* config_ = nullptr;
  zero_comm* comm_ = nullptr;
  std::deque<Floats> data_;
  std::vector<size_t> counts_;
};

inline bool near(double value, double expected, double relative = 1e-6) {
  if (std::fabs(value - expected) <= relative * std::fabs(expected)) return true;
  std::fprintf(stderr, "%.10g, expected %.10g\n", value, expected);
  return false;
}

// Bit for bit.
inline bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

// The body at this many forked ranks, each with its runtime.
inline void at_ranks(int32_t ranks, const Setup& setup,
                     const std::function<void(Rank&, int32_t)>& body) {
  ::ranks::assert_all_ended_well(
      ::ranks::run_processes(ranks, [&](int32_t rank, const std::string& group) {
        Rank self(rank, ranks, group, setup);
        body(self, rank);
      }));
}

} // namespace reports

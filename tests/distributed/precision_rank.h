// One rank of a precision test: a config, a communicator, a small model of mixed element types, a
// runtime.  Every step checks that all ranks report the same.  Checks end the process, see ranks.h.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <deque>

#include "training.h"

namespace precision {

using Floats = std::vector<float>;

constexpr zero_dtype kFp32 = ZERO_DTYPE_FP32, kFp16 = ZERO_DTYPE_FP16, kBf16 = ZERO_DTYPE_BF16;

// SGD of rate 1 subtracts the averaged gradient.
constexpr const char* kSgd = R"({"type": "SGD", "params": {"lr": 1}})";
constexpr const char* kAdamW = R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})";

inline const char* name_of(zero_dtype dtype) {
  return dtype == kFp16 ? "fp16" : dtype == kBf16 ? "bf16" : "fp32";
}
inline uint64_t bytes_of(zero_dtype dtype) {
  return dtype == kFp32 ? 4 : 2;
}
inline float rounded(zero_dtype dtype, float value) {
  float memory = 0;
  training::put(&memory, dtype, 0, value);
  return training::get(&memory, dtype, 0);
}
inline Floats rounded(zero_dtype dtype, Floats values) {
  for (float& value : values) value = rounded(dtype, value);
  return values;
}

struct Setup {
  int32_t stage = 0;
  zero_dtype dtype = kFp16; // of the config; kFp32: neither section
  std::string section; // more keys of "fp16" or "bf16", ", \"key\": value"
  double clipping = 0;
  std::string optimizer = kSgd;
  std::string zero; // more keys of zero_optimization, ", \"key\": value"
  std::string top; // more keys, ", \"key\": value"
  const zero_allocator* allocator = nullptr;
  zero_comm* comm = nullptr; // instead of a local one
  std::string text() const {
    std::string text = "{\"optimizer\": " + optimizer;
    if (dtype != kFp32) {
      text += ", \"" + std::string(name_of(dtype)) + "\": {\"enabled\": true" + section + "}";
    }
    return text + ", \"gradient_clipping\": " + std::to_string(clipping) +
           ", \"zero_optimization\": {\"stage\": " + std::to_string(stage) +
           ", \"stage3_param_persistence_threshold\": 0" + zero + "}" + top + "}";
  }
};

class Rank {
 public:
  Rank(int32_t own_rank, int32_t rank_count, const std::string& group, const Setup& own_setup)
      : rank(own_rank), ranks(rank_count), setup(own_setup) {
    const std::string text = setup.text();
    OK(zero_config_load_text(text.data(), text.size(), &config));
    if (setup.comm != nullptr) {
      comm = setup.comm;
    } else if (ranks > 1) {
      OK(zero_comm_create_local(group.c_str(), rank, ranks, 60 * ::ranks::kSecond, &comm));
    } else {
      OK(zero_comm_create_self(&comm));
    }
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm;
    init.allocator = setup.allocator;
    OK(zero_init(config, &init, &runtime));
    OK(zero_model_create(&model));
  }
  ~Rank() {
    zero_runtime_destroy(runtime);
    zero_model_destroy(model);
    zero_comm_destroy(comm);
    zero_config_destroy(config);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  zero_param_id add(const std::string& name, const std::vector<int64_t>& shape,
                    const Floats& values, zero_dtype dtype, zero_group_id param_group = 0) {
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    options.dtype = dtype;
    options.group = param_group;
    data_.emplace_back((values.size() + 1) * bytes_of(dtype)); // a place to point at, also if empty
    for (size_t i = 0; i < values.size(); ++i)
      training::put(data_.back().data(), dtype, i, values[i]);
    options.data = data_.back().data();
    zero_param_id id = -1;
    OK(zero_param_add(model, name.c_str(), shape.data(), static_cast<int32_t>(shape.size()),
                      &options, &id));
    counts_.push_back(values.size());
    dtypes_.push_back(dtype);
    return id;
  }
  zero_param_id add(const std::string& name, const Floats& values, zero_dtype dtype) {
    return add(name, {static_cast<int64_t>(values.size())}, values, dtype);
  }
  // Of the config's element type.
  zero_param_id add(const std::string& name, const Floats& values) {
    return add(name, values, setup.dtype);
  }
  void shard() { OK(zero_shard_params(runtime, model)); }

  // A complete gradient, in place; times scale where it is to be of a scaled loss.
  void give(zero_param_id param, const Floats& values, double scale = 1) {
    zero_buffer buffer;
    int32_t add = -1;
    OK(zero_grad_buffer(runtime, param, nullptr, &buffer, &add));
    const zero_dtype dtype = dtypes_[static_cast<size_t>(param)];
    EXPECT(buffer.count == values.size() && buffer.dtype == dtype);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i] * scale);
      training::put(buffer.data, dtype, i,
                    add != 0 ? training::get(buffer.data, dtype, i) + value : value);
    }
    OK(zero_grad_ready(runtime, &param, 1, nullptr));
  }
  void give_scaled(zero_param_id param, const Floats& values) {
    give(param, values, zero_loss_scale(runtime));
  }
  void micro_end() { OK(zero_micro_end(runtime, nullptr)); }

  // Status and, if OK, report are those of every rank, and zero_loss_scale agrees.
  zero_status try_step(zero_step_info* info, double divisor = NAN) {
    zero_step_options options;
    zero_step_options_init(&options, sizeof(options));
    options.gradient_divisor = divisor;
    zero_step_info_init(info, sizeof(*info));
    const zero_status status = zero_step(runtime, &options, nullptr, info);
    const double report[] = {static_cast<double>(status),
                             static_cast<double>(info->skipped),
                             static_cast<double>(info->step),
                             static_cast<double>(info->skipped_total),
                             info->lr,
                             info->grad_norm,
                             info->clip_scale,
                             info->loss_scale,
                             static_cast<double>(info->nonfinite_param),
                             static_cast<double>(info->nonfinite_rank),
                             static_cast<double>(info->nonfinite_element),
                             zero_loss_scale(runtime)};
    expect_same_on_all_ranks(report, sizeof(report));
    return status;
  }
  zero_step_info step(double divisor = NAN) {
    zero_step_info info;
    OK(try_step(&info, divisor));
    EXPECT(info.loss_scale == zero_loss_scale(runtime));
    return info;
  }
  // Bit for bit.
  void expect_same_on_all_ranks(const void* bytes, size_t count) {
    std::vector<char> of_root(static_cast<const char*>(bytes),
                              static_cast<const char*>(bytes) + count);
    OK(zero_comm_broadcast(zero_runtime_comm(runtime), of_root.data(), count, 0));
    EXPECT(std::memcmp(of_root.data(), bytes, count) == 0);
  }

  // As fp32, of any part.
  Floats get(zero_param_id param, zero_part part = ZERO_PART_VALUE, int32_t index = 0) {
    const auto p = static_cast<size_t>(param);
    const zero_dtype dtype = part == ZERO_PART_VALUE ? dtypes_[p] : kFp32;
    std::vector<char> bytes(counts_[p] * bytes_of(dtype));
    OK(zero_param_get(runtime, param, part, index, bytes.data(), bytes.size()));
    Floats values;
    for (size_t i = 0; i < counts_[p]; ++i) values.push_back(training::get(bytes.data(), dtype, i));
    return values;
  }
  Floats master(zero_param_id param) { return get(param, ZERO_PART_MASTER); }
  void set(zero_param_id param, zero_part part, const Floats& values) {
    const zero_dtype dtype = part == ZERO_PART_VALUE ? dtypes_[static_cast<size_t>(param)] : kFp32;
    std::vector<char> bytes(values.size() * bytes_of(dtype));
    for (size_t i = 0; i < values.size(); ++i) training::put(bytes.data(), dtype, i, values[i]);
    OK(zero_param_set(runtime, param, part, 0, bytes.data(), bytes.size()));
  }
  // Values are the masters rounded to nearest even.
  void expect_values_are_rounded_masters(zero_param_id param) {
    const Floats masters = master(param), values = get(param);
    for (size_t i = 0; i < masters.size(); ++i) {
      EXPECT(values[i] == rounded(dtypes_[static_cast<size_t>(param)], masters[i]));
    }
  }
  // Value, master and two states.
  std::vector<Floats> all_parts(zero_param_id param, int32_t states) {
    std::vector<Floats> parts = {get(param), master(param)};
    for (int32_t k = 0; k < states; ++k) parts.push_back(get(param, ZERO_PART_STATE, k));
    return parts;
  }
  void close() { OK(zero_runtime_close(runtime)); }

  const int32_t rank, ranks;
  const Setup setup;
  zero_config* config = nullptr;
  zero_runtime* runtime = nullptr;
  zero_model* model = nullptr;

 private:
  zero_comm* comm = nullptr;
  std::deque<std::vector<char>> data_;
  std::vector<size_t> counts_;
  std::vector<zero_dtype> dtypes_;
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
inline bool same(const std::vector<Floats>& a, const std::vector<Floats>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

// The body at this many forked ranks, each with its runtime.
inline void at_ranks(int32_t count, const Setup& setup, const std::function<void(Rank&)>& body) {
  const auto endings = ::ranks::run_processes(count, [&](int32_t rank, const std::string& group) {
    Rank self(rank, count, group, setup);
    body(self);
  });
  for (const auto& ending : endings) {
    if (ending.exited && ending.code == 0) continue;
    print_message("at %d ranks: %s\n", count, setup.text().c_str());
    break;
  }
  ::ranks::assert_all_ended_well(endings);
}

// All stages at each of these numbers of ranks.
inline void at_all_stages(std::initializer_list<int32_t> counts, Setup setup,
                          const std::function<void(Rank&)>& body) {
  for (const int32_t count : counts) {
    for (setup.stage = 0; setup.stage <= 3; ++setup.stage) at_ranks(count, setup, body);
  }
}

} // namespace precision

// SPDX-License-Identifier: BSD-3-Clause
#include "saving_rank.h"

#include "training.h"

namespace faults {
namespace {

struct Parameter {
  const char* name;
  std::vector<int64_t> shape;
  zero_dtype dtype;
  zero_param_role role;
  uint64_t elements() const {
    uint64_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
    return count;
  }
  uint64_t bytes_each() const {
    return dtype == ZERO_DTYPE_INT64 ? 8 : dtype == ZERO_DTYPE_FP32 ? 4 : 2;
  }
};

// One with a master of its own, one that is its master, one without elements, one of integers.
const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = {
      {"layer.weight", {9, 5}, ZERO_DTYPE_BF16, ZERO_PARAM_TRAINED},
      {"layer.norm", {7}, ZERO_DTYPE_FP32, ZERO_PARAM_TRAINED},
      {"layer.empty", {0, 4}, ZERO_DTYPE_FP32, ZERO_PARAM_TRAINED},
      {"counter", {3}, ZERO_DTYPE_INT64, ZERO_PARAM_BUFFER},
  };
  return all;
}

constexpr const char* kConfig = R"(, "stage3_param_persistence_threshold": 0},
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
  "bf16": {"enabled": true}, "gradient_clipping": 0.5,
  "libzero": {"checkpoint_background": true}})";

struct PartName {
  zero_part part;
  int32_t index;
  const char* name;
};
constexpr PartName kParts[] = {{ZERO_PART_VALUE, 0, "value"},
                               {ZERO_PART_MASTER, 0, "master"},
                               {ZERO_PART_STATE, 0, "first moment"},
                               {ZERO_PART_STATE, 1, "second moment"}};

bool has(const Parameter& parameter, const PartName& part) {
  return parameter.role == ZERO_PARAM_TRAINED || part.part == ZERO_PART_VALUE;
}

uint64_t bytes_of(const Parameter& parameter, const PartName& part) {
  return parameter.elements() * (part.part == ZERO_PART_VALUE ? parameter.bytes_each() : 4);
}

std::string blob(int32_t rank, int64_t step) {
  return "rank " + std::to_string(rank) + " after step " + std::to_string(step);
}

} // namespace

Outcome outcome(zero_status status) {
  if (status == ZERO_OK) return {};
  zero_error_info info;
  zero_error_info_init(&info, sizeof(info));
  zero_last_error(&info);
  std::string text = info.message;
  const std::string from = "rank " + std::to_string(info.rank) + ": ";
  if (text.compare(0, from.size(), from) == 0) text = text.substr(from.size());
  return {status, info.native_code, text};
}

SavingRank::SavingRank(int32_t rank, int32_t ranks, const std::string& group, int32_t stage,
                       int64_t timeout_ns)
    : rank_(rank) {
  const std::string text = "{\"zero_optimization\": {\"stage\": " + std::to_string(stage) + kConfig;
  OK(zero_config_load_text(text.data(), text.size(), &config_));
  if (ranks > 1) {
    OK(zero_comm_create_local(group.c_str(), rank, ranks, timeout_ns, &comm_));
  } else {
    OK(zero_comm_create_self(&comm_));
  }
  zero_init_options init;
  zero_init_options_init(&init, sizeof(init));
  init.comm = comm_;
  OK(zero_init(config_, &init, &runtime_));
  OK(zero_model_create(&model_));
  for (const Parameter& parameter : parameters()) {
    add(parameter.name, parameter.shape, parameter.dtype, parameter.role);
  }
  OK(zero_shard_params(runtime_, model_));
}

SavingRank::~SavingRank() {
  zero_runtime_destroy(runtime_);
  zero_model_destroy(model_);
  zero_comm_destroy(comm_);
  zero_config_destroy(config_);
}

void SavingRank::add(const char* name, const std::vector<int64_t>& shape, zero_dtype dtype,
                     zero_param_role role) {
  const Parameter& parameter = parameters()[data_.size()];
  std::vector<char> values(parameter.elements() * 8 + 8);
  for (uint64_t i = 0; i < parameter.elements(); ++i) {
    if (dtype == ZERO_DTYPE_INT64) {
      const int64_t count = (INT64_C(1) << 53) + 1 + static_cast<int64_t>(i);
      std::memcpy(values.data() + 8 * i, &count, 8);
    } else {
      training::put(values.data(), dtype, i, training::initial_value(data_.size(), i));
    }
  }
  data_.push_back(values);
  zero_param_options options;
  zero_param_options_init(&options, sizeof(options));
  options.dtype = dtype;
  options.role = role;
  options.data = data_.back().data();
  zero_param_id id = -1;
  OK(zero_param_add(model_, name, shape.data(), static_cast<int32_t>(shape.size()), &options, &id));
}

void SavingRank::train_to(int64_t step) {
  while (step_ < step) {
    ++step_;
    for (size_t p = parameters().size(); p-- > 0;) {
      const Parameter& parameter = parameters()[p];
      if (parameter.role != ZERO_PARAM_TRAINED) continue;
      std::vector<char> values(parameter.elements() * 4 + 4);
      for (uint64_t i = 0; i < parameter.elements(); ++i) {
        training::put(values.data(), parameter.dtype, i,
                      training::gradient(static_cast<int32_t>(step_), 0, rank_, p, i));
      }
      const zero_buffer buffer{values.data(),
                               parameter.elements() * parameter.bytes_each(),
                               parameter.elements(),
                               parameter.dtype,
                               ZERO_PLACE_HOST,
                               -1,
                               0};
      OK(zero_grad_submit(runtime_, static_cast<zero_param_id>(p), &buffer, nullptr));
    }
    OK(zero_step(runtime_, nullptr, nullptr, nullptr));
  }
}

State SavingRank::state() {
  State state;
  for (size_t p = 0; p < parameters().size(); ++p) {
    for (const PartName& part : kParts) {
      if (!has(parameters()[p], part)) continue;
      std::string bytes(bytes_of(parameters()[p], part), '\0');
      OK(zero_param_get(runtime_, static_cast<zero_param_id>(p), part.part, part.index,
                        bytes.data(), bytes.size()));
      state[std::string(parameters()[p].name) + " " + part.name] = bytes;
    }
  }
  return state;
}

zero_status SavingRank::save(const std::string& path, const SaveAs& as) {
  const std::string text = blob(rank_, step_);
  OK(zero_checkpoint_put(runtime_, "loader", text.data(), text.size()));
  zero_save_options options;
  zero_save_options_init(&options, sizeof(options));
  options.replace = as.replace ? 1 : 0;
  options.in_background = as.background ? 1 : 0;
  options.keep_last = as.keep_last;
  options.latest = as.latest ? "latest" : nullptr;
  return zero_checkpoint_save(runtime_, path.c_str(), &options);
}

zero_status SavingRank::load(const std::string& path) {
  zero_checkpoint* checkpoint = nullptr;
  zero_status status = zero_checkpoint_open(path.c_str(), &checkpoint);
  if (status != ZERO_OK) return status;
  status = zero_checkpoint_load(runtime_, checkpoint, nullptr);
  zero_checkpoint_info info;
  zero_checkpoint_info_init(&info, sizeof(info));
  if (status == ZERO_OK) {
    OK(zero_checkpoint_describe(checkpoint, &info));
    step_ = info.step;
  }
  zero_checkpoint_destroy(checkpoint);
  return status;
}

std::vector<State> states_of_a_run(int64_t steps, int32_t ranks) {
  std::vector<State> states;
  at_thread_ranks(ranks, [&](int32_t rank, const std::string& group) {
    SavingRank self(rank, ranks, group);
    for (int64_t step = 0; step <= steps; ++step) {
      self.train_to(step);
      const State state = self.state();
      if (rank == 0) states.push_back(state);
    }
    self.close();
  });
  return states;
}

Outcome read_state(const std::string& path, State* state, int64_t* step) {
  state->clear();
  zero_checkpoint* checkpoint = nullptr;
  zero_status status = zero_checkpoint_open(path.c_str(), &checkpoint);
  if (status != ZERO_OK) return outcome(status);
  const auto end = [&] {
    const Outcome result = outcome(status);
    zero_checkpoint_destroy(checkpoint);
    return result;
  };
  status = zero_checkpoint_verify(checkpoint);
  if (status != ZERO_OK) return end();
  zero_checkpoint_info info;
  zero_checkpoint_info_init(&info, sizeof(info));
  status = zero_checkpoint_describe(checkpoint, &info);
  if (status != ZERO_OK) return end();
  for (const Parameter& parameter : parameters()) {
    for (const PartName& part : kParts) {
      if (!has(parameter, part)) continue;
      std::string bytes(bytes_of(parameter, part), '\0');
      status = zero_checkpoint_read(checkpoint, parameter.name, part.part, part.index, 0,
                                    parameter.elements(), bytes.data(), bytes.size());
      if (status != ZERO_OK) return end();
      (*state)[std::string(parameter.name) + " " + part.name] = bytes;
    }
  }
  for (int32_t rank = 0; rank < info.world_size; ++rank) {
    std::string text(100, '\0');
    uint64_t count = 0;
    status = zero_checkpoint_get(checkpoint, rank, "loader", text.data(), text.size(), &count);
    if (status != ZERO_OK) return end();
    if (text.substr(0, count) != blob(rank, info.step)) {
      zero_checkpoint_destroy(checkpoint);
      return {ZERO_ERR_INTERNAL, 0, "a blob says " + text};
    }
  }
  *step = info.step;
  return end();
}

void at_thread_ranks(int32_t ranks, const std::function<void(int32_t, const std::string&)>& body) {
  ::ranks::run_threads(ranks, body);
}

} // namespace faults

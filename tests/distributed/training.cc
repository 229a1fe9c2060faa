// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <random>

#include "training.h"

namespace training {
namespace {

uint64_t bytes_of(zero_dtype dtype) {
  return dtype == ZERO_DTYPE_FP32 ? 4 : 2;
}

uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// By arithmetic: scale until the unit in the last place is 1, round, scale back.
uint16_t to_fp16(float value) {
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (size == 0) return static_cast<uint16_t>(sign);
  if (size >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent, -13); // below: subnormal
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  return static_cast<uint16_t>(sign + static_cast<uint32_t>(exponent + 13) * 1024 + units);
}

float from_fp16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double size =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) size = mantissa == 0 ? INFINITY : NAN;
  return static_cast<float>((bits & 0x8000) != 0 ? -size : size);
}

uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

// Uniform in [-1, 1), of 24 random bits.
float unit_float(uint64_t seed) {
  return static_cast<float>(static_cast<int64_t>(mix(seed) >> 40)) / 8388608.0f - 1.0f;
}

bool is_root(const ParamSpec& param) {
  return param.tied_to < 0;
}

// The names of a unit's trained parameters, in the order a backward pass hands them over.
std::vector<std::vector<int32_t>> backward_units(const ModelSpec& model, const RunSpec& spec,
                                                 int32_t rank, int32_t step) {
  std::vector<std::vector<int32_t>> units;
  std::vector<int32_t> unit_ids;
  for (size_t p = 0; p < model.size(); ++p) {
    if (model[p].role != ZERO_PARAM_TRAINED) continue;
    const size_t root = model[p].tied_to < 0 ? p : static_cast<size_t>(model[p].tied_to);
    const int32_t unit =
        model[root].unit < 0 ? 1000 + static_cast<int32_t>(root) : model[root].unit;
    auto at = std::find(unit_ids.begin(), unit_ids.end(), unit);
    if (at == unit_ids.end()) {
      unit_ids.push_back(unit);
      units.emplace_back();
      at = unit_ids.end() - 1;
    }
    units[static_cast<size_t>(at - unit_ids.begin())].push_back(static_cast<int32_t>(p));
  }
  std::mt19937_64 random(mix(static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(step)));
  // At stage 3 units are acquired in one order on all ranks; only what is inside may differ.
  if (spec.stage == 3) {
    std::reverse(units.begin(), units.end());
    for (auto& unit : units) {
      if (spec.order == Order::kReverse) std::reverse(unit.begin(), unit.end());
      if (spec.order == Order::kRandom) std::shuffle(unit.begin(), unit.end(), random);
    }
    return units;
  }
  std::vector<int32_t> all;
  for (size_t p = 0; p < model.size(); ++p) {
    if (model[p].role == ZERO_PARAM_TRAINED) all.push_back(static_cast<int32_t>(p));
  }
  if (spec.order == Order::kReverse) std::reverse(all.begin(), all.end());
  if (spec.order == Order::kRandom) std::shuffle(all.begin(), all.end(), random);
  return {all};
}

bool is_absent(const ModelSpec& model, const RunSpec& spec, int32_t rank, int32_t param) {
  const ParamSpec& own = model[static_cast<size_t>(param)];
  const ParamSpec& root = own.tied_to < 0 ? own : model[static_cast<size_t>(own.tied_to)];
  return spec.absent_unit >= 0 && rank == 1 && root.unit == spec.absent_unit;
}

float given_gradient(const RunSpec& spec, int32_t step, int32_t micro, int32_t rank, size_t param,
                     uint64_t element) {
  const float value = gradient(step, micro, rank, param, element);
  if (spec.rounded == 0) return value;
  char memory[4];
  put(memory, spec.rounded, 0, value);
  return get(memory, spec.rounded, 0);
}

void hand_over(zero_runtime* runtime, const ModelSpec& model, const RunSpec& spec, int32_t rank,
               int32_t step, int32_t micro, int32_t param) {
  const auto p = static_cast<size_t>(param);
  const uint64_t count = model[p].elements();
  if (is_absent(model, spec, rank, param)) {
    OK(zero_grads_close(runtime, &param, 1, nullptr));
    return;
  }
  const zero_dtype dtype = dtype_of(model[p], spec);
  const auto scale = static_cast<float>(zero_loss_scale(runtime));
  if (spec.submit) {
    std::vector<char> values(count * bytes_of(dtype));
    for (uint64_t i = 0; i < count; ++i) {
      put(values.data(), dtype, i, scale * given_gradient(spec, step, micro, rank, p, i));
    }
    const zero_buffer buffer{values.data(), values.size(), count, dtype, ZERO_PLACE_HOST, -1, 0};
    OK(zero_grad_submit(runtime, param, &buffer, nullptr));
    return;
  }
  zero_buffer buffer;
  int32_t add = -1;
  OK(zero_grad_buffer(runtime, param, nullptr, &buffer, &add));
  for (uint64_t i = 0; i < count; ++i) {
    const float value = scale * given_gradient(spec, step, micro, rank, p, i);
    put(buffer.data, dtype, i, add != 0 ? get(buffer.data, dtype, i) + value : value);
  }
  OK(zero_grad_ready(runtime, &param, 1, nullptr));
}

void forward_and_backward(zero_runtime* runtime, const ModelSpec& model, const RunSpec& spec,
                          int32_t rank, int32_t step, int32_t micro) {
  const auto units = backward_units(model, spec, rank, step);
  std::vector<zero_buffer> buffers(model.size());
  const auto acquire = [&](const std::vector<int32_t>& unit) {
    OK(zero_params_acquire(runtime, unit.data(), unit.size(), nullptr, buffers.data()));
  };
  const auto release = [&](const std::vector<int32_t>& unit) {
    OK(zero_params_release(runtime, unit.data(), unit.size(), 0, nullptr));
  };
  for (size_t u = units.size(); u-- > 0;) { // forward
    acquire(units[u]);
    if (spec.prefetch && u > 0) {
      OK(zero_params_prefetch(runtime, units[u - 1].data(), units[u - 1].size()));
    }
    release(units[u]);
  }
  for (size_t u = 0; u < units.size(); ++u) {
    acquire(units[u]);
    if (spec.prefetch && u + 1 < units.size()) {
      OK(zero_params_prefetch(runtime, units[u + 1].data(), units[u + 1].size()));
    }
    for (const int32_t param : units[u]) {
      hand_over(runtime, model, spec, rank, step, micro, param);
    }
    release(units[u]);
  }
}

} // namespace

void put(void* memory, zero_dtype dtype, uint64_t index, float value) {
  char* at = static_cast<char*>(memory) + index * bytes_of(dtype);
  if (dtype == ZERO_DTYPE_FP32) {
    std::memcpy(at, &value, 4);
    return;
  }
  const uint16_t bits = dtype == ZERO_DTYPE_BF16 ? to_bf16(value) : to_fp16(value);
  std::memcpy(at, &bits, 2);
}

float get(const void* memory, zero_dtype dtype, uint64_t index) {
  const char* at = static_cast<const char*>(memory) + index * bytes_of(dtype);
  float value;
  if (dtype == ZERO_DTYPE_FP32) {
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  if (dtype == ZERO_DTYPE_FP16) return from_fp16(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  std::memcpy(&value, &wide, 4);
  return value;
}

zero_dtype dtype_of(const ParamSpec& param, const RunSpec& spec) {
  return param.group == 0 ? spec.dtype : static_cast<zero_dtype>(ZERO_DTYPE_FP32);
}

float initial_value(size_t param, uint64_t element) {
  return 0.1f * unit_float(mix(param + 1) ^ (element * 0x9e3779b97f4a7c15ULL));
}

// Ranks and micro-batches agree on the sign and differ by a quarter: sums do not cancel, so that
// fp32 and double can be compared.
float gradient(int32_t step, int32_t micro, int32_t rank, size_t param, uint64_t element) {
  const uint64_t place = mix(param * 0x100000001b3ULL + 77) ^ (element * 0x9e3779b97f4a7c15ULL);
  const float base = unit_float(place ^ mix(static_cast<uint64_t>(step) + 5));
  const float own = unit_float(place ^ mix((static_cast<uint64_t>(step) << 16) ^
                                           (static_cast<uint64_t>(micro) << 8) ^
                                           static_cast<uint64_t>(rank) ^ 0xabcdef));
  const float sized = base < 0 ? base - 0.1f : base + 0.1f;
  return 0.01f * sized * (1.0f + 0.25f * own);
}

std::string config_text(const RunSpec& spec) {
  std::string text = "{\"zero_optimization\": {\"stage\": " + std::to_string(spec.stage);
  text += ", \"reduce_bucket_size\": " + std::to_string(spec.bucket);
  text += ", \"stage3_param_persistence_threshold\": 100";
  text += std::string(", \"overlap_comm\": ") + (spec.overlap != 0 ? "true" : "false") + "}";
  text += ", \"optimizer\": " + spec.optimizer;
  if (spec.dtype == ZERO_DTYPE_BF16) {
    text += ", \"bf16\": {\"enabled\": true" + spec.precision + "}";
  }
  if (spec.dtype == ZERO_DTYPE_FP16) {
    text += ", \"fp16\": {\"enabled\": true" + spec.precision + "}";
  }
  text += ", \"gradient_clipping\": " + std::to_string(spec.clipping);
  text += ", \"gradient_accumulation_steps\": " + std::to_string(spec.accumulation);
  text += spec.top;
  text += ", \"libzero\": {\"open_buckets\": " +
          (spec.open_buckets == "all" ? "\"all\"" : spec.open_buckets);
  if (spec.reproducible) text += ", \"reproducible\": \"stage\"";
  text += spec.libzero + "}}";
  return text;
}

std::string describe(const RunSpec& spec) {
  const char* orders[] = {"reverse", "forward", "random"};
  return "stage " + std::to_string(spec.stage) + " ranks " + std::to_string(spec.ranks) +
         " bucket " + std::to_string(spec.bucket) + " overlap " + std::to_string(spec.overlap) +
         " prefetch " + std::to_string(spec.prefetch) + " storage " + std::to_string(spec.storage) +
         " order " + orders[static_cast<int>(spec.order)] + " open " + spec.open_buckets +
         " accumulation " + std::to_string(spec.accumulation) + " reproducible " +
         std::to_string(spec.reproducible) + " submit " + std::to_string(spec.submit) + " dtype " +
         std::to_string(spec.dtype);
}

zero_model* make_model(const ModelSpec& model, const RunSpec& spec,
                       std::vector<std::vector<char>>* values) {
  zero_model* made = nullptr;
  OK(zero_model_create(&made));
  zero_group_options group_options;
  zero_group_options_init(&group_options, sizeof(group_options));
  group_options.weight_decay = 0;
  group_options.lr_scale = 0.5;
  zero_group_id no_decay = -1;
  OK(zero_group_add(made, "no_decay", &group_options, &no_decay));
  values->resize(model.size());
  for (size_t p = 0; p < model.size(); ++p) {
    const ParamSpec& param = model[p];
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    options.role = param.role;
    options.tied_to = param.tied_to;
    options.unit = param.unit;
    options.group = param.group == 0 ? 0 : no_decay;
    options.storage = spec.storage;
    const zero_dtype dtype = dtype_of(param, spec);
    options.dtype = dtype;
    std::vector<char>& data = (*values)[p];
    // A place to point at even for an empty parameter.
    data.resize(std::max<uint64_t>(1, param.elements()) * 4);
    for (uint64_t i = 0; i < param.elements(); ++i) {
      put(data.data(), dtype, i, spec.load.empty() ? initial_value(p, i) : 77.0f);
    }
    options.data = data.data();
    if (param.tied_to >= 0) options.data = nullptr;
    zero_param_id id = -1;
    OK(zero_param_add(made, param.name.c_str(), param.shape.data(),
                      static_cast<int32_t>(param.shape.size()), &options, &id));
    EXPECT(id == static_cast<zero_param_id>(p));
  }
  return made;
}

namespace {

void save(zero_runtime* runtime, const RunSpec& spec) {
  zero_save_options options;
  zero_save_options_init(&options, sizeof(options));
  options.in_background = spec.save_in_background ? 1 : 0;
  OK(zero_checkpoint_save(runtime, spec.save.c_str(), &options));
}

// The number of the first step to take.
int32_t load(zero_runtime* runtime, const RunSpec& spec) {
  if (spec.load.empty()) return 0;
  zero_checkpoint* checkpoint = nullptr;
  OK(zero_checkpoint_open(spec.load.c_str(), &checkpoint));
  OK(zero_checkpoint_load(runtime, checkpoint, nullptr));
  zero_checkpoint_info info;
  zero_checkpoint_info_init(&info, sizeof(info));
  OK(zero_checkpoint_describe(checkpoint, &info));
  zero_checkpoint_destroy(checkpoint);
  EXPECT(zero_step_count(runtime) == info.step);
  // Of another precision the config's own scale stays.
  EXPECT(zero_loss_scale(runtime) == info.loss_scale || info.loss_scale == 1 ||
         spec.dtype != ZERO_DTYPE_FP16);
  return static_cast<int32_t>(info.step);
}

void add_state(zero_runtime* runtime, const ModelSpec& model, int32_t states, Result* result) {
  for (size_t p = 0; p < model.size(); ++p) {
    if (!is_root(model[p]) || model[p].role != ZERO_PARAM_TRAINED) continue;
    for (int32_t k = -1; k < states; ++k) {
      std::vector<float> whole(model[p].elements());
      OK(zero_param_get(runtime, static_cast<int32_t>(p),
                        k < 0 ? ZERO_PART_MASTER : ZERO_PART_STATE, k < 0 ? 0 : k, whole.data(),
                        whole.size() * 4));
      result->state.insert(result->state.end(), whole.begin(), whole.end());
    }
  }
}

} // namespace

Result train(const ModelSpec& model, const RunSpec& spec, int32_t rank, const std::string& group) {
  const std::string text = config_text(spec);
  zero_config* config = nullptr;
  OK(zero_config_load_text(text.data(), text.size(), &config));
  zero_comm* comm = spec.comm;
  if (comm == nullptr && spec.ranks > 1) {
    OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
  } else if (comm == nullptr) {
    OK(zero_comm_create_self(&comm));
  }
  zero_init_options init;
  zero_init_options_init(&init, sizeof(init));
  init.comm = comm;
  zero_runtime* runtime = nullptr;
  OK(zero_init(config, &init, &runtime));
  std::vector<std::vector<char>> values;
  zero_model* made = make_model(model, spec, &values);
  OK(zero_shard_params(runtime, made));
  zero_model_destroy(made);
  Result result;
  const int32_t first = load(runtime, spec);
  if (!spec.save.empty() && first == spec.save_after) save(runtime, spec);
  for (int32_t step = first; step < spec.steps; ++step) {
    for (int32_t micro = 0; micro < spec.accumulation; ++micro) {
      OK(zero_micro_begin(runtime, -1));
      forward_and_backward(runtime, model, spec, rank, step, micro);
      OK(zero_micro_end(runtime, nullptr));
    }
    zero_step_info info;
    zero_step_info_init(&info, sizeof(info));
    OK(zero_step(runtime, nullptr, nullptr, &info));
    EXPECT(info.step == step + 1);
    result.norms.push_back(info.grad_norm);
    result.scales.push_back(info.loss_scale);
    if (!spec.save.empty() && step + 1 == spec.save_after) save(runtime, spec);
  }
  if (spec.with_state) {
    const int32_t states = spec.optimizer.find("SGD") != std::string::npos ? 0 : 2;
    add_state(runtime, model, states, &result);
  }
  for (size_t p = 0; p < model.size(); ++p) {
    const zero_dtype dtype = dtype_of(model[p], spec);
    const uint64_t count = model[p].elements();
    std::vector<char> whole(count * bytes_of(dtype));
    OK(zero_param_get(runtime, static_cast<int32_t>(p), ZERO_PART_VALUE, 0, whole.data(),
                      whole.size()));
    if (!is_root(model[p])) continue;
    for (uint64_t i = 0; i < count; ++i) result.params.push_back(get(whole.data(), dtype, i));
    if (spec.storage == ZERO_STORAGE_CALLER) {
      EXPECT(whole.empty() || std::memcmp(whole.data(), values[p].data(), whole.size()) == 0);
    }
  }
  OK(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
  zero_config_destroy(config);
  return result;
}

Result run_with_threads(const ModelSpec& model, const RunSpec& spec) {
  std::vector<Result> results(static_cast<size_t>(spec.ranks));
  ranks::run_threads(spec.ranks, [&](int32_t rank, const std::string& group) {
    results[static_cast<size_t>(rank)] = train(model, spec, rank, group);
  });
  for (const Result& other : results) {
    EXPECT(other.norms == results[0].norms);
    EXPECT(other.params.size() == results[0].params.size());
    EXPECT(other.params.empty() || std::memcmp(other.params.data(), results[0].params.data(),
                                               other.params.size() * 4) == 0);
    EXPECT(other.scales == results[0].scales && other.state.size() == results[0].state.size());
    EXPECT(other.state.empty() ||
           std::memcmp(other.state.data(), results[0].state.data(), other.state.size() * 4) == 0);
  }
  return results[0];
}

Result run_with_processes(const ModelSpec& model, const RunSpec& spec) {
  uint64_t total = 0;
  for (const ParamSpec& param : model) total += is_root(param) ? param.elements() : 0;
  const auto steps = static_cast<size_t>(spec.steps);
  ranks::SharedArray<float> params(total * static_cast<size_t>(spec.ranks));
  ranks::SharedArray<double> norms(steps * static_cast<size_t>(spec.ranks));
  ranks::assert_all_ended_well(
      ranks::run_processes(spec.ranks, [&](int32_t rank, const std::string& group) {
        const Result result = train(model, spec, rank, group);
        EXPECT(result.params.size() == total);
        std::copy(result.params.begin(), result.params.end(),
                  params.data() + total * static_cast<size_t>(rank));
        std::copy(result.norms.begin(), result.norms.end(),
                  norms.data() + steps * static_cast<size_t>(rank));
      }));
  for (int32_t r = 1; r < spec.ranks; ++r) {
    const auto rank = static_cast<size_t>(r);
    assert_memory_equal(params.data() + total * rank, params.data(), total * 4);
    assert_memory_equal(norms.data() + steps * rank, norms.data(), steps * 8);
  }
  Result result;
  result.params.assign(params.data(), params.data() + total);
  result.norms.assign(norms.data(), norms.data() + steps);
  return result;
}

std::vector<double> reference(const ModelSpec& model, const RunSpec& spec) {
  struct State {
    std::vector<double> value, m, v, grad;
  };
  std::vector<State> states(model.size());
  for (size_t p = 0; p < model.size(); ++p) {
    if (!is_root(model[p])) continue;
    states[p].value.resize(model[p].elements());
    for (uint64_t i = 0; i < states[p].value.size(); ++i) states[p].value[i] = initial_value(p, i);
    states[p].m.assign(states[p].value.size(), 0);
    states[p].v = states[p].m;
  }
  const bool sgd = spec.optimizer.find("SGD") != std::string::npos;
  const bool decoupled = spec.optimizer.find("adam_w_mode") == std::string::npos;
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  for (int32_t step = 0; step < spec.steps; ++step) {
    double squares = 0;
    for (State& state : states) state.grad.assign(state.value.size(), 0);
    for (size_t p = 0; p < model.size(); ++p) {
      if (model[p].role != ZERO_PARAM_TRAINED) continue;
      State& state = states[is_root(model[p]) ? p : static_cast<size_t>(model[p].tied_to)];
      for (uint64_t i = 0; i < state.grad.size(); ++i) {
        for (int32_t r = 0; r < spec.ranks; ++r) {
          for (int32_t k = 0; k < spec.accumulation; ++k) {
            if (is_absent(model, spec, r, static_cast<int32_t>(p))) continue;
            state.grad[i] +=
                static_cast<double>(gradient(step, k, r, p, i)) / (spec.ranks * spec.accumulation);
          }
        }
      }
    }
    for (size_t p = 0; p < model.size(); ++p) {
      for (const double g : states[p].grad) squares += g * g;
    }
    const double norm = std::sqrt(squares);
    const double excess = spec.clipping > 0 ? (norm + 1e-6) / spec.clipping : 1;
    const double clip = excess > 1 ? 1 / excess : 1;
    for (size_t p = 0; p < model.size(); ++p) {
      if (model[p].role != ZERO_PARAM_TRAINED || !is_root(model[p])) continue;
      State& state = states[p];
      const double rate = model[p].group == 0 ? lr : lr * 0.5;
      const double decay = model[p].group == 0 ? 0.1 : 0;
      const double c1 = 1 - std::pow(beta1, step + 1), c2 = 1 - std::pow(beta2, step + 1);
      for (size_t i = 0; i < state.value.size(); ++i) {
        double g = state.grad[i] * clip;
        double& value = state.value[i];
        if (!decoupled || sgd) g += decay * value;
        if (sgd) {
          state.m[i] = step == 0 ? g : 0.9 * state.m[i] + g;
          value -= rate * state.m[i];
          continue;
        }
        state.m[i] = beta1 * state.m[i] + (1 - beta1) * g;
        state.v[i] = beta2 * state.v[i] + (1 - beta2) * g * g;
        const double update = state.m[i] / c1 / (std::sqrt(state.v[i] / c2) + epsilon);
        value -= rate * (update + (decoupled ? decay * value : 0));
      }
    }
  }
  std::vector<double> all;
  for (const State& state : states) all.insert(all.end(), state.value.begin(), state.value.end());
  return all;
}

ModelSpec awkward_model() {
  ModelSpec model;
  const auto add = [&](const char* name, std::vector<int64_t> shape,
                       zero_param_role role = ZERO_PARAM_TRAINED, int32_t tied_to = -1) {
    ParamSpec param;
    param.name = name;
    param.shape = std::move(shape);
    param.role = role;
    param.tied_to = tied_to;
    param.group = static_cast<int32_t>(model.size() % 2);
    if (tied_to >= 0) param.group = model[static_cast<size_t>(tied_to)].group;
    model.push_back(param);
  };
  add("temperature", {});
  add("one", {1});
  add("seven", {7});
  add("empty.weight", {0, 8});
  add("hole", {4, 0});
  add("prime", {10007});
  add("big", {16384});
  add("frozen_scalar", {}, ZERO_PARAM_FROZEN);
  add("head", {7}, ZERO_PARAM_TRAINED, 2);
  add("half_vec", {33});
  add("bf_vec", {17});
  add("mask", {3}, ZERO_PARAM_BUFFER);
  return model;
}

ModelSpec gpt_model() {
  ModelSpec model;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, int32_t unit) {
    ParamSpec param;
    param.name = name;
    param.shape = std::move(shape);
    param.unit = unit;
    param.group = param.shape.size() > 1 ? 0 : 1;
    model.push_back(param);
  };
  const int64_t width = 24;
  add("wte", {157, width}, 0);
  add("wpe", {32, width}, 0);
  for (int32_t block = 0; block < 3; ++block) {
    const std::string h = "h." + std::to_string(block) + ".";
    add(h + "ln_1.weight", {width}, block + 1);
    add(h + "ln_1.bias", {width}, block + 1);
    add(h + "attn.c_attn.weight", {width, 3 * width}, block + 1);
    add(h + "attn.c_attn.bias", {3 * width}, block + 1);
    add(h + "attn.c_proj.weight", {width, width}, block + 1);
    add(h + "attn.c_proj.bias", {width}, block + 1);
    add(h + "ln_2.weight", {width}, block + 1);
    add(h + "ln_2.bias", {width}, block + 1);
    add(h + "mlp.c_fc.weight", {width, 4 * width}, block + 1);
    add(h + "mlp.c_fc.bias", {4 * width}, block + 1);
    add(h + "mlp.c_proj.weight", {4 * width, width}, block + 1);
    add(h + "mlp.c_proj.bias", {width}, block + 1);
  }
  add("ln_f.weight", {width}, 4);
  add("ln_f.bias", {width}, 4);
  return model;
}

} // namespace training

// One rank of a test about files of weights: a model of parameters of any dtype and role, steps on
// prescribed gradients; a folder of a test's own; a safetensors file taken apart.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "training.h"

namespace weights {

using Floats = std::vector<float>;

struct Param {
  std::string name;
  std::vector<int64_t> shape;
  zero_param_role role = ZERO_PARAM_TRAINED;
  int32_t tied_to = -1;
  zero_dtype dtype = 0; // 0: the run's
  uint64_t elements() const {
    uint64_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
    return count;
  }
};

struct Spec {
  int32_t stage = 0;
  int32_t ranks = 1;
  zero_dtype dtype = ZERO_DTYPE_FP32;
  std::string optimizer = R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})";
  std::string zero; // more keys of zero_optimization, ", \"key\": value"
  std::string open_buckets = "\"all\"";
  std::string libzero; // more keys of libzero, ", \"key\": value"
};

class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "libzero-weights-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  size_t entries() const {
    const auto all = std::filesystem::directory_iterator(path_);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::string path_;
};

inline bool exists(const std::string& path) {
  return std::filesystem::exists(path);
}

inline std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A multiple of 1/8 below 8: exact in every dtype.
inline float initial(size_t param, uint64_t element) {
  return static_cast<float>((param * 31 + element * 7) % 127) / 8.0f - 8.0f;
}

// By searching the text: enough for names without quotes.
class File {
 public:
  explicit File(const std::string& path) : bytes_(read(path)) {
    uint64_t length = 0;
    EXPECT(bytes_.size() >= 8);
    std::memcpy(&length, bytes_.data(), 8);
    EXPECT(length <= bytes_.size() - 8);
    header_ = bytes_.substr(8, length);
  }
  const std::string& header() const { return header_; }
  bool has(const std::string& name) const {
    return header_.find("\"" + name + "\":{\"dtype\"") != std::string::npos;
  }
  std::string dtype(const std::string& name) const { return between(name, "\"dtype\":\"", "\""); }
  std::string shape(const std::string& name) const {
    return "[" + between(name, "\"shape\":[", "]") + "]";
  }
  std::string bytes(const std::string& name) const {
    const std::string offsets = between(name, "\"data_offsets\":[", "]");
    const uint64_t begin = std::strtoull(offsets.c_str(), nullptr, 10);
    const uint64_t end = std::strtoull(offsets.c_str() + offsets.find(',') + 1, nullptr, 10);
    return bytes_.substr(8 + header_.size() + begin, end - begin);
  }

 private:
  std::string between(const std::string& name, const char* from, const char* to) const {
    const size_t entry = header_.find("\"" + name + "\":{\"dtype\"");
    EXPECT(entry != std::string::npos);
    const size_t begin = header_.find(from, entry) + std::strlen(from);
    return header_.substr(begin, header_.find(to, begin) - begin);
  }
  std::string bytes_;
  std::string header_;
};

class Rank {
 public:
  Rank(int32_t number, const std::string& group, const Spec& spec) : rank(number), spec_(spec) {
    std::string text = "{\"optimizer\": " + spec.optimizer +
                       ", \"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": " +
                       std::to_string(spec.stage) + ", \"stage3_param_persistence_threshold\": 50" +
                       spec.zero + "}";
    if (spec.dtype == ZERO_DTYPE_BF16) text += ", \"bf16\": {\"enabled\": true}";
    if (spec.dtype == ZERO_DTYPE_FP16) {
      text += ", \"fp16\": {\"enabled\": true, \"loss_scale\": 1}";
    }
    text += ", \"libzero\": {\"open_buckets\": " + spec.open_buckets + spec.libzero + "}}";
    OK(zero_config_load_text(text.data(), text.size(), &config_));
    if (spec.ranks > 1) {
      OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm_));
    } else {
      OK(zero_comm_create_self(&comm_));
    }
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm_;
    OK(zero_init(config_, &init, &runtime));
    OK(zero_model_create(&model));
  }
  ~Rank() {
    zero_runtime_destroy(runtime);
    zero_model_destroy(model);
    zero_model_destroy(loaded);
    zero_comm_destroy(comm_);
    zero_config_destroy(config_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // with_values: initial() for floats, 2^53+1 for the int64 counters; else nothing.
  void add_all(const std::vector<Param>& params, bool with_values) {
    for (size_t p = 0; p < params.size(); ++p) {
      const Param& param = params[p];
      zero_param_options options;
      zero_param_options_init(&options, sizeof(options));
      options.dtype = param.dtype != 0 ? param.dtype : spec_.dtype;
      options.role = param.role;
      options.tied_to = param.tied_to;
      if (with_values && param.tied_to < 0) {
        data_.emplace_back(param.elements() * 8 + 8);
        fill(data_.back().data(), options.dtype, p, param.elements());
        options.data = data_.back().data();
      }
      zero_param_id id = -1;
      OK(zero_param_add(model, param.name.c_str(), param.shape.data(),
                        static_cast<int32_t>(param.shape.size()), &options, &id));
    }
    params_ = params;
  }
  void shard() { OK(zero_shard_params(runtime, model)); }
  void close() { OK(zero_runtime_close(runtime)); }

  // The same gradient on every rank: its average is itself, whatever their number.
  void step(float size) {
    for (size_t p = params_.size(); p-- > 0;) {
      if (params_[p].role != ZERO_PARAM_TRAINED || params_[p].tied_to >= 0) continue;
      const auto id = static_cast<zero_param_id>(p);
      zero_buffer buffer;
      int32_t add = 0;
      OK(zero_grad_buffer(runtime, id, nullptr, &buffer, &add));
      for (uint64_t i = 0; i < buffer.count; ++i) {
        const float value = size * (initial(p + 3, i) / 8.0f);
        training::put(buffer.data, buffer.dtype, i,
                      add != 0 ? value + training::get(buffer.data, buffer.dtype, i) : value);
      }
      OK(zero_grad_ready(runtime, &id, 1, nullptr));
    }
    OK(zero_step(runtime, nullptr, nullptr, nullptr));
  }

  zero_param_id find(const std::string& name) const {
    zero_param_id id = -1;
    OK(zero_param_find(runtime, name.c_str(), &id));
    return id;
  }
  // fp32 parts; a value only where its dtype is fp32.
  Floats floats(const std::string& name, zero_part part, int32_t index = 0) {
    const zero_param_id id = find(name);
    Floats values(params_[static_cast<size_t>(id)].elements());
    OK(zero_param_get(runtime, id, part, index, values.data(), values.size() * 4));
    return values;
  }
  Floats stored(const std::string& name) { return floats(name, ZERO_PART_MASTER); }
  std::vector<uint16_t> halves(const std::string& name) {
    const zero_param_id id = find(name);
    std::vector<uint16_t> values(params_[static_cast<size_t>(id)].elements());
    OK(zero_param_get(runtime, id, ZERO_PART_VALUE, 0, values.data(), values.size() * 2));
    return values;
  }
  int64_t integer(const std::string& name) {
    int64_t value = -1;
    OK(zero_param_get(runtime, find(name), ZERO_PART_VALUE, 0, &value, 8));
    return value;
  }
  bool same_values(const std::string& one, const std::string& other) {
    return stored(one) == stored(other);
  }

  const int32_t rank;
  zero_runtime* runtime = nullptr;
  zero_model* model = nullptr;
  zero_model* loaded = nullptr; // another one, for a test that loads it

 private:
  static void fill(char* memory, zero_dtype dtype, size_t param, uint64_t elements) {
    for (uint64_t i = 0; i < elements; ++i) {
      const int64_t counter = (int64_t{1} << 53) + 1;
      if (dtype == ZERO_DTYPE_INT64) {
        std::memcpy(memory + i * 8, &counter, 8);
      } else if (dtype == ZERO_DTYPE_UINT8) {
        memory[i] = static_cast<char>(200 + i);
      } else if (dtype == ZERO_DTYPE_INT32) {
        std::memcpy(memory + i * 4, &counter, 4);
      } else {
        training::put(memory, dtype, i, initial(param, i));
      }
    }
  }

  const Spec spec_;
  zero_config* config_ = nullptr;
  zero_comm* comm_ = nullptr;
  std::deque<std::vector<char>> data_;
  std::vector<Param> params_;
};

// The body at this many forked ranks, each with its runtime.
inline void run(const Spec& spec, const std::function<void(Rank&)>& body) {
  ranks::assert_all_ended_well(
      ranks::run_processes(spec.ranks, [&](int32_t rank, const std::string& group) {
        Rank self(rank, group, spec);
        body(self);
      }));
}

} // namespace weights

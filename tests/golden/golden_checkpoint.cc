// Checkpoints of released versions, kept beside this file, are loaded by every later one: at any
// number of ranks and stage, every element, count and blob as it was written.
//   golden_checkpoint --write FOLDER    (how checkpoint-v1 was made; never again for that name)
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <filesystem>

#include "ranks.h"

namespace {

constexpr int32_t kWriters = 2;
constexpr int64_t kSteps = 2;
constexpr double kScale = 1024;

struct Parameter {
  const char* name;
  std::vector<int64_t> shape;
  zero_dtype dtype;
  zero_param_role role = ZERO_PARAM_TRAINED;
  zero_param_id tied_to = -1;
  int32_t group = 0;
  uint64_t elements() const {
    uint64_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
    return count;
  }
  uint64_t bytes_each() const {
    return dtype == ZERO_DTYPE_INT64 ? 8 : dtype == ZERO_DTYPE_FP32 ? 4 : 2;
  }
};

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = {
      {"embed.weight", {10, 7}, ZERO_DTYPE_FP16},
      {"norm.weight", {7}, ZERO_DTYPE_FP32, ZERO_PARAM_TRAINED, -1, 1},
      {"norm.empty", {0, 3}, ZERO_DTYPE_FP32},
      {"temperature", {}, ZERO_DTYPE_FP16},
      {"frozen.weight", {33}, ZERO_DTYPE_FP16, ZERO_PARAM_FROZEN},
      {"head.weight", {10, 7}, ZERO_DTYPE_FP16, ZERO_PARAM_TRAINED, 0},
      {"norm.count", {2}, ZERO_DTYPE_INT64, ZERO_PARAM_BUFFER},
  };
  return all;
}

// Multiples of 1/256 below 6: exact in fp16 as well.
float element(size_t param, zero_part part, int32_t index, uint64_t at) {
  const uint64_t number = (at * 37 + param * 11 + static_cast<uint64_t>(index) * 5) % 1000;
  return static_cast<float>(number) / 256.0f + (part == ZERO_PART_STATE ? 2.0f : 0.0f);
}

uint16_t fp16_of(float value) { // of a multiple of 1/256 in [0, 8)
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  const auto mantissa = static_cast<uint32_t>(std::ldexp(fraction, 11)); // [1024, 2048)
  return static_cast<uint16_t>(static_cast<uint32_t>(exponent + 14) * 1024 + (mantissa - 1024));
}

std::string bytes_of(size_t p, zero_part part, int32_t index) {
  const Parameter& parameter = parameters()[p];
  const size_t root = parameter.tied_to >= 0 ? static_cast<size_t>(parameter.tied_to) : p;
  std::string bytes;
  for (uint64_t i = 0; i < parameter.elements(); ++i) {
    const float value = element(root, part, index, i);
    const int64_t count = (INT64_C(1) << 53) + 1 + static_cast<int64_t>(i);
    const uint16_t half = fp16_of(value);
    if (parameter.dtype == ZERO_DTYPE_INT64) {
      bytes.append(reinterpret_cast<const char*>(&count), 8);
    } else if (part == ZERO_PART_VALUE && parameter.dtype == ZERO_DTYPE_FP16) {
      bytes.append(reinterpret_cast<const char*>(&half), 2);
    } else {
      bytes.append(reinterpret_cast<const char*>(&value), 4);
    }
  }
  return bytes;
}

std::string blob(int32_t rank) {
  return "position of rank " + std::to_string(rank);
}

class Rank {
 public:
  Rank(int32_t rank, int32_t ranks, const std::string& group, int32_t stage) {
    const std::string text = R"({"zero_optimization": {"stage": )" + std::to_string(stage) +
                             R"(}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
      "fp16": {"enabled": true, "initial_scale_power": 10}})";
    OK(zero_config_load_text(text.data(), text.size(), &config_));
    if (ranks > 1) {
      OK(zero_comm_create_local(group.c_str(), rank, ranks, 60 * ranks::kSecond, &comm_));
    } else {
      OK(zero_comm_create_self(&comm_));
    }
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm_;
    OK(zero_init(config_, &init, &runtime));
    zero_model* model = nullptr;
    OK(zero_model_create(&model));
    zero_group_options group_options;
    zero_group_options_init(&group_options, sizeof(group_options));
    group_options.weight_decay = 0;
    zero_group_id no_decay = -1;
    OK(zero_group_add(model, "no_decay", &group_options, &no_decay));
    data_.resize(parameters().size());
    for (size_t p = 0; p < parameters().size(); ++p) {
      const Parameter& parameter = parameters()[p];
      data_[p].resize(parameter.elements() * 8 + 8, '\0');
      zero_param_options options;
      zero_param_options_init(&options, sizeof(options));
      options.dtype = parameter.dtype;
      options.role = parameter.role;
      options.tied_to = parameter.tied_to;
      options.group = parameter.group == 0 ? 0 : no_decay;
      if (parameter.tied_to < 0) options.data = data_[p].data();
      zero_param_id id = -1;
      OK(zero_param_add(model, parameter.name, parameter.shape.data(),
                        static_cast<int32_t>(parameter.shape.size()), &options, &id));
    }
    OK(zero_shard_params(runtime, model));
    zero_model_destroy(model);
  }
  ~Rank() {
    OK(zero_runtime_close(runtime));
    zero_runtime_destroy(runtime);
    zero_comm_destroy(comm_);
    zero_config_destroy(config_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void step() { // gradients of zero
    for (size_t p = parameters().size(); p-- > 0;) {
      const Parameter& parameter = parameters()[p];
      if (parameter.role != ZERO_PARAM_TRAINED) continue;
      std::string zeros(parameter.elements() * parameter.bytes_each() + 1, '\0');
      const zero_buffer buffer{zeros.data(),
                               zeros.size() - 1,
                               parameter.elements(),
                               parameter.dtype,
                               ZERO_PLACE_HOST,
                               -1,
                               0};
      OK(zero_grad_submit(runtime, static_cast<zero_param_id>(p), &buffer, nullptr));
    }
    OK(zero_step(runtime, nullptr, nullptr, nullptr));
  }

  // body(param, part, index) of everything that is there.
  static void for_each_part(const std::function<void(size_t, zero_part, int32_t)>& body) {
    for (size_t p = 0; p < parameters().size(); ++p) {
      if (parameters()[p].role == ZERO_PARAM_TRAINED) {
        body(p, ZERO_PART_MASTER, 0);
        body(p, ZERO_PART_STATE, 0);
        body(p, ZERO_PART_STATE, 1);
      }
      body(p, ZERO_PART_VALUE, 0);
    }
  }

  zero_runtime* runtime = nullptr;

 private:
  zero_config* config_ = nullptr;
  zero_comm* comm_ = nullptr;
  std::vector<std::string> data_;
};

void write(const std::string& folder) {
  ranks::run_threads(kWriters, [&](int32_t rank, const std::string& group) {
    Rank self(rank, kWriters, group, 2);
    for (int64_t i = 0; i < kSteps; ++i) self.step();
    Rank::for_each_part([&](size_t p, zero_part part, int32_t index) {
      if (parameters()[p].tied_to >= 0) return;
      const std::string bytes = bytes_of(p, part, index);
      OK(zero_param_set(self.runtime, static_cast<zero_param_id>(p), part, index, bytes.data(),
                        bytes.size()));
    });
    OK(zero_checkpoint_put(self.runtime, "loader", blob(rank).data(), blob(rank).size()));
    OK(zero_checkpoint_save(self.runtime, folder.c_str(), nullptr));
  });
}

std::vector<std::string> kept_checkpoints() {
  const char* const folder = std::getenv("LIBZERO_GOLDEN");
  std::vector<std::string> all;
  if (folder == nullptr) return all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().rfind("checkpoint-v", 0) == 0) all.push_back(entry.path());
  }
  return all;
}

void every_kept_checkpoint_is_loaded_at_any_ranks_and_stage(void**) {
  assert_false(kept_checkpoints().empty());
  for (const std::string& path : kept_checkpoints()) {
    for (const int32_t count : {1, 2, 3, 4}) {
      for (int32_t stage = 0; stage <= 3; ++stage) {
        ranks::run_threads(count, [&](int32_t rank, const std::string& group) {
          Rank self(rank, count, group, stage);
          zero_checkpoint* checkpoint = nullptr;
          OK(zero_checkpoint_open(path.c_str(), &checkpoint));
          OK(zero_checkpoint_load(self.runtime, checkpoint, nullptr));
          zero_checkpoint_destroy(checkpoint);
          EXPECT(zero_loss_scale(self.runtime) == kScale);
          Rank::for_each_part([&](size_t p, zero_part part, int32_t index) {
            const std::string expected = bytes_of(p, part, index);
            std::string found(expected.size(), '\0');
            OK(zero_param_get(self.runtime, static_cast<zero_param_id>(p), part, index,
                              found.data(), found.size()));
            EXPECT(found == expected);
          });
          self.step(); // it goes on
        });
      }
    }
  }
}

void every_kept_checkpoint_is_sound_and_says_what_it_holds(void**) {
  for (const std::string& path : kept_checkpoints()) {
    zero_checkpoint* checkpoint = nullptr;
    OK(zero_checkpoint_open(path.c_str(), &checkpoint));
    OK(zero_checkpoint_verify(checkpoint));
    zero_checkpoint_info info;
    zero_checkpoint_info_init(&info, sizeof(info));
    OK(zero_checkpoint_describe(checkpoint, &info));
    assert_int_equal(info.step, kSteps);
    assert_int_equal(info.world_size, kWriters);
    assert_int_equal(info.stage, 2);
    assert_int_equal(info.param_count, parameters().size());
    assert_int_equal(info.skipped_total, 0);
    assert_true(info.loss_scale == kScale);
    for (size_t p = 0; p < parameters().size(); ++p) {
      zero_param_info param;
      zero_param_info_init(&param, sizeof(param));
      OK(zero_checkpoint_param_at(checkpoint, static_cast<int64_t>(p), &param));
      assert_string_equal(param.name, parameters()[p].name);
      assert_int_equal(param.elements, parameters()[p].elements());
      assert_int_equal(param.dtype, parameters()[p].dtype);
      assert_int_equal(param.tied_to, parameters()[p].tied_to);
      int64_t steps = -1;
      OK(zero_checkpoint_param_steps(checkpoint, static_cast<int64_t>(p), &steps));
      assert_int_equal(steps, parameters()[p].role == ZERO_PARAM_TRAINED ? kSteps : 0);
    }
    for (int32_t rank = 0; rank < kWriters; ++rank) {
      char text[100];
      uint64_t count = 0;
      OK(zero_checkpoint_get(checkpoint, rank, "loader", text, sizeof(text), &count));
      assert_string_equal(std::string(text, count).c_str(), blob(rank).c_str());
    }
    zero_checkpoint_destroy(checkpoint);
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--write") == 0) {
    write(argv[2]);
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_kept_checkpoint_is_sound_and_says_what_it_holds),
      cmocka_unit_test(every_kept_checkpoint_is_loaded_at_any_ranks_and_stage),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

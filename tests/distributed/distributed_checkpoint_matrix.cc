// A checkpoint of any stage and number of ranks is loaded at any other, at another bucket size, and
// every element of master, moments, frozen values and buffers is at its place, bit for bit.
// Full: all 20 x 20 pairs; quick: every pair of stages, every pair of numbers of ranks.
// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>

#include "training.h"

namespace {

using training::ModelSpec;
using training::RunSpec;

const int32_t kWorlds[] = {1, 2, 3, 4, 6};

struct Shape {
  int32_t stage;
  int32_t ranks;
  bool operator==(const Shape&) const = default;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (int32_t stage = 0; stage <= 3; ++stage) {
    for (const int32_t ranks : kWorlds) all.push_back({stage, ranks});
  }
  return all;
}

std::string name_of(const Shape& shape) {
  return "stage-" + std::to_string(shape.stage) + "-ranks-" + std::to_string(shape.ranks);
}

// Any fp32 but no NaN: all 24 bits count, so that a value that went through bf16 is another one.
float element(const Shape& writer, size_t param, int32_t part, uint64_t at) {
  const auto seed =
      static_cast<size_t>(writer.stage * 100 + writer.ranks * 10 + part) * 1000 + param;
  const float value = training::initial_value(seed, at);
  return value == 0 ? 1.5f : value;
}

struct Part {
  zero_part part;
  int32_t index;
};
const Part kParts[] = {{ZERO_PART_MASTER, 0}, {ZERO_PART_STATE, 0}, {ZERO_PART_STATE, 1}};

// The parts that are stored; others follow from them.
std::vector<Part> parts_of(const training::ParamSpec& param) {
  if (param.tied_to >= 0) return {};
  if (param.role != ZERO_PARAM_TRAINED) return {{ZERO_PART_VALUE, 0}};
  return {std::begin(kParts), std::end(kParts)};
}

// The bytes of a part; a value in its own dtype.
std::string bytes_of(const Shape& writer, const ModelSpec& model, const RunSpec& spec, size_t p,
                     const Part& part) {
  const zero_dtype dtype = part.part == ZERO_PART_VALUE ? training::dtype_of(model[p], spec)
                                                        : static_cast<zero_dtype>(ZERO_DTYPE_FP32);
  const bool of_master = part.part == ZERO_PART_VALUE && model[p].role == ZERO_PARAM_TRAINED;
  const int32_t number = of_master ? ZERO_PART_MASTER : part.part + part.index;
  const uint64_t count = model[p].elements();
  std::string bytes(count * (dtype == ZERO_DTYPE_FP32 ? 4 : 2), '\0');
  for (uint64_t i = 0; i < count; ++i) {
    training::put(bytes.data(), dtype, i, element(writer, p, number, i));
  }
  return bytes;
}

// One rank with the model; closes at the end of its body.
class Rank {
 public:
  Rank(const Shape& shape, int32_t rank, const std::string& group, const ModelSpec& model,
       const RunSpec& spec)
      : model_(model), spec_(spec) {
    const std::string text = training::config_text(spec);
    OK(zero_config_load_text(text.data(), text.size(), &config_));
    if (shape.ranks > 1) {
      OK(zero_comm_create_local(group.c_str(), rank, shape.ranks, 60 * ranks::kSecond, &comm_));
    } else {
      OK(zero_comm_create_self(&comm_));
    }
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm_;
    OK(zero_init(config_, &init, &runtime));
    zero_model* const made = training::make_model(model, spec, &values_);
    OK(zero_shard_params(runtime, made));
    zero_model_destroy(made);
  }
  ~Rank() {
    OK(zero_runtime_close(runtime));
    zero_runtime_destroy(runtime);
    zero_comm_destroy(comm_);
    zero_config_destroy(config_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void set_all(const Shape& writer) {
    for (size_t p = 0; p < model_.size(); ++p) {
      for (const Part& part : parts_of(model_[p])) {
        const std::string bytes = bytes_of(writer, model_, spec_, p, part);
        OK(zero_param_set(runtime, static_cast<zero_param_id>(p), part.part, part.index,
                          bytes.data(), bytes.size()));
      }
    }
  }
  void expect_all(const Shape& writer, const Shape& reader) {
    for (size_t p = 0; p < model_.size(); ++p) {
      std::vector<Part> parts = parts_of(model_[p]);
      if (model_[p].role == ZERO_PARAM_TRAINED && model_[p].tied_to < 0) {
        parts.push_back({ZERO_PART_VALUE, 0});
      }
      for (const Part& part : parts) {
        const std::string expected = bytes_of(writer, model_, spec_, p, part);
        std::string found(expected.size(), '\0');
        OK(zero_param_get(runtime, static_cast<zero_param_id>(p), part.part, part.index,
                          found.data(), found.size()));
        if (found == expected) continue;
        std::fprintf(stderr, "%s read by %s: \"%s\", part %d, index %d differs\n",
                     name_of(writer).c_str(), name_of(reader).c_str(), model_[p].name.c_str(),
                     part.part, part.index);
        EXPECT(found == expected);
      }
    }
  }

  zero_runtime* runtime = nullptr;

 private:
  const ModelSpec& model_;
  const RunSpec& spec_;
  zero_config* config_ = nullptr;
  zero_comm* comm_ = nullptr;
  std::vector<std::vector<char>> values_;
};

RunSpec spec_of(const Shape& shape, zero_dtype dtype, bool reads) {
  RunSpec spec;
  spec.stage = shape.stage;
  spec.ranks = shape.ranks;
  spec.dtype = dtype;
  spec.bucket = reads ? 1013 : 4096; // another layout, also at the same shape
  return spec;
}

// Whether a quick run looks at a pair: each stage with each and each number of ranks with each.
bool is_looked_at(size_t writer, size_t reader) {
  return ranks::full_tier() || writer == reader ||
         (writer / 5 + writer % 5 + 2 * (reader / 5) + 3 * (reader % 5)) % 5 == 0;
}

void save_all(const std::string& folder, const ModelSpec& model, zero_dtype dtype) {
  for (const Shape& shape : shapes()) {
    const RunSpec spec = spec_of(shape, dtype, false);
    ranks::run_threads(shape.ranks, [&](int32_t rank, const std::string& group) {
      Rank self(shape, rank, group, model, spec);
      self.set_all(shape);
      OK(zero_checkpoint_save(self.runtime, (folder + "/" + name_of(shape)).c_str(), nullptr));
    });
  }
}

void load_all(const std::string& folder, const ModelSpec& model, zero_dtype dtype) {
  const std::vector<Shape> all = shapes();
  for (size_t r = 0; r < all.size(); ++r) {
    const RunSpec spec = spec_of(all[r], dtype, true);
    ranks::run_threads(all[r].ranks, [&](int32_t rank, const std::string& group) {
      Rank self(all[r], rank, group, model, spec);
      for (size_t w = 0; w < all.size(); ++w) {
        if (!is_looked_at(w, r)) continue;
        zero_checkpoint* checkpoint = nullptr;
        OK(zero_checkpoint_open((folder + "/" + name_of(all[w])).c_str(), &checkpoint));
        OK(zero_checkpoint_load(self.runtime, checkpoint, nullptr));
        zero_checkpoint_destroy(checkpoint);
        self.expect_all(all[w], all[r]);
      }
    });
  }
}

void every_shape_reads_every_other(const ModelSpec& model, zero_dtype dtype) {
  // In memory where there is a place for that: a disk takes long.
  const std::filesystem::path above =
      access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
  const std::string folder = above / ("libzero-matrix-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  save_all(folder, model, dtype);
  load_all(folder, model, dtype);
  std::filesystem::remove_all(folder);
}

void the_quick_part_holds_every_pair_of_stages_and_of_numbers_of_ranks(void**) {
  const std::vector<Shape> all = shapes();
  bool stages[4][4] = {};
  bool worlds[7][7] = {};
  for (size_t w = 0; w < all.size(); ++w) {
    for (size_t r = 0; r < all.size(); ++r) {
      if (!is_looked_at(w, r)) continue;
      stages[all[w].stage][all[r].stage] = true;
      worlds[all[w].ranks][all[r].ranks] = true;
    }
  }
  for (const auto& row : stages) {
    for (const bool seen : row) assert_true(seen);
  }
  for (const int32_t w : kWorlds) {
    for (const int32_t r : kWorlds) assert_true(worlds[w][r]);
  }
}

void masters_and_moments_of_every_shape_are_read_by_every_shape(void**) {
  every_shape_reads_every_other(training::awkward_model(), ZERO_DTYPE_BF16);
}

void a_gpt_of_every_shape_is_read_by_every_shape(void**) {
  every_shape_reads_every_other(training::gpt_model(), ZERO_DTYPE_FP32);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_quick_part_holds_every_pair_of_stages_and_of_numbers_of_ranks),
      cmocka_unit_test(masters_and_moments_of_every_shape_are_read_by_every_shape),
      cmocka_unit_test(a_gpt_of_every_shape_is_read_by_every_shape),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

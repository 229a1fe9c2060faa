// Bytes: what the plan says is what is allocated, on every rank, and the parts of it that the ZeRO
// paper names are the paper's. SPDX-License-Identifier: BSD-3-Clause
#include "training.h"

namespace {

using training::ModelSpec;
using training::RunSpec;

// Sizes that 1 to 4 ranks cut without padding: multiples of 32 x 12.
ModelSpec even_model() {
  ModelSpec model;
  for (const int64_t rows : {384, 3840, 768, 38400}) {
    training::ParamSpec param;
    param.name = "w" + std::to_string(rows);
    param.shape = {rows};
    model.push_back(param);
  }
  return model;
}

uint64_t elements(const ModelSpec& model) {
  uint64_t total = 0;
  for (const training::ParamSpec& param : model) {
    if (param.role == ZERO_PARAM_TRAINED && param.tied_to < 0) total += param.elements();
  }
  return total;
}

struct Bytes {
  uint64_t planned[9], usage[9], peak[9];
};

// Trains two steps, so that a step that allocates would show.
Bytes measure(const ModelSpec& model, const RunSpec& spec, int32_t rank, const std::string& group) {
  const std::string text = training::config_text(spec);
  zero_config* config = nullptr;
  OK(zero_config_load_text(text.data(), text.size(), &config));
  zero_comm* comm = nullptr;
  OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
  zero_init_options init;
  zero_init_options_init(&init, sizeof(init));
  init.comm = comm;
  zero_runtime* runtime = nullptr;
  OK(zero_init(config, &init, &runtime));
  std::vector<std::vector<char>> values;
  zero_model* made = training::make_model(model, spec, &values);
  // Before anything is allocated, and again what the runtime carries out.
  zero_plan_options options;
  zero_plan_options_init(&options, sizeof(options));
  options.world_size = spec.ranks;
  zero_plan* before = nullptr;
  OK(zero_plan_create(config, made, &options, &before));
  OK(zero_shard_params(runtime, made));
  for (int32_t step = 0; step < 2; ++step) {
    for (int32_t micro = 0; micro < spec.accumulation; ++micro) {
      OK(zero_micro_begin(runtime, -1));
      OK(zero_micro_end(runtime, nullptr));
    }
    if (spec.optimizer.find("libzero.host") == std::string::npos) {
      OK(zero_step(runtime, nullptr, nullptr, nullptr));
    } else {
      OK(zero_step_begin(runtime, nullptr, nullptr, nullptr));
      OK(zero_step_end(runtime, nullptr));
    }
  }
  Bytes bytes{};
  for (int32_t use = 0; use <= ZERO_MEMORY_TABLES; ++use) {
    uint64_t planned = 0;
    OK(zero_plan_memory(before, rank, ZERO_PLACE_HOST, use, &bytes.planned[use]));
    OK(zero_plan_memory(zero_runtime_plan(runtime), rank, ZERO_PLACE_HOST, use, &planned));
    EXPECT(planned == bytes.planned[use]);
    zero_memory_info info;
    zero_memory_info_init(&info, sizeof(info));
    OK(zero_memory_usage(runtime, ZERO_PLACE_HOST, use, &info));
    EXPECT(info.planned == planned);
    bytes.usage[use] = info.current;
    bytes.peak[use] = info.peak;
  }
  zero_plan_destroy(before);
  zero_model_destroy(made);
  OK(zero_runtime_close(runtime));
  zero_runtime_destroy(runtime);
  zero_comm_destroy(comm);
  zero_config_destroy(config);
  return bytes;
}

std::vector<Bytes> measure_all(const ModelSpec& model, const RunSpec& spec) {
  std::vector<Bytes> bytes(static_cast<size_t>(spec.ranks));
  ranks::run_threads(spec.ranks, [&](int32_t rank, const std::string& group) {
    bytes[static_cast<size_t>(rank)] = measure(model, spec, rank, group);
  });
  return bytes;
}

void expect_as_planned(const ModelSpec& model, const RunSpec& spec) {
  for (const Bytes& bytes : measure_all(model, spec)) {
    uint64_t sum = 0;
    for (int32_t use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; ++use) {
      sum += bytes.planned[use];
      if (use == ZERO_MEMORY_TABLES) continue;
      if (bytes.planned[use] != bytes.usage[use]) {
        print_message("use %d: %s, %s\n", use, training::describe(spec).c_str(),
                      spec.optimizer.c_str());
      }
      assert_int_equal(bytes.planned[use], bytes.usage[use]);
      assert_int_equal(bytes.planned[use], bytes.peak[use]);
    }
    assert_int_equal(bytes.planned[ZERO_MEMORY_TOTAL], sum);
    assert_true(bytes.usage[ZERO_MEMORY_TABLES] > 0);
    assert_true(bytes.usage[ZERO_MEMORY_TABLES] <= bytes.planned[ZERO_MEMORY_TABLES]);
  }
}

// Every stage x dtype x optimizer x storage; with 1 to 4 ranks, one and three micro-batches in turn
// in the quick tier, all of them in the full one.
void planned_bytes_are_allocated_bytes_for_every_stage_dtype_and_optimizer(void**) {
  const char* optimizers[] = {
      R"({"type": "AdamW", "params": {"lr": 0.01}})",
      R"({"type": "SGD", "params": {"lr": 0.01}})",
      R"({"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}})",
      R"({"type": "Adagrad", "params": {"lr": 0.01}})",
      R"({"type": "Lion", "params": {"lr": 0.01}})",
      R"({"type": "Lamb", "params": {"lr": 0.01}})",
      R"({"type": "Muon", "params": {"lr": 0.01}})",
      R"({"type": "libzero.host", "params": {"states": 3}})",
  };
  constexpr int32_t kElementwise = 5; // the first of them take 16-bit masters
  const ModelSpec models[] = {training::awkward_model(), training::gpt_model()};
  int32_t turn = 0;
  for (int32_t o = 0; o < 8; ++o) {
    for (int32_t dtype = 0; dtype < 4; ++dtype) { // the last: bf16 with remainders
      if (dtype == 3 && o >= kElementwise) continue;
      for (int32_t stage = 0; stage < 4; ++stage) {
        for (int32_t caller = 0; caller < (stage < 3 ? 2 : 1); ++caller) {
          const bool full = ranks::full_tier();
          for (int32_t way = full ? 0 : turn++ % 16, last = full ? 15 : way; way <= last; ++way) {
            RunSpec spec;
            spec.ranks = 1 + way % 4;
            spec.accumulation = (way & 4) != 0 ? 3 : 1;
            spec.stage = stage;
            spec.dtype = dtype == 3 ? ZERO_DTYPE_BF16 : ZERO_DTYPE_FP32;
            if (dtype == 1) spec.dtype = ZERO_DTYPE_BF16;
            if (dtype == 2) spec.dtype = ZERO_DTYPE_FP16;
            if (dtype == 3) spec.libzero = ", \"master_weights\": \"remainder\"";
            spec.optimizer = optimizers[o];
            spec.storage = caller;
            spec.bucket = 1013;
            spec.reproducible = caller != 0;
            expect_as_planned(models[way / 8], spec);
          }
        }
      }
    }
  }
}

void narrow_masters_and_states_take_the_bytes_that_are_said(void**) {
  const ModelSpec model = even_model();
  const uint64_t p = elements(model);
  struct Way {
    const char* precision;
    const char* libzero;
    uint64_t master, states; // bytes of 16 elements
  };
  const Way ways[] = {
      {"", "", 64, 128},
      {"", R"(, "master_weights": "remainder")", 34, 128},
      {R"(, "bf16_optimizer_states": true)", "", 64, 64},
      {R"(, "bf16_master_weights_and_grads": true)", "", 0, 128},
  };
  for (const Way& way : ways) {
    for (int32_t stage = 0; stage < 4; ++stage) {
      RunSpec spec;
      spec.ranks = 2;
      spec.stage = stage;
      spec.dtype = ZERO_DTYPE_BF16;
      spec.precision = way.precision;
      spec.libzero = way.libzero;
      const uint64_t owned = stage == 0 ? p : p / 2;
      for (const Bytes& bytes : measure_all(model, spec)) {
        assert_int_equal(bytes.usage[ZERO_MEMORY_MASTER], way.master * owned / 16);
        assert_int_equal(bytes.usage[ZERO_MEMORY_OPTIMIZER], way.states * owned / 16);
        assert_int_equal(bytes.planned[ZERO_MEMORY_TOTAL] - bytes.planned[ZERO_MEMORY_TABLES],
                         bytes.usage[ZERO_MEMORY_TOTAL] - bytes.usage[ZERO_MEMORY_TABLES]);
      }
    }
  }
}

// Rajbhandari et al. 2020, figure 1, for fp32: 4 bytes each of parameters and gradients, 8 of
// state.
void the_bytes_of_the_paper_are_met_without_padding(void**) {
  const ModelSpec model = even_model();
  const uint64_t p = elements(model);
  for (uint64_t n = 1; n <= 4; ++n) {
    const uint64_t params[4] = {4 * p, 4 * p, 4 * p, 4 * p / n};
    const uint64_t grads[4] = {4 * p, 4 * p, 4 * p / n, 4 * p / n};
    const uint64_t states[4] = {8 * p, 8 * p / n, 8 * p / n, 8 * p / n};
    for (int32_t stage = 0; stage < 4; ++stage) {
      RunSpec spec;
      spec.ranks = static_cast<int32_t>(n);
      spec.stage = stage;
      for (const Bytes& bytes : measure_all(model, spec)) {
        assert_int_equal(bytes.usage[ZERO_MEMORY_PARAMS], params[stage]);
        assert_int_equal(bytes.usage[ZERO_MEMORY_GRADS], grads[stage]);
        assert_int_equal(bytes.usage[ZERO_MEMORY_OPTIMIZER], states[stage]);
        assert_int_equal(bytes.usage[ZERO_MEMORY_MASTER], 0);
        if (stage == 3) assert_int_equal(params[3] + grads[3] + states[3], 16 * p / n);
      }
    }
  }
}

// Mixed precision: 2 bytes each of parameters and gradients, a master of 4 beside 8 of state.
void sixteen_bit_training_keeps_twelve_bytes_of_optimizer_an_element(void**) {
  const ModelSpec model = even_model();
  const uint64_t p = elements(model);
  for (uint64_t n = 1; n <= 4; ++n) {
    for (int32_t stage = 0; stage < 4; ++stage) {
      RunSpec spec;
      spec.ranks = static_cast<int32_t>(n);
      spec.stage = stage;
      spec.dtype = ZERO_DTYPE_BF16;
      const uint64_t owned = stage == 0 ? p : p / n;
      for (const Bytes& bytes : measure_all(model, spec)) {
        assert_int_equal(bytes.usage[ZERO_MEMORY_PARAMS], stage == 3 ? 2 * p / n : 2 * p);
        assert_int_equal(bytes.usage[ZERO_MEMORY_MASTER], 4 * owned);
        assert_int_equal(bytes.usage[ZERO_MEMORY_OPTIMIZER], 8 * owned);
      }
    }
  }
}

// A caller's model at gpt2-124m: no second model, two segments of 4 MiB for the stream that
// gathers.
void caller_storage_stages_through_segments_and_holds_no_second_model(void**) {
  for (int32_t stage = 0; stage < 3; ++stage) {
    zero_config* config = nullptr;
    const std::string text = "{\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
                             "}, \"optimizer\": {\"type\": \"AdamW\"}}";
    OK(zero_config_load_text(text.data(), text.size(), &config));
    zero_model* model = nullptr;
    OK(zero_model_create(&model));
    char anywhere = 0; // a plan reads no value
    const int64_t shapes[][2] = {{50257, 768}, {1024, 768}};
    const auto add = [&](const std::string& name, const int64_t* shape, int32_t dimensions) {
      zero_param_options options;
      zero_param_options_init(&options, sizeof(options));
      options.storage = ZERO_STORAGE_CALLER;
      options.data = &anywhere;
      zero_param_id id = -1;
      OK(zero_param_add(model, name.c_str(), shape, dimensions, &options, &id));
    };
    add("wte", shapes[0], 2);
    add("wpe", shapes[1], 2);
    const int64_t block[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}};
    for (int32_t h = 0; h < 12; ++h) {
      for (int32_t m = 0; m < 4; ++m) {
        add("h." + std::to_string(h) + "." + std::to_string(m), block[m], 2);
      }
    }
    zero_plan_options options;
    zero_plan_options_init(&options, sizeof(options));
    options.world_size = 2;
    zero_plan* plan = nullptr;
    OK(zero_plan_create(config, model, &options, &plan));
    uint64_t params = 1, staging = 0, alone = 0;
    OK(zero_plan_memory(plan, 0, ZERO_PLACE_HOST, ZERO_MEMORY_PARAMS, &params));
    OK(zero_plan_memory(plan, 0, ZERO_PLACE_HOST, ZERO_MEMORY_STAGING, &staging));
    assert_int_equal(params, 0);
    zero_plan_destroy(plan);
    // What the communicator itself needs is there without any CALLER parameter, too.
    zero_model* library = nullptr;
    OK(zero_model_create(&library));
    zero_param_id id = -1;
    OK(zero_param_add(library, "wte", shapes[0], 2, nullptr, &id));
    OK(zero_plan_create(config, library, &options, &plan));
    OK(zero_plan_memory(plan, 0, ZERO_PLACE_HOST, ZERO_MEMORY_STAGING, &alone));
    assert_int_equal(staging - alone, 2 * 4 * 1024 * 1024);
    zero_plan_destroy(plan);
    zero_model_destroy(library);
    zero_model_destroy(model);
    zero_config_destroy(config);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(planned_bytes_are_allocated_bytes_for_every_stage_dtype_and_optimizer),
      cmocka_unit_test(the_bytes_of_the_paper_are_met_without_padding),
      cmocka_unit_test(sixteen_bit_training_keeps_twelve_bytes_of_optimizer_an_element),
      cmocka_unit_test(narrow_masters_and_states_take_the_bytes_that_are_said),
      cmocka_unit_test(caller_storage_stages_through_segments_and_holds_no_second_model),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

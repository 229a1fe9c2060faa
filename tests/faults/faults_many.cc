// A model of very many parameters is saved and loaded.
// SPDX-License-Identifier: BSD-3-Clause
#include "fault_help.h"
#include "saving_rank.h"

using faults::OwnFolder;

namespace {

// 10^5 parameters, a few elements each: written by two ranks, read by three.
void a_hundred_thousand_parameters_are_saved_and_loaded(void**) {
  constexpr int64_t kCount = 100000;
  const OwnFolder folder;
  const auto value = [](int64_t param, uint64_t at) {
    return static_cast<float>(param) + static_cast<float>(at) / 4;
  };
  const auto elements = [](int64_t param) { return 1 + param % 3; };
  const auto at_ranks = [&](int32_t ranks, const std::function<void(zero_runtime*)>& body) {
    faults::at_thread_ranks(ranks, [&](int32_t rank, const std::string& group) {
      const std::string text =
          R"({"zero_optimization": {"stage": 1}, "optimizer": {"type": "SGD"}})";
      zero_config* config = nullptr;
      OK(zero_config_load_text(text.data(), text.size(), &config));
      zero_comm* comm = nullptr;
      OK(zero_comm_create_local(group.c_str(), rank, ranks, 60 * ::ranks::kSecond, &comm));
      zero_init_options init;
      zero_init_options_init(&init, sizeof(init));
      init.comm = comm;
      zero_runtime* runtime = nullptr;
      OK(zero_init(config, &init, &runtime));
      zero_model* model = nullptr;
      OK(zero_model_create(&model));
      for (int64_t p = 0; p < kCount; ++p) {
        zero_param_options options;
        zero_param_options_init(&options, sizeof(options));
        const int64_t shape = elements(p);
        zero_param_id id = -1;
        OK(zero_param_add(model, ("block." + std::to_string(p)).c_str(), &shape, 1, &options, &id));
      }
      OK(zero_shard_params(runtime, model));
      zero_model_destroy(model);
      body(runtime);
      OK(zero_runtime_close(runtime));
      zero_runtime_destroy(runtime);
      zero_comm_destroy(comm);
      zero_config_destroy(config);
    });
  };
  const auto floats_of = [](zero_runtime* runtime, int64_t param) {
    zero_buffer buffer;
    OK(zero_param_buffer(runtime, static_cast<zero_param_id>(param), &buffer));
    return static_cast<float*>(buffer.data);
  };
  at_ranks(2, [&](zero_runtime* runtime) {
    for (int64_t p = 0; p < kCount; ++p) {
      for (int64_t i = 0; i < elements(p); ++i) {
        floats_of(runtime, p)[i] = value(p, static_cast<uint64_t>(i));
      }
    }
    OK(zero_params_broadcast(runtime, 0)); // masters too
    OK(zero_checkpoint_save(runtime, (folder / "ckpt").c_str(), nullptr));
  });
  at_ranks(3, [&](zero_runtime* runtime) {
    zero_checkpoint* checkpoint = nullptr;
    OK(zero_checkpoint_open((folder / "ckpt").c_str(), &checkpoint));
    OK(zero_checkpoint_load(runtime, checkpoint, nullptr));
    zero_checkpoint_destroy(checkpoint);
    for (int64_t p = 0; p < kCount; ++p) {
      for (int64_t i = 0; i < elements(p); ++i) {
        EXPECT(floats_of(runtime, p)[i] == value(p, static_cast<uint64_t>(i)));
      }
    }
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_hundred_thousand_parameters_are_saved_and_loaded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

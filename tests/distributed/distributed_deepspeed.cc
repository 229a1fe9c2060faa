// Training goes on from every DeepSpeed checkpoint of the corpus, at other numbers of ranks and
// stages than those that wrote it.
// SPDX-License-Identifier: BSD-3-Clause
#include "weights_rank.h"

using namespace weights;

namespace {

namespace fs = std::filesystem;

// Skips the test where there is none.
fs::path corpus() {
  fs::path shared;
  if (const char* named = std::getenv("LIBZERO_SHARED")) shared = named;
  for (fs::path at = fs::current_path(); shared.empty() && at != at.parent_path();
       at = at.parent_path()) {
    if (fs::exists(at / "shared" / "corpus" / "deepspeed-checkpoints")) shared = at / "shared";
  }
  const fs::path found = shared / "corpus" / "deepspeed-checkpoints";
  if (!fs::exists(found)) {
    print_message("no ../shared/corpus beside the tree; LIBZERO_SHARED can name it\n");
    skip();
  }
  return found;
}

struct Described {
  std::string name;
  std::vector<int64_t> shape;
  zero_dtype dtype;
  zero_param_role role;
  int32_t group, tied_to;
  uint64_t elements;
  int64_t steps;
};

std::vector<Described> describe(const zero_checkpoint* checkpoint) {
  zero_checkpoint_info info;
  zero_checkpoint_info_init(&info, sizeof(info));
  OK(zero_checkpoint_describe(checkpoint, &info));
  std::vector<Described> all;
  for (int64_t i = 0; i < info.param_count; ++i) {
    zero_param_info param;
    zero_param_info_init(&param, sizeof(param));
    OK(zero_checkpoint_param_at(checkpoint, i, &param));
    Described one{param.name,     {param.shape, param.shape + param.dimensions},
                  param.dtype,    param.role,
                  param.group,    param.tied_to,
                  param.elements, 0};
    OK(zero_checkpoint_param_steps(checkpoint, i, &one.steps));
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<double> part(const zero_checkpoint* checkpoint, const Described& param, zero_part kind,
                         int32_t index) {
  Floats values(param.elements);
  OK(zero_checkpoint_read(checkpoint, param.name.c_str(), kind, index, 0, param.elements,
                          values.data(), values.size() * 4));
  return {values.begin(), values.end()};
}

double gradient(int32_t step, size_t param, uint64_t element) {
  return static_cast<double>(initial(param + 5 * static_cast<size_t>(step), element)) / 16;
}

// AdamW in double from what the checkpoint holds, two updates further; both groups of the corpus.
std::vector<double> reference(const zero_checkpoint* checkpoint, const Described& param,
                              size_t id) {
  std::vector<double> w = part(checkpoint, param, ZERO_PART_MASTER, 0);
  std::vector<double> m = part(checkpoint, param, ZERO_PART_STATE, 0);
  std::vector<double> v = part(checkpoint, param, ZERO_PART_STATE, 1);
  const double lr = 0.01, decay = param.group == 0 ? 0.1 : 0.0;
  for (int32_t step = 0; step < 2; ++step) {
    const double t = static_cast<double>(param.steps + step + 1);
    for (uint64_t i = 0; i < w.size(); ++i) {
      const double g = gradient(step, id, i);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double corrected = std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8;
      w[i] -= lr * decay * w[i];
      w[i] -= lr * (m[i] / (1 - std::pow(0.9, t))) / corrected;
    }
  }
  return w;
}

void register_all(zero_model* model, const std::vector<Described>& params) {
  zero_group_options group;
  zero_group_options_init(&group, sizeof(group));
  zero_group_id id = -1;
  OK(zero_group_add(model, "plain", &group, &id));
  for (const Described& param : params) {
    zero_param_options options;
    zero_param_options_init(&options, sizeof(options));
    options.dtype = param.dtype;
    options.role = param.role;
    options.group = param.group;
    options.tied_to = param.tied_to;
    zero_param_id number = -1;
    OK(zero_param_add(model, param.name.c_str(), param.shape.data(),
                      static_cast<int32_t>(param.shape.size()), &options, &number));
  }
}

void two_steps(Rank& self, const std::vector<Described>& params) {
  for (int32_t step = 0; step < 2; ++step) {
    for (size_t p = params.size(); p-- > 0;) {
      if (params[p].role != ZERO_PARAM_TRAINED || params[p].tied_to >= 0) continue;
      const auto id = static_cast<zero_param_id>(p);
      zero_buffer buffer;
      int32_t add = 0;
      OK(zero_grad_buffer(self.runtime, id, nullptr, &buffer, &add));
      for (uint64_t i = 0; i < buffer.count; ++i) {
        training::put(buffer.data, buffer.dtype, i, static_cast<float>(gradient(step, p, i)));
      }
      OK(zero_grad_ready(self.runtime, &id, 1, nullptr));
    }
    OK(zero_step(self.runtime, nullptr, nullptr, nullptr));
  }
}

void go_on(const std::string& path, int32_t ranks, int32_t stage, bool bf16) {
  Spec spec;
  spec.ranks = ranks;
  spec.stage = stage;
  spec.dtype = bf16 ? ZERO_DTYPE_BF16 : ZERO_DTYPE_FP32;
  spec.optimizer = R"({"type": "AdamW", "params": {"lr": 0.01}})";
  run(spec, [&](Rank& self) {
    zero_checkpoint* checkpoint = nullptr;
    OK(zero_checkpoint_open(path.c_str(), &checkpoint));
    const std::vector<Described> params = describe(checkpoint);
    register_all(self.model, params);
    self.shard();
    OK(zero_checkpoint_load(self.runtime, checkpoint, nullptr));
    EXPECT(zero_step_count(self.runtime) == 3);
    int64_t seen = 0;
    OK(zero_param_get(self.runtime, self.find("seen"), ZERO_PART_VALUE, 0, &seen, 8));
    EXPECT(seen == 30);
    two_steps(self, params);
    EXPECT(zero_step_count(self.runtime) == 5);
    for (size_t p = 0; p < params.size(); ++p) {
      if (params[p].role != ZERO_PARAM_TRAINED || params[p].tied_to >= 0) continue;
      Floats got(params[p].elements);
      OK(zero_param_get(self.runtime, static_cast<zero_param_id>(p), ZERO_PART_MASTER, 0,
                        got.data(), got.size() * 4));
      const std::vector<double> expected = reference(checkpoint, params[p], p);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT(std::fabs(static_cast<double>(got[i]) - expected[i]) <=
               1e-6 + 2e-6 * std::fabs(expected[i]));
      }
    }
    char client[64];
    uint64_t count = 0;
    OK(zero_checkpoint_get(checkpoint, 0, "deepspeed.client_state", client, sizeof(client),
                           &count));
    EXPECT(std::string(client, count) == "{\"epoch\":7,\"note\":\"made by DeepSpeed\"}");
    zero_checkpoint_destroy(checkpoint);
    self.close();
  });
}

void training_goes_on_from_every_checkpoint_of_the_corpus_at_other_ranks(void**) {
  int32_t turn = 0;
  const Folder folder;
  for (const fs::directory_entry& source : fs::directory_iterator(corpus())) {
    const std::string name = source.path().filename().string();
    const std::string path = folder.path(name);
    assert_int_equal(
        zero_checkpoint_import_deepspeed(source.path().c_str(), path.c_str(), 0, nullptr), ZERO_OK);
    const bool bf16 = name.find("bf16") != std::string::npos;
    for (const int32_t ranks : {1, 3, 4}) {
      for (int32_t stage = 0; stage <= 3; ++stage) {
        if (!ranks::full_tier() && ++turn % 4 != 0) continue;
        go_on(path, ranks, stage, bf16);
      }
    }
  }
  assert_true(turn == 84 || ranks::full_tier());
}

void an_existing_target_and_impossible_ranks_are_refused(void**) {
  const Folder folder;
  const std::string source = (corpus() / "w2-fp32-s2").string();
  const std::string path = folder.path("out");
  assert_int_equal(zero_checkpoint_import_deepspeed(source.c_str(), path.c_str(), -1, nullptr),
                   ZERO_ERR_INVALID_ARGUMENT);
  assert_int_equal(zero_checkpoint_import_deepspeed(source.c_str(), path.c_str(), 2, nullptr),
                   ZERO_OK);
  assert_int_equal(zero_checkpoint_import_deepspeed(source.c_str(), path.c_str(), 2, nullptr),
                   ZERO_ERR_INVALID_ARGUMENT);
  assert_int_equal(folder.entries(), 1);
}

// What the callback returns comes back, and nothing is left.
void a_progress_callback_can_end_an_import_and_an_export(void**) {
  const Folder folder;
  const std::string source = (corpus() / "w2-fp32-s2").string();
  zero_progress progress;
  zero_progress_init(&progress, sizeof(progress));
  progress.report = [](void*, uint64_t done, uint64_t total) -> zero_status {
    return done <= total && total > 0 ? ZERO_ERR_USER : ZERO_ERR_INTERNAL;
  };
  assert_int_equal(
      zero_checkpoint_import_deepspeed(source.c_str(), folder.path("out").c_str(), 2, &progress),
      ZERO_ERR_USER);
  assert_int_equal(folder.entries(), 0);
  assert_int_equal(
      zero_checkpoint_import_deepspeed(source.c_str(), folder.path("out").c_str(), 2, nullptr),
      ZERO_OK);
  zero_checkpoint* checkpoint = nullptr;
  assert_int_equal(zero_checkpoint_open(folder.path("out").c_str(), &checkpoint), ZERO_OK);
  assert_int_equal(zero_checkpoint_progress(checkpoint, &progress), ZERO_OK);
  assert_int_equal(zero_checkpoint_export(checkpoint, folder.path("w").c_str(), 0, 0),
                   ZERO_ERR_USER);
  assert_int_equal(zero_checkpoint_progress(checkpoint, nullptr), ZERO_OK);
  assert_int_equal(folder.entries(), 1);
  assert_int_equal(zero_checkpoint_export(checkpoint, folder.path("w").c_str(), 0, 0), ZERO_OK);
  zero_checkpoint_destroy(checkpoint);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(training_goes_on_from_every_checkpoint_of_the_corpus_at_other_ranks),
      cmocka_unit_test(an_existing_target_and_impossible_ranks_are_refused),
      cmocka_unit_test(a_progress_callback_can_end_an_import_and_an_export),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Same bits: stage, bucket size, overlap, prefetch, storage, gradient order and transport never
// change a result.  Quick: every pair of values occurs; full: the product. SPDX-License-Identifier:
// BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "thread_comm.h"
#include "training.h"

namespace {

using training::ModelSpec;
using training::Order;
using training::Result;
using training::RunSpec;

struct Shape {
  int32_t model, stage, ranks, bucket, overlap, prefetch, storage, order;
};
constexpr int32_t kDimensions = 8;
const int32_t kChoices[kDimensions] = {2, 4, 4, 3, 2, 2, 2, 3};
const uint64_t kBuckets[] = {64, 1013, 500000000};

Shape shape_of(const int32_t* value) {
  return Shape{value[0], value[1], value[2] + 1, value[3], value[4], value[5], value[6], value[7]};
}

// CALLER storage is for stages 0 to 2; one rank has nothing to overlap with.
bool makes_sense(const int32_t* value) {
  return !(value[1] == 3 && value[6] == 1);
}

RunSpec spec_of(const Shape& shape, int32_t steps) {
  RunSpec spec;
  spec.ranks = shape.ranks;
  spec.stage = shape.stage;
  spec.bucket = kBuckets[shape.bucket];
  spec.overlap = shape.overlap;
  spec.prefetch = shape.prefetch != 0;
  spec.storage = shape.storage;
  spec.order = static_cast<Order>(shape.order);
  // Out of plan order more buckets are open than the default allows.
  if (spec.order != Order::kReverse && shape.stage >= 2) spec.open_buckets = "all";
  spec.steps = steps;
  return spec;
}

std::vector<Shape> product() {
  std::vector<Shape> shapes;
  int32_t value[kDimensions] = {};
  for (;;) {
    if (makes_sense(value)) shapes.push_back(shape_of(value));
    int32_t d = 0;
    while (d < kDimensions && ++value[d] == kChoices[d]) value[d++] = 0;
    if (d == kDimensions) return shapes;
  }
}

// Greedy: of some random shapes the one with the most pairs not seen yet, until all are seen.
std::vector<Shape> pairwise() {
  std::mt19937 random(7);
  using Pair = std::array<int32_t, 4>;
  std::set<Pair> open;
  const auto pairs = [](const int32_t* value) {
    std::vector<Pair> all;
    for (int32_t a = 0; a < kDimensions; ++a) {
      for (int32_t b = a + 1; b < kDimensions; ++b) all.push_back({a, value[a], b, value[b]});
    }
    return all;
  };
  for (int32_t a = 0; a < kDimensions; ++a) {
    for (int32_t b = a + 1; b < kDimensions; ++b) {
      for (int32_t i = 0; i < kChoices[a]; ++i) {
        for (int32_t j = 0; j < kChoices[b]; ++j) {
          if (!(a == 1 && b == 6 && i == 3 && j == 1)) open.insert({a, i, b, j});
        }
      }
    }
  }
  std::vector<Shape> shapes;
  while (!open.empty()) {
    int32_t best[kDimensions] = {};
    size_t best_new = 0;
    for (int32_t trial = 0; trial < 200; ++trial) {
      int32_t value[kDimensions];
      for (int32_t d = 0; d < kDimensions; ++d) {
        value[d] = static_cast<int32_t>(random() % static_cast<uint32_t>(kChoices[d]));
      }
      if (!makes_sense(value)) continue;
      size_t fresh = 0;
      for (const Pair& pair : pairs(value)) fresh += open.count(pair);
      if (fresh > best_new) {
        best_new = fresh;
        std::copy(value, value + kDimensions, best);
      }
    }
    if (best_new == 0) continue;
    for (const Pair& pair : pairs(best)) open.erase(pair);
    shapes.push_back(shape_of(best));
  }
  return shapes;
}

ModelSpec model_of(int32_t number) {
  return number == 0 ? training::awkward_model() : training::gpt_model();
}

void assert_same_bits(const Result& one, const Result& other, const RunSpec& spec) {
  const bool same =
      one.params.size() == other.params.size() &&
      std::memcmp(one.params.data(), other.params.data(), one.params.size() * 4) == 0 &&
      one.norms == other.norms;
  if (!same) print_message("differs: %s\n", training::describe(spec).c_str());
  assert_true(same);
}

void assert_near_reference(const ModelSpec& model, const RunSpec& spec, const Result& result) {
  const std::vector<double> exact = training::reference(model, spec);
  assert_int_equal(exact.size(), result.params.size());
  size_t begin = 0;
  for (const training::ParamSpec& param : model) {
    if (param.tied_to >= 0) continue;
    double difference = 0, size = 0;
    for (uint64_t i = 0; i < param.elements(); ++i) {
      const double d = result.params[begin + i] - exact[begin + i];
      difference += d * d;
      size += exact[begin + i] * exact[begin + i];
    }
    begin += param.elements();
    const bool near = std::sqrt(difference) <= 1e-6 * std::sqrt(size);
    if (!near)
      print_message("%s: %g of %g\n", param.name.c_str(), std::sqrt(difference), std::sqrt(size));
    assert_true(near);
  }
}

int32_t steps() {
  return ranks::full_tier() ? 50 : 12;
}

void every_shape_of_a_run_gives_the_same_bits(void**) {
  std::map<std::pair<int32_t, int32_t>, Result> first; // by model and ranks
  for (const Shape& shape : ranks::full_tier() ? product() : pairwise()) {
    const auto key = std::make_pair(shape.model, shape.ranks);
    if (first.count(key) == 0) {
      RunSpec plain = spec_of(Shape{shape.model, 0, shape.ranks, 2, 0, 0, 0, 0}, steps());
      first[key] = training::run_with_threads(model_of(shape.model), plain);
    }
    const RunSpec spec = spec_of(shape, steps());
    assert_same_bits(first[key], training::run_with_threads(model_of(shape.model), spec), spec);
  }
}

void processes_and_threads_give_the_same_bits(void**) {
  for (int32_t stage = 0; stage < 4; ++stage) {
    RunSpec spec;
    spec.ranks = 2;
    spec.stage = stage;
    spec.bucket = 1013;
    spec.overlap = 1;
    spec.steps = 5;
    const ModelSpec model = training::gpt_model();
    assert_same_bits(training::run_with_threads(model, spec),
                     training::run_with_processes(model, spec), spec);
  }
}

void fifty_steps_stay_near_an_unsharded_reference_in_double(void**) {
  for (int32_t model = 0; model < 2; ++model) {
    for (int32_t count : {1, 2, 3}) {
      RunSpec spec;
      spec.ranks = count;
      spec.stage = 2;
      spec.accumulation = count == 2 ? 3 : 1;
      spec.steps = 50;
      assert_near_reference(model_of(model), spec,
                            training::run_with_threads(model_of(model), spec));
    }
  }
}

void adam_and_sgd_stay_near_an_unsharded_reference_in_double(void**) {
  const char* optimizers[] = {
      R"({"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1, "adam_w_mode": false}})",
      R"({"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}})",
  };
  for (const char* optimizer : optimizers) {
    for (const double clipping : {0.0, 0.5}) {
      RunSpec spec;
      spec.ranks = 2;
      spec.stage = 1;
      spec.optimizer = optimizer;
      spec.clipping = clipping;
      spec.steps = 50;
      const ModelSpec model = training::gpt_model();
      assert_near_reference(model, spec, training::run_with_threads(model, spec));
    }
  }
}

void accumulation_gives_pairs_of_stages_and_all_four_when_reproducible(void**) {
  for (int32_t count : {2, 3}) {
    Result results[2][4];
    for (int32_t reproducible = 0; reproducible < 2; ++reproducible) {
      for (int32_t stage = 0; stage < 4; ++stage) {
        RunSpec spec;
        spec.ranks = count;
        spec.stage = stage;
        spec.bucket = 1013;
        spec.overlap = stage % 2;
        spec.accumulation = 3;
        spec.reproducible = reproducible != 0;
        spec.steps = steps();
        results[reproducible][stage] = training::run_with_threads(training::awkward_model(), spec);
        const int32_t pair = reproducible != 0 ? 0 : stage / 2 * 2;
        assert_same_bits(results[reproducible][pair], results[reproducible][stage], spec);
      }
    }
    // The setting must have something to do, or this test could not fail.
    assert_false(results[0][0].params == results[0][2].params);
  }
}

void a_communicator_of_the_host_program_gives_the_bits_of_local(void**) {
  for (int32_t count : {2, 3}) {
    for (int32_t stage = 0; stage < 4; ++stage) {
      for (int32_t overlap = 0; overlap < 2; ++overlap) {
        RunSpec spec;
        spec.ranks = count;
        spec.stage = stage;
        spec.bucket = 1013;
        spec.overlap = overlap;
        spec.steps = 6;
        const ModelSpec model = training::awkward_model();
        const Result local = training::run_with_threads(model, spec);
        const auto group = std::make_shared<thread_comm::Group>(count);
        std::vector<Result> results(static_cast<size_t>(count));
        ranks::run_threads(count, [&](int32_t rank, const std::string& name) {
          RunSpec own = spec;
          own.comm = thread_comm::make(group, rank, overlap != 0);
          results[static_cast<size_t>(rank)] = training::train(model, own, rank, name);
        });
        for (const Result& result : results) assert_same_bits(local, result, spec);
      }
    }
  }
}

void sixteen_bit_parameters_give_the_same_bits_at_every_stage(void**) {
  for (const zero_dtype dtype : {ZERO_DTYPE_BF16, ZERO_DTYPE_FP16}) {
    for (int32_t model = 0; model < 2; ++model) {
      for (int32_t count : {2, 3}) {
        for (int32_t accumulation : {1, 3}) {
          Result first;
          for (int32_t stage = 0; stage < 4; ++stage) {
            for (int32_t caller = 0; caller < (stage < 3 ? 2 : 1); ++caller) {
              RunSpec spec;
              spec.ranks = count;
              spec.stage = stage;
              spec.bucket = 1013;
              spec.overlap = (stage + caller) % 2;
              spec.storage = caller;
              spec.dtype = dtype;
              spec.accumulation = accumulation;
              spec.steps = steps();
              const Result result = training::run_with_threads(model_of(model), spec);
              if (stage == 0 && caller == 0) first = result;
              assert_same_bits(first, result, spec);
            }
          }
        }
      }
    }
  }
}

void every_optimizer_gives_the_same_bits_at_every_stage(void**) {
  const char* optimizers[] = {
      R"({"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1, "adam_w_mode": false}})",
      R"({"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9, "nesterov": true, "weight_decay": 0.1}})",
      R"({"type": "SGD", "params": {"lr": 0.01}})",
      R"({"type": "Adagrad", "params": {"lr": 0.01, "weight_decay": 0.1}})",
      R"({"type": "Lion", "params": {"lr": 0.001, "weight_decay": 0.1}})",
      R"({"type": "Muon", "params": {"lr": 0.01, "weight_decay": 0.1}})",
      R"({"type": "Lamb", "params": {"lr": 0.01, "weight_decay": 0.1}})",
  };
  std::set<std::vector<float>> different;
  for (const char* optimizer : optimizers) {
    for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP16}) {
      for (int32_t count : {2, 3}) {
        Result first;
        for (int32_t stage = 0; stage < 4; ++stage) {
          RunSpec spec;
          spec.ranks = count;
          spec.stage = stage;
          spec.bucket = 1013;
          spec.overlap = stage % 2;
          spec.dtype = dtype;
          spec.accumulation = count == 2 ? 1 : 3;
          spec.reproducible = spec.accumulation > 1;
          spec.optimizer = optimizer;
          spec.storage = stage == 2 ? ZERO_STORAGE_CALLER : ZERO_STORAGE_LIBRARY;
          spec.steps = steps() / 2;
          const Result result = training::run_with_threads(training::gpt_model(), spec);
          if (stage == 0) first = result;
          assert_same_bits(first, result, spec);
        }
        if (count == 2 && dtype == ZERO_DTYPE_FP32) different.insert(first.params);
      }
    }
  }
  // No two of them may be the same rule under two names.
  assert_int_equal(different.size(), sizeof(optimizers) / sizeof(optimizers[0]));
}

// Each way of keeping masters and states gives its own bits, the same at every stage; a remainder
// gives those of an fp32 master.
void masters_and_states_of_sixteen_bits_give_the_same_bits_at_every_stage(void**) {
  struct Way {
    zero_dtype dtype;
    const char* precision;
    const char* libzero;
  };
  const Way ways[] = {
      {ZERO_DTYPE_BF16, "", ""},
      {ZERO_DTYPE_BF16, "", R"(, "master_weights": "remainder")"},
      {ZERO_DTYPE_BF16, R"(, "bf16_optimizer_states": true)", ""},
      {ZERO_DTYPE_BF16, R"(, "bf16_master_weights_and_grads": true)", ""},
      {ZERO_DTYPE_FP16, R"(, "fp16_master_weights_and_grads": true)", ""},
  };
  const char* optimizers[] = {
      R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})",
      R"({"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}})",
      R"({"type": "Lion", "params": {"lr": 0.001}})",
  };
  for (const char* optimizer : optimizers) {
    std::vector<Result> firsts;
    for (const Way& way : ways) {
      for (int32_t stage = 0; stage < 4; ++stage) {
        RunSpec spec;
        spec.ranks = 2;
        spec.stage = stage;
        spec.bucket = 1013;
        spec.overlap = stage % 2;
        spec.storage = stage == 1 ? ZERO_STORAGE_CALLER : ZERO_STORAGE_LIBRARY;
        spec.dtype = way.dtype;
        spec.precision = way.precision;
        spec.libzero = way.libzero;
        spec.optimizer = optimizer;
        spec.steps = 50;
        const Result result = training::run_with_threads(training::awkward_model(), spec);
        if (stage == 0) firsts.push_back(result);
        assert_same_bits(firsts.back(), result, spec);
      }
    }
    assert_true(firsts[0].params == firsts[1].params && firsts[0].norms == firsts[1].norms);
    if (optimizer != optimizers[0]) continue; // Lion takes but the sign of a state
    assert_false(firsts[0].params == firsts[2].params);
    assert_false(firsts[0].params == firsts[3].params);
  }
}

// What would have travelled in 16 bits is what is added, at every stage.
void a_narrower_communication_dtype_rounds_each_contribution(void**) {
  for (const zero_dtype wire : {ZERO_DTYPE_BF16, ZERO_DTYPE_FP16}) {
    RunSpec plain;
    plain.ranks = 3;
    plain.steps = steps();
    plain.rounded = wire;
    // Nothing is tied in it: two gradients of one storage are added before they travel.
    const ModelSpec model = training::gpt_model();
    const Result rounded_by_host = training::run_with_threads(model, plain);
    for (int32_t stage = 0; stage < 4; ++stage) {
      RunSpec spec;
      spec.ranks = 3;
      spec.stage = stage;
      spec.bucket = 1013;
      spec.overlap = stage % 2;
      spec.steps = steps();
      spec.top = std::string(R"(, "communication_data_type": ")") +
                 (wire == ZERO_DTYPE_BF16 ? "bf16" : "fp16") + "\"";
      assert_same_bits(rounded_by_host, training::run_with_threads(model, spec), spec);
    }
    plain.rounded = 0;
    assert_false(training::run_with_threads(model, plain).params == rounded_by_host.params);
  }
}

void summed_gradients_are_not_divided_by_the_number_of_ranks(void**) {
  for (int32_t stage = 0; stage < 3; ++stage) {
    RunSpec spec;
    spec.ranks = 2;
    spec.stage = stage;
    spec.clipping = 0;
    spec.steps = 1;
    const ModelSpec model = training::gpt_model();
    const double mean = training::run_with_threads(model, spec).norms[0];
    spec.top = R"(, "gradient_allreduce_op": "sum")";
    // Two ranks: the factor is a power of two, so the norms are exact multiples.
    assert_true(training::run_with_threads(model, spec).norms[0] == 2 * mean);
  }
}

void a_unit_without_gradient_on_one_rank_gives_the_same_bits_at_every_stage(void**) {
  Result first;
  for (int32_t stage = 0; stage < 4; ++stage) {
    for (int32_t overlap = 0; overlap < 2; ++overlap) {
      RunSpec spec;
      spec.ranks = 2;
      spec.stage = stage;
      spec.bucket = 1013;
      spec.overlap = overlap;
      spec.absent_unit = 2;
      spec.steps = steps();
      const Result result = training::run_with_threads(training::gpt_model(), spec);
      if (stage == 0 && overlap == 0) first = result;
      assert_same_bits(first, result, spec);
      if (stage == 0) assert_near_reference(training::gpt_model(), spec, result);
    }
  }
}

// The total is what counts: each of N ranks hands over the same gradient, so that the average over
// ranks is that gradient for every N.
void the_norm_is_equal_at_one_to_four_ranks_for_the_same_total_gradient(void**) {
  const std::vector<float> total = {3.0f, -1e-20f, 7e10f, 1.0f / 3, 5e-39f,
                                    2.5f, -0.0f,   1e5f,  9.0f};
  double norms[5] = {};
  for (int32_t count = 1; count <= 4; ++count) {
    for (int32_t stage = 0; stage < 4; ++stage) {
      std::vector<double> seen(static_cast<size_t>(count));
      ranks::run_threads(count, [&](int32_t rank, const std::string& group) {
        RunSpec spec;
        spec.ranks = count;
        spec.stage = stage;
        const std::string text = training::config_text(spec);
        zero_config* config = nullptr;
        OK(zero_config_load_text(text.data(), text.size(), &config));
        zero_comm* comm = nullptr;
        OK(zero_comm_create_local(group.c_str(), rank, count, 60 * ranks::kSecond, &comm));
        zero_init_options init;
        zero_init_options_init(&init, sizeof(init));
        init.comm = comm;
        zero_runtime* runtime = nullptr;
        OK(zero_init(config, &init, &runtime));
        zero_model* model = nullptr;
        OK(zero_model_create(&model));
        const auto extent = static_cast<int64_t>(total.size());
        zero_param_id param = -1;
        OK(zero_param_add(model, "w", &extent, 1, nullptr, &param));
        OK(zero_shard_params(runtime, model));
        // What the ranks hand over adds up to total x ranks: rank 0 brings all of it.
        std::vector<float> own(total.size(), 0.0f);
        for (size_t i = 0; i < own.size(); ++i) {
          if (static_cast<int32_t>(i) % count == rank)
            own[i] = total[i] * static_cast<float>(count);
        }
        // Times 3 is not always exact in fp32: keep what the average gives back.
        const zero_buffer buffer{
            own.data(), own.size() * 4, own.size(), ZERO_DTYPE_FP32, ZERO_PLACE_HOST, -1, 0};
        OK(zero_grad_submit(runtime, param, &buffer, nullptr));
        zero_step_info info;
        zero_step_info_init(&info, sizeof(info));
        OK(zero_step(runtime, nullptr, nullptr, &info));
        seen[static_cast<size_t>(rank)] = info.grad_norm;
        zero_runtime_destroy(runtime);
        zero_comm_destroy(comm);
        zero_model_destroy(model);
        zero_config_destroy(config);
      });
      for (const double norm : seen) assert_true(norm == seen[0]);
      if (stage == 0) norms[count] = seen[0];
      assert_true(seen[0] == norms[count]);
    }
  }
  // 1, 2 and 4 ranks average exactly.
  assert_true(norms[1] == norms[2] && norms[1] == norms[4]);
  assert_true(std::fabs(norms[3] - norms[1]) <= 1e-7 * norms[1]);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_shape_of_a_run_gives_the_same_bits),
      cmocka_unit_test(processes_and_threads_give_the_same_bits),
      cmocka_unit_test(fifty_steps_stay_near_an_unsharded_reference_in_double),
      cmocka_unit_test(adam_and_sgd_stay_near_an_unsharded_reference_in_double),
      cmocka_unit_test(accumulation_gives_pairs_of_stages_and_all_four_when_reproducible),
      cmocka_unit_test(a_communicator_of_the_host_program_gives_the_bits_of_local),
      cmocka_unit_test(sixteen_bit_parameters_give_the_same_bits_at_every_stage),
      cmocka_unit_test(every_optimizer_gives_the_same_bits_at_every_stage),
      cmocka_unit_test(masters_and_states_of_sixteen_bits_give_the_same_bits_at_every_stage),
      cmocka_unit_test(a_narrower_communication_dtype_rounds_each_contribution),
      cmocka_unit_test(summed_gradients_are_not_divided_by_the_number_of_ranks),
      cmocka_unit_test(a_unit_without_gradient_on_one_rank_gives_the_same_bits_at_every_stage),
      cmocka_unit_test(the_norm_is_equal_at_one_to_four_ranks_for_the_same_total_gradient),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

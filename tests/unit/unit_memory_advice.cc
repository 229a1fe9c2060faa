// Advice on memory: every total is the plan's, everything advised fits, nothing is advised that a
// run would refuse, and nothing costlier than needed.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan/memory_advice.h"

#include <algorithm>

#include "plan_cases.h"

using namespace plan_cases;

namespace {

uint64_t total_of(const PlanSettings& settings, const ParameterTable& model) {
  return Plan::make(settings, model)->memory.placed[settings.place][ZERO_MEMORY_TOTAL];
}

std::vector<Advice> advise(const MemoryQuestion& question, const ParameterTable& model,
                           Advice* smallest = nullptr) {
  Advice unused;
  return memory_advice(question, model, smallest == nullptr ? &unused : smallest);
}

const Advice* of_kind(const std::vector<Advice>& list, AdviceKind kind) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const Advice& advice) { return advice.kind == kind; });
  return at == list.end() ? nullptr : &*at;
}

MemoryQuestion question_of(const PlanSettings& settings, uint64_t limit) {
  MemoryQuestion question;
  question.settings = settings;
  question.limit = limit;
  return question;
}

std::string change_of(const Advice& advice, const std::string& key) {
  for (const auto& [name, value] : advice.changes) {
    if (name == key) return value;
  }
  return "";
}

// Matrices of one dtype beside fp32 norms; every block a unit.
ParameterTable blocks(int64_t count, zero_dtype dtype, void* callers = nullptr) {
  ParameterTable model;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, zero_dtype of,
                       int32_t unit) {
    Parameter parameter = param(name, std::move(shape), of);
    parameter.unit = unit;
    parameter.data = callers;
    if (callers != nullptr) parameter.storage = ZERO_STORAGE_CALLER;
    model.add(parameter);
  };
  add("embedding", {3000, 64}, dtype, -1);
  for (int32_t block = 0; block < count; ++block) {
    const std::string name = "block." + std::to_string(block);
    add(name + ".norm", {64}, ZERO_DTYPE_FP32, block);
    add(name + ".up", {64, 256}, dtype, block);
    add(name + ".down", {256, 64}, dtype, block);
  }
  return model;
}

void everything_advised_fits_and_its_total_is_the_plan_s(void**) {
  Random random(20261201);
  int advised[6] = {};
  for (int round = 0; round < 1500; ++round) {
    const zero_dtype dtype =
        random.pick<zero_dtype>({ZERO_DTYPE_FP32, ZERO_DTYPE_BF16, ZERO_DTYPE_FP16});
    const ParameterTable model = blocks(1 + static_cast<int64_t>(random.below(6)), dtype);
    // Drawn one by one: the order of arguments is the compiler's.
    const auto ranks = 1 + static_cast<int32_t>(random.below(5));
    const auto stage = static_cast<int32_t>(random.below(4));
    PlanSettings settings = settings_of(stage, ranks);
    settings.open_buckets = static_cast<int32_t>(random.below(6));
    settings.reproducible_stage = random.one_in(2);
    if (random.one_in(4)) settings.all_gradients_at_once = true;
    if (random.one_in(2)) settings.place = ZERO_PLACE_DEVICE;
    settings.offload_optimizer = random.one_in(4);
    const uint64_t before = total_of(settings, model);
    MemoryQuestion question = question_of(settings, 0);
    question.program_bytes = random.below(before);
    question.failed_bytes = random.below(before / 4);
    question.micro_batch = static_cast<int64_t>(random.below(3)) * 6;
    question.limit = (before + question.program_bytes) / 100 * (20 + random.below(80));
    Advice smallest;
    const std::vector<Advice> list = advise(question, model, &smallest);
    for (size_t i = 0; i < list.size(); ++i) {
      const Advice& advice = list[i];
      ++advised[static_cast<int>(advice.kind)];
      if (i > 0) EXPECT(list[i - 1].kind < advice.kind);
      EXPECT_EQUAL(advice.plan_bytes, total_of(advice.settings, model));
      const auto divisor = static_cast<uint64_t>(advice.micro_batch_divisor);
      EXPECT_EQUAL(advice.total_bytes - advice.plan_bytes,
                   (question.program_bytes + divisor - 1) / divisor +
                       (question.failed_bytes + divisor - 1) / divisor);
      EXPECT(advice.total_bytes <= question.limit);
      EXPECT(!advice.changes.empty() || advice.kind == AdviceKind::kMoreRanks);
      if (advice.kind != AdviceKind::kSmallerMicroBatch) {
        EXPECT(smallest.total_bytes <= advice.total_bytes);
      }
    }
  }
  for (const int count : advised) EXPECT(count > 0);
}

// The keys are all that changes: applied to the settings as a config would, they give the same.
void the_keys_say_everything_that_changes(void**) {
  const ParameterTable model = gpt2(4, 64, 3000, 128);
  PlanSettings settings = settings_of(3, 2);
  const uint64_t before = total_of(settings, model);
  MemoryQuestion question = question_of(settings, 0);
  for (uint64_t percent = 30; percent < 100; percent += 2) {
    question.limit = before / 100 * percent;
    for (const Advice& advice : advise(question, model)) {
      PlanSettings changed = settings;
      for (const auto& [key, value] : advice.changes) {
        const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
        if (key == "zero_optimization.stage") {
          changed.stage = static_cast<int32_t>(number);
        } else if (key == "libzero.open_buckets") {
          changed.open_buckets = static_cast<int32_t>(number);
        } else if (key == "libzero.live_parameters") {
          changed.live_elements = number;
        } else if (key == "zero_optimization.reduce_bucket_size") {
          changed.reduce_bucket_elements = number;
        } else if (key == "zero_optimization.stage3_param_persistence_threshold") {
          changed.persistence_threshold_elements = number;
        } else {
          SAY_AND_FAIL("an unknown key: %s", key.c_str());
        }
      }
      changed.group = advice.settings.group;
      EXPECT_EQUAL(total_of(changed, model), advice.plan_bytes);
    }
  }
}

// The first stage that fits, with the least change of buckets; the fewest ranks by doubling.
void nothing_costlier_than_needed_is_advised(void**) {
  const ParameterTable model = model_of(std::vector<std::vector<int64_t>>(32, {1 << 18}));
  const PlanSettings settings = settings_of(0, 4);
  for (const int32_t stage : {1, 2, 3}) {
    PlanSettings next = settings;
    next.stage = stage;
    const MemoryQuestion question = question_of(settings, total_of(next, model));
    const std::vector<Advice> list = advise(question, model);
    const Advice* advice = of_kind(list, AdviceKind::kNextStage);
    EXPECT(advice != nullptr);
    EXPECT_EQUAL(advice->settings.stage, stage);
    EXPECT_EQUAL(advice->changes.size(), 1u);
    EXPECT(change_of(*advice, "zero_optimization.stage") == std::to_string(stage));
  }
  PlanSettings sharded = settings_of(2, 4);
  const uint64_t before = total_of(sharded, model);
  sharded.open_buckets = 2;
  const auto list = advise(question_of(settings_of(2, 4), before - 1), model);
  const Advice* buckets = of_kind(list, AdviceKind::kSmallerBuckets);
  EXPECT(buckets == nullptr || buckets == &list[0]);
  // 16 bytes an element at stage 1 of 4 ranks are 4 + 4 + 2; a quarter of the 8 stays at 8 ranks.
  PlanSettings ranks = settings_of(1, 4);
  MemoryQuestion question = question_of(ranks, total_of(ranks, model) - 1);
  const auto more = advise(question, model);
  EXPECT(of_kind(more, AdviceKind::kMoreRanks) != nullptr);
  EXPECT_EQUAL(of_kind(more, AdviceKind::kMoreRanks)->settings.group.ranks, 8);
  EXPECT_EQUAL(of_kind(more, AdviceKind::kMoreRanks)->settings.stage, 1);
}

char callers_memory;

void stage_3_is_not_advised_for_a_caller_s_parameters(void**) {
  const ParameterTable model = blocks(4, ZERO_DTYPE_FP32, &callers_memory);
  const PlanSettings settings = settings_of(1, 2);
  const uint64_t before = total_of(settings, model);
  int advised = 0;
  for (uint64_t percent = 2; percent < 100; percent += 7) {
    for (const Advice& advice : advise(question_of(settings, before / 100 * percent), model)) {
      EXPECT(advice.settings.stage < 3);
      ++advised;
    }
  }
  EXPECT(advised > 0);
}

void a_remainder_is_advised_where_a_run_takes_it(void**) {
  const auto model = [](zero_dtype dtype) { return model_of({{1 << 16}, {1 << 16}}, dtype); };
  const auto advised = [&](PlanSettings settings, const ParameterTable& of) {
    const uint64_t before = total_of(settings, of);
    const auto list = advise(question_of(settings, before - 1), of);
    const Advice* advice = of_kind(list, AdviceKind::kRemainderMasters);
    if (advice != nullptr) EXPECT(change_of(*advice, "libzero.master_weights") == "\"remainder\"");
    return advice != nullptr;
  };
  for (const int32_t stage : {0, 1, 2, 3}) {
    PlanSettings settings = settings_of(stage, 2);
    EXPECT(advised(settings, model(ZERO_DTYPE_BF16)));
    EXPECT(!advised(settings, model(ZERO_DTYPE_FP16)));
    EXPECT(!advised(settings, model(ZERO_DTYPE_FP32)));
    ParameterTable mixed = model(ZERO_DTYPE_BF16);
    mixed.add(param("half", {100}, ZERO_DTYPE_FP16));
    EXPECT(!advised(settings, mixed));
    settings.all_gradients_at_once = true; // LAMB, Muon, the host's own
    EXPECT(!advised(settings, model(ZERO_DTYPE_BF16)));
    settings.all_gradients_at_once = false;
    settings.master_is_remainder = true;
    EXPECT(!advised(settings, model(ZERO_DTYPE_BF16)));
    settings.master_is_remainder = false;
    settings.master_dtype = ZERO_DTYPE_BF16;
    EXPECT(!advised(settings, model(ZERO_DTYPE_BF16)));
  }
}

void a_micro_batch_is_cut_into_whole_samples(void**) {
  const ParameterTable model = model_of({{1 << 12}});
  MemoryQuestion question = question_of(settings_of(0, 1), 0);
  const uint64_t plan = total_of(question.settings, model);
  question.program_bytes = 1000;
  question.failed_bytes = 101;
  question.accumulation_steps = 3;
  const auto divisor = [&](int64_t samples, uint64_t room) {
    question.micro_batch = samples;
    question.limit = plan + room;
    const auto list = advise(question, model);
    const Advice* advice = of_kind(list, AdviceKind::kSmallerMicroBatch);
    if (advice == nullptr) return int64_t{0};
    EXPECT(change_of(*advice, "gradient_accumulation_steps") ==
           std::to_string(3 * advice->micro_batch_divisor));
    EXPECT(change_of(*advice, "train_micro_batch_size_per_gpu") ==
           (samples == 0 ? "" : std::to_string(samples / advice->micro_batch_divisor)));
    return advice->micro_batch_divisor;
  };
  EXPECT_EQUAL(divisor(0, 551), 2); // 500 and 51
  EXPECT_EQUAL(divisor(0, 550), 4);
  EXPECT_EQUAL(divisor(9, 551), 3);
  EXPECT_EQUAL(divisor(6, 550), 3);
  EXPECT_EQUAL(divisor(1, 1000), 0); // one sample cannot be cut
  EXPECT_EQUAL(divisor(7, 158), 7); // 143 and 15
  EXPECT_EQUAL(divisor(7, 157), 0);
  EXPECT_EQUAL(divisor(0, 0), 0);
}

// Of a device: as little of it as fits, at the first stage that shards; nowhere else.
void offload_is_advised_for_a_device_that_is_too_small(void**) {
  const ParameterTable model =
      gpt2(24, 64, 300, 128, [](Parameter& parameter) { parameter.dtype = ZERO_DTYPE_FP16; });
  const auto device = [](int32_t stage, bool optimizer, bool params) {
    PlanSettings settings = settings_of(stage, 1);
    settings.place = ZERO_PLACE_DEVICE;
    settings.offload_optimizer = optimizer;
    settings.offload_param = params;
    return settings;
  };
  const auto advised = [&](const PlanSettings& settings, uint64_t limit) {
    static std::vector<Advice> list;
    list = advise(question_of(settings, limit), model);
    return of_kind(list, AdviceKind::kOffload);
  };
  const char* optimizer = "zero_optimization.offload_optimizer.device";
  const char* params = "zero_optimization.offload_param.device";
  const Advice* advice = advised(device(0, false, false), total_of(device(1, true, false), model));
  EXPECT(advice != nullptr && advice->settings.stage == 1);
  EXPECT(change_of(*advice, optimizer) == "\"cpu\"" && change_of(*advice, params).empty());
  EXPECT(change_of(*advice, "zero_optimization.stage") == "1");
  EXPECT(advice->host_bytes > 0 && advice->text().find("of host memory") != std::string::npos);
  // Less than the whole parameters, of 2 bytes: only their shards' going makes room.
  const uint64_t whole =
      total_of(device(3, true, false), model) - total_of(device(3, true, true), model);
  advice = advised(device(0, false, false), whole * 9 / 10);
  EXPECT(advice != nullptr && advice->settings.stage == 3);
  EXPECT(change_of(*advice, optimizer) == "\"cpu\"" && change_of(*advice, params) == "\"cpu\"");
  advice = advised(device(3, true, false), whole * 9 / 10);
  EXPECT(advice != nullptr && change_of(*advice, optimizer).empty());
  EXPECT(change_of(*advice, params) == "\"cpu\"");
  EXPECT(advised(device(3, true, true), total_of(device(3, true, true), model) - 1) == nullptr);
  EXPECT(advised(settings_of(0, 1), total_of(settings_of(0, 1), model) / 2) == nullptr);
  PlanSettings lamb = device(0, false, false); // looks at all gradients before it steps
  lamb.all_gradients_at_once = true;
  EXPECT(advised(lamb, total_of(lamb, model) / 2) == nullptr);
}

void where_nothing_fits_the_least_is_said(void**) {
  const ParameterTable model = gpt2(4, 64, 3000, 128);
  Advice smallest;
  const auto list = advise(question_of(settings_of(0, 2), 1000), model, &smallest);
  EXPECT(list.empty());
  EXPECT(smallest.plan_bytes > 1000 && smallest.plan_bytes == smallest.total_bytes);
  EXPECT_EQUAL(smallest.plan_bytes, total_of(smallest.settings, model));
  EXPECT(smallest.plan_bytes < total_of(settings_of(3, 2), model));
}

void one_rank_is_told_to_become_several_before_it_shards(void**) {
  const ParameterTable model = model_of({{1 << 20}, {1 << 20}});
  const PlanSettings alone = settings_of(0, 1);
  MemoryQuestion question = question_of(alone, total_of(alone, model) * 4 / 5);
  question.own_staging_bytes = [](int32_t ranks) { return static_cast<uint64_t>(ranks) * 1000; };
  const auto list = advise(question, model);
  EXPECT_EQUAL(list.size(), 1u);
  EXPECT(list[0].kind == AdviceKind::kMoreRanks);
  EXPECT_EQUAL(list[0].settings.group.ranks, 2);
  EXPECT_EQUAL(list[0].settings.group.kind, ZERO_COMM_LOCAL);
  EXPECT_EQUAL(list[0].settings.group.own_staging_bytes, 2000);
  EXPECT(list[0].settings.stage == 1 &&
         list[0].text().find("2 ranks, \"zero_opt") != std::string::npos);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(everything_advised_fits_and_its_total_is_the_plan_s),
      cmocka_unit_test(the_keys_say_everything_that_changes),
      cmocka_unit_test(nothing_costlier_than_needed_is_advised),
      cmocka_unit_test(stage_3_is_not_advised_for_a_caller_s_parameters),
      cmocka_unit_test(a_remainder_is_advised_where_a_run_takes_it),
      cmocka_unit_test(a_micro_batch_is_cut_into_whole_samples),
      cmocka_unit_test(offload_is_advised_for_a_device_that_is_too_small),
      cmocka_unit_test(where_nothing_fits_the_least_is_said),
      cmocka_unit_test(one_rank_is_told_to_become_several_before_it_shards),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// What the plan says a rank holds, against the table of the ZeRO paper and plain arithmetic.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan/memory_plan.h"
#include "plan_cases.h"

using namespace plan_cases;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
char callers_memory;

uint64_t bytes_of(const Plan& plan, zero_memory_use use) {
  return plan.memory.bytes[use];
}

void give_to_caller(Parameter& parameter) {
  parameter.storage = ZERO_STORAGE_CALLER;
  parameter.data = &callers_memory;
}

// Sizes that need no padding: (4+4+8) P at stage 0, 16 P / N at stage 3.
void fp32_model_states_are_the_paper_s(void**) {
  const uint64_t p = uint64_t{1} << 24;
  for (const int32_t ranks : {1, 2, 4, 8}) {
    const uint64_t n = static_cast<uint64_t>(ranks);
    for (const int32_t stage : {0, 1, 2, 3}) {
      const auto plan = Plan::make(settings_of(stage, ranks),
                                   model_of({{1 << 22}, {1 << 22}, {2, 1 << 21}, {1 << 22}}));
      EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_PARAMS), stage < 3 ? 4 * p : 4 * p / n);
      EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_GRADS), stage < 2 ? 4 * p : 4 * p / n);
      EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_OPTIMIZER), stage < 1 ? 8 * p : 8 * p / n);
      EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_MASTER), 0u); // the parameter is its own master
      EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_STAGING), 0u);
    }
  }
}

void a_16_bit_parameter_has_a_master_in_fp32(void**) {
  const uint64_t p = 1 << 20;
  for (const int32_t stage : {0, 1, 2, 3}) {
    const auto plan = Plan::make(settings_of(stage, 4), model_of({{1 << 20}}, ZERO_DTYPE_BF16));
    EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_MASTER), stage < 1 ? 4 * p : p);
    EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_GRADS), stage < 2 ? 2 * p : p); // shard in fp32
    EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_PARAMS), stage < 3 ? 2 * p : p / 2);
    PlanSettings without = settings_of(stage, 4);
    without.optimizer_present = false;
    const auto bare = Plan::make(without, model_of({{1 << 20}}, ZERO_DTYPE_BF16));
    EXPECT_EQUAL(bytes_of(*bare, ZERO_MEMORY_MASTER), 0u);
    EXPECT_EQUAL(bytes_of(*bare, ZERO_MEMORY_OPTIMIZER), 0u);
  }
}

// GPT-2 124M: nothing of the model's size but gradients and states.
void caller_storage_costs_staging_only(void**) {
  const ParameterTable library = gpt2(12, 768, 50257, 1024);
  const ParameterTable caller = gpt2(12, 768, 50257, 1024, give_to_caller);
  for (const int32_t stage : {0, 1, 2}) {
    const auto a = Plan::make(settings_of(stage, 2), library);
    const auto b = Plan::make(settings_of(stage, 2), caller);
    EXPECT_EQUAL(bytes_of(*a, ZERO_MEMORY_STAGING), 0u);
    EXPECT_EQUAL(bytes_of(*b, ZERO_MEMORY_STAGING), 2 * 4 * kMiB);
    EXPECT(bytes_of(*a, ZERO_MEMORY_PARAMS) >= 4 * uint64_t{124439808});
    EXPECT_EQUAL(bytes_of(*b, ZERO_MEMORY_PARAMS), 0u);
    for (const zero_memory_use use : {ZERO_MEMORY_GRADS, ZERO_MEMORY_MASTER, ZERO_MEMORY_OPTIMIZER,
                                      ZERO_MEMORY_GATHERED, ZERO_MEMORY_BUCKETS}) {
      EXPECT_EQUAL(bytes_of(*b, use), bytes_of(*a, use));
    }
    const auto alone = Plan::make(settings_of(stage, 1), caller);
    EXPECT_EQUAL(bytes_of(*alone, ZERO_MEMORY_STAGING), 0u);
  }
}

void staging_is_no_bigger_than_what_passes_through_it(void**) {
  ParameterTable model;
  Parameter parameter = param("small", {100});
  give_to_caller(parameter);
  model.add(parameter);
  const auto plan = Plan::make(settings_of(1, 2), model);
  EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_STAGING), 2 * 128 * 4u); // 100, up to 2 x 32
}

// Frozen parameters have no gradients to stage.
void gradient_staging_is_sized_by_trained_buckets(void**) {
  ParameterTable model = model_of({{64}});
  Parameter frozen = param("frozen", {1 << 20});
  frozen.role = ZERO_PARAM_FROZEN;
  model.add(frozen);
  PlanSettings settings = settings_of(1, 2);
  settings.own_allocator = true;
  const auto plan = Plan::make(settings, model);
  EXPECT_EQUAL(plan->find_region(RegionKind::kReduceStaging)->bytes, 2 * 64 * 4u);
  EXPECT_EQUAL(plan->find_region(RegionKind::kGatherStaging)->bytes, 2 * 4 * kMiB);
}

void the_host_s_allocator_needs_staging_with_local_ranks_only(void**) {
  PlanSettings settings = settings_of(1, 2);
  settings.own_allocator = true;
  const ParameterTable model = model_of({{1 << 24}});
  const auto local = Plan::make(settings, model);
  EXPECT_EQUAL(local->find_region(RegionKind::kReduceStaging)->bytes, 2 * 4 * kMiB);
  EXPECT_EQUAL(local->find_region(RegionKind::kGatherStaging)->bytes, 2 * 4 * kMiB);
  settings.group.kind = ZERO_COMM_USER;
  settings.group.own_staging_bytes = 12345;
  const auto user = Plan::make(settings, model);
  EXPECT(user->find_region(RegionKind::kReduceStaging) == nullptr);
  EXPECT_EQUAL(bytes_of(*user, ZERO_MEMORY_STAGING), 12345u);
  EXPECT_EQUAL(user->memory.allocation_bytes(ZERO_PLACE_HOST, ZERO_MEMORY_STAGING), 0u);
}

void reproducible_costs_one_shard_at_stages_0_and_1(void**) {
  for (const int32_t stage : {0, 1, 2, 3}) {
    PlanSettings settings = settings_of(stage, 4);
    const ParameterTable model = model_of({{1 << 20}}, ZERO_DTYPE_FP32);
    const auto plain = Plan::make(settings, model);
    settings.reproducible_stage = true;
    const auto extra = Plan::make(settings, model);
    EXPECT_EQUAL(bytes_of(*extra, ZERO_MEMORY_BUCKETS) - bytes_of(*plain, ZERO_MEMORY_BUCKETS),
                 stage < 2 ? (1 << 20) / 4 * 4 : 0);
  }
}

// Sums in fp32 of 16-bit gradients cannot lie where the gradients do; at stage 0 they come together
// two buckets at a time.
void wider_sums_cost_a_shard_at_stages_0_and_1(void**) {
  const ParameterTable model = model_of({{1 << 20}}, ZERO_DTYPE_BF16);
  for (const int32_t stage : {0, 1}) {
    PlanSettings settings = settings_of(stage, 4);
    settings.accumulation_dtype = ZERO_DTYPE_BF16;
    const auto same = Plan::make(settings, model);
    settings.accumulation_dtype = ZERO_DTYPE_FP32;
    const auto wider = Plan::make(settings, model);
    EXPECT_EQUAL(bytes_of(*same, ZERO_MEMORY_BUCKETS), 0);
    // One bucket: its whole sum once.
    EXPECT_EQUAL(bytes_of(*wider, ZERO_MEMORY_BUCKETS), (1 << 20) + (stage == 0 ? 4 << 20 : 0));
  }
}

void frozen_parameters_have_neither_gradients_nor_states(void**) {
  ParameterTable model;
  GroupValues values;
  values.frozen = true;
  Parameter by_group = param("by_group", {1 << 12});
  by_group.group = model.add_group("frozen", values);
  model.add(by_group);
  Parameter by_role = param("by_role", {1 << 12}, ZERO_DTYPE_BF16);
  by_role.role = ZERO_PARAM_FROZEN;
  model.add(by_role);
  for (const int32_t stage : {0, 1, 2, 3}) {
    const auto plan = Plan::make(settings_of(stage, 4), model);
    EXPECT_EQUAL(plan->trained_buckets, 0);
    for (const zero_memory_use use :
         {ZERO_MEMORY_GRADS, ZERO_MEMORY_MASTER, ZERO_MEMORY_OPTIMIZER, ZERO_MEMORY_BUCKETS}) {
      EXPECT_EQUAL(bytes_of(*plan, use), 0u);
    }
    EXPECT_EQUAL(bytes_of(*plan, ZERO_MEMORY_PARAMS), (4 + 2) * (stage < 3 ? 1 << 12 : 1 << 10));
  }
}

void buffers_are_whole_at_every_stage(void**) {
  ParameterTable model;
  Parameter mean = param("running_mean", {100});
  mean.role = ZERO_PARAM_BUFFER;
  model.add(mean);
  Parameter count = param("batches", {}, ZERO_DTYPE_INT64);
  count.role = ZERO_PARAM_BUFFER;
  model.add(count);
  for (const int32_t stage : {0, 1, 2, 3}) {
    const auto plan = Plan::make(settings_of(stage, 4), model);
    EXPECT_EQUAL(plan->buckets.size(), 0u);
    EXPECT_EQUAL(plan->find_region(RegionKind::kBufferParams)->bytes, 448 + 8u); // at 64s
    EXPECT(plan->places[0].offset == 0 && plan->places[1].offset == 448);
  }
}

void what_takes_part_in_collectives_comes_from_the_communicator(void**) {
  const auto takes_part = [](zero_memory_use use, int32_t stage) {
    return MemoryPlan::takes_part_in_collectives(use, Placement::of_stage(stage));
  };
  for (const int32_t stage : {0, 1, 2, 3}) {
    EXPECT(takes_part(ZERO_MEMORY_PARAMS, stage));
    EXPECT(takes_part(ZERO_MEMORY_GRADS, stage) == (stage < 2));
    EXPECT(takes_part(ZERO_MEMORY_BUCKETS, stage));
    EXPECT(!takes_part(ZERO_MEMORY_MASTER, stage) && !takes_part(ZERO_MEMORY_OPTIMIZER, stage));
  }
}

void the_bound_on_tables_grows_with_the_model_and_hardly_with_ranks(void**) {
  const auto few = Plan::make(settings_of(1, 2), gpt2(2, 64, 1000, 64));
  const auto many = Plan::make(settings_of(1, 4096), gpt2(2, 64, 1000, 64));
  EXPECT_EQUAL(bytes_of(*many, ZERO_MEMORY_TABLES) - bytes_of(*few, ZERO_MEMORY_TABLES),
               256 * 4094);
  EXPECT_EQUAL(bytes_of(*few, ZERO_MEMORY_TABLES), table_bytes_bound(count_tables(*few)));
  EXPECT(count_tables(*few).members == 28 && count_tables(*few).parameters == 29);
}

void bytes_beyond_64_bits_are_refused(void**) {
  const ParameterTable model = model_of({{int64_t{1} << 60}, {int64_t{1} << 60}});
  PlanSettings settings = settings_of(0, 2);
  settings.optimizer_states = 4;
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"does not fit in 64 bits"},
               [&] { Plan::make(settings, model); });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(fp32_model_states_are_the_paper_s),
      cmocka_unit_test(a_16_bit_parameter_has_a_master_in_fp32),
      cmocka_unit_test(caller_storage_costs_staging_only),
      cmocka_unit_test(staging_is_no_bigger_than_what_passes_through_it),
      cmocka_unit_test(gradient_staging_is_sized_by_trained_buckets),
      cmocka_unit_test(the_host_s_allocator_needs_staging_with_local_ranks_only),
      cmocka_unit_test(reproducible_costs_one_shard_at_stages_0_and_1),
      cmocka_unit_test(wider_sums_cost_a_shard_at_stages_0_and_1),
      cmocka_unit_test(frozen_parameters_have_neither_gradients_nor_states),
      cmocka_unit_test(buffers_are_whole_at_every_stage),
      cmocka_unit_test(what_takes_part_in_collectives_comes_from_the_communicator),
      cmocka_unit_test(the_bound_on_tables_grows_with_the_model_and_hardly_with_ranks),
      cmocka_unit_test(bytes_beyond_64_bits_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

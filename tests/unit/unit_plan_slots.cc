// How many gradient and loan slots there are, and for what.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan_cases.h"

using namespace plan_cases;

namespace {

// count parameters of so many elements, each in its own bucket.
ParameterTable equal_parameters(int count, int64_t elements) {
  return model_of(std::vector<std::vector<int64_t>>(static_cast<size_t>(count), {elements}));
}

PlanSettings one_each(int32_t stage) {
  PlanSettings settings = settings_of(stage, 2);
  settings.reduce_bucket_elements = 0;
  settings.persistence_threshold_elements = 0;
  return settings;
}

void tie(ParameterTable& model, zero_param_id root) {
  Parameter alias = param("alias " + std::to_string(model.parameters().size()),
                          model.parameters()[static_cast<size_t>(root)].shape);
  alias.tied_to = root;
  model.add(alias);
}

void open_buckets_is_the_number_of_normal_slots(void**) {
  const ParameterTable model = equal_parameters(10, 1024);
  for (const int32_t open : {0, 1, 4, 10, 11}) {
    PlanSettings settings = one_each(2);
    settings.open_buckets = open;
    const auto plan = Plan::make(settings, model);
    EXPECT_EQUAL(plan->pools[0].normal_slots, open == 0 || open == 11 ? 10 : open);
    EXPECT_EQUAL(plan->pools[0].normal_elements, 1024u);
    EXPECT_EQUAL(plan->pools[0].large_slots, 0);
  }
}

void at_stage_3_whole_units_are_open(void**) {
  ParameterTable model;
  for (int unit = 0; unit < 6; ++unit) {
    for (int k = 0; k < 3; ++k) {
      Parameter parameter = param(std::to_string(unit) + "." + std::to_string(k), {64});
      parameter.unit = unit;
      model.add(parameter);
    }
  }
  PlanSettings settings = one_each(3);
  settings.open_buckets = 2;
  EXPECT_EQUAL(Plan::make(settings, model)->pools[0].normal_slots, 2 * 3);
  settings.stage = 2;
  EXPECT_EQUAL(Plan::make(settings, model)->pools[0].normal_slots, 2);
}

// Above four buckets a parameter goes into the large slot, so that it does not make all big.
void large_parameters_share_one_slot(void**) {
  const int64_t bucket = 1 << 18;
  const ParameterTable model = model_of(
      {{4 * bucket + 1}, {bucket}, {4 * bucket}, {5 * bucket}, {bucket}, {bucket}, {bucket}});
  PlanSettings settings = settings_of(2, 2);
  const auto plan = Plan::make(settings, model);
  EXPECT_EQUAL(plan->pools[0].large_slots, 1);
  EXPECT_EQUAL(plan->pools[0].large_elements, 5 * bucket);
  EXPECT_EQUAL(plan->pools[0].normal_elements, 4 * bucket);
  settings.open_buckets = 0;
  EXPECT_EQUAL(Plan::make(settings, model)->pools[0].large_slots, 2);
}

void a_large_parameter_does_not_close_the_bucket_around_it(void**) {
  const auto plan = Plan::make(settings_of(2, 2), model_of({{10}, {2 << 20}, {10}}));
  EXPECT_EQUAL(plan->buckets.size(), 2u);
  EXPECT(plan->buckets[0].large && plan->buckets[0].members.size() == 1);
  EXPECT(!plan->buckets[1].large && plan->buckets[1].members.size() == 2);
}

// A tied parameter's bucket stays open from its first use to its last: it has a slot of its own.
void a_tied_parameter_does_not_take_a_slot_from_the_others(void**) {
  ParameterTable model = equal_parameters(10, 1024);
  tie(model, 3);
  tie(model, 3);
  EXPECT_EQUAL(Plan::make(one_each(2), model)->pools[0].normal_slots, 4 + 1);
  ParameterTable large = model_of({{2 << 20}, {2 << 20}, {2 << 20}});
  tie(large, 0);
  EXPECT_EQUAL(Plan::make(settings_of(2, 2), large)->pools[0].large_slots, 1 + 1);
}

void loans_are_the_two_largest_units_by_default(void**) {
  const auto plan = Plan::make(one_each(3), model_of({{1000}, {3000}, {2000}, {100}}));
  EXPECT_EQUAL(plan->live_elements, 6000u); // two slots of 3000
  EXPECT_EQUAL(plan->loans.normal_slots, 2);
  EXPECT_EQUAL(plan->loans.normal_bytes, 3008 * 4u); // up to 2 ranks x 32
}

void loans_are_an_eighth_of_a_model_of_many_units(void**) {
  const auto plan = Plan::make(one_each(3), equal_parameters(80, 1024));
  EXPECT_EQUAL(plan->live_elements, 80 * 1024 / 8u);
  EXPECT_EQUAL(plan->loans.normal_slots, 10);
}

void max_live_parameters_is_a_ceiling_that_leaves_room_for_one_unit(void**) {
  PlanSettings settings = one_each(3);
  settings.max_live_elements = 4000;
  EXPECT_EQUAL(Plan::make(settings, equal_parameters(80, 1024))->loans.normal_slots, 3);
  settings.max_live_elements = 1;
  EXPECT_EQUAL(Plan::make(settings, equal_parameters(1, 1024))->loans.normal_slots, 1);
}

void a_given_number_of_live_parameters_is_taken_as_it_is(void**) {
  for (const uint64_t live : {1, 1023, 1024, 2047, 2048, 5000, 1000000}) {
    PlanSettings settings = one_each(3);
    settings.live_elements = live;
    const auto plan = Plan::make(settings, equal_parameters(20, 1024));
    const uint64_t fit = std::min<uint64_t>(20, std::max<uint64_t>(1, live / 1024));
    EXPECT_EQUAL(plan->loans.normal_slots, fit);
  }
}

void a_large_unit_has_a_slot_beside_the_normal_ones(void**) {
  const auto plan =
      Plan::make(one_each(3), model_of({{3 << 20}, {1000}, {1000}, {2 << 20}, {1000}}));
  EXPECT_EQUAL(plan->loans.large_bytes, (3 << 20) * 4u);
  EXPECT_EQUAL(plan->loans.normal_bytes, 1024 * 4u);
  EXPECT_EQUAL(plan->loans.large_slots, 1); // 3 + 2 Mi would do for one large and the rest
  EXPECT_EQUAL(plan->loans.normal_slots, 3);
}

void small_units_are_kept_whole(void**) {
  ParameterTable model;
  for (int k = 0; k < 4; ++k) {
    Parameter parameter = param("p" + std::to_string(k), {k == 3 ? 200 : 100});
    parameter.unit = k < 2 ? 0 : k;
    model.add(parameter);
  }
  PlanSettings settings = settings_of(3, 2);
  settings.persistence_threshold_elements = 100;
  auto plan = Plan::make(settings, model);
  EXPECT(plan->units[0].persistent && plan->units[1].persistent && !plan->units[2].persistent);
  settings.model_persistence_elements = 150; // less than the first unit, enough for the second
  plan = Plan::make(settings, model);
  EXPECT(!plan->units[0].persistent && plan->units[1].persistent);
}

void caller_storage_at_stage_3_is_a_conflict_that_names_the_parameter(void**) {
  static char memory;
  ParameterTable model = model_of({{4}});
  Parameter parameter = param("mine", {4});
  parameter.storage = ZERO_STORAGE_CALLER;
  parameter.data = &memory;
  model.add(parameter);
  Plan::make(settings_of(2, 2), model);
  expect_error(ZERO_ERR_CONFIG_CONFLICT, {"\"mine\"", "stage 3"},
               [&] { Plan::make(settings_of(3, 2), model); });
}

void settings_out_of_range_are_refused(void**) {
  const auto refuse = [](const char* word, auto change) {
    PlanSettings settings = settings_of(1, 2);
    change(settings);
    expect_error(ZERO_ERR_INVALID_ARGUMENT, {word}, [&] { Plan::make(settings, model_of({{4}})); });
  };
  refuse("stage is 4", [](PlanSettings& s) { s.stage = 4; });
  refuse("stage is -1", [](PlanSettings& s) { s.stage = -1; });
  refuse("ranks is 0", [](PlanSettings& s) { s.group.ranks = 0; });
  refuse("self communicator", [](PlanSettings& s) { s.group.kind = ZERO_COMM_SELF; });
  refuse("kind is 9", [](PlanSettings& s) { s.group.kind = 9; });
  refuse("alignment is 0", [](PlanSettings& s) { s.alignment = 0; });
  refuse("open_buckets is -1", [](PlanSettings& s) { s.open_buckets = -1; });
  refuse("staging_segment_bytes is 100", [](PlanSettings& s) { s.staging_segment_bytes = 100; });
  refuse("fp64", [](PlanSettings& s) { s.accumulation_dtype = ZERO_DTYPE_FP64; });
  refuse("place is 4", [](PlanSettings& s) { s.place = ZERO_PLACE_FILE; });
}

void questions_out_of_range_are_refused(void**) {
  const auto plan = Plan::make(settings_of(1, 2), model_of({{4}}));
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"rank is 2"}, [&] { plan->shard_span(0, 2); });
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"rank is -1"}, [&] { plan->runs(0, -1); });
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"param is 1"}, [&] { plan->shard_span(1, 0); });
  expect_error(ZERO_ERR_INVALID_ARGUMENT, {"bucket is 1"}, [&] { plan->runs(1, 0); });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(open_buckets_is_the_number_of_normal_slots),
      cmocka_unit_test(at_stage_3_whole_units_are_open),
      cmocka_unit_test(large_parameters_share_one_slot),
      cmocka_unit_test(a_large_parameter_does_not_close_the_bucket_around_it),
      cmocka_unit_test(a_tied_parameter_does_not_take_a_slot_from_the_others),
      cmocka_unit_test(loans_are_the_two_largest_units_by_default),
      cmocka_unit_test(loans_are_an_eighth_of_a_model_of_many_units),
      cmocka_unit_test(max_live_parameters_is_a_ceiling_that_leaves_room_for_one_unit),
      cmocka_unit_test(a_given_number_of_live_parameters_is_taken_as_it_is),
      cmocka_unit_test(a_large_unit_has_a_slot_beside_the_normal_ones),
      cmocka_unit_test(small_units_are_kept_whole),
      cmocka_unit_test(caller_storage_at_stage_3_is_a_conflict_that_names_the_parameter),
      cmocka_unit_test(settings_out_of_range_are_refused),
      cmocka_unit_test(questions_out_of_range_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

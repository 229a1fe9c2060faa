// The fingerprint: equal for equal plans, different when anything that matters differs; the plan
// as text; the scale that planning must reach.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan/fingerprint.h"

#include <limits>
#include <set>

#include "plan_cases.h"

using namespace plan_cases;

namespace {

ParameterTable small_model(const std::function<void(Parameter&)>& change = {}, double lr = 0.5) {
  ParameterTable model;
  GroupValues values;
  values.lr = lr;
  model.add_group("head", values);
  model.add_group("other", GroupValues());
  model.add(param("a", {4, 8}));
  model.add(param("b", {32}));
  Parameter c = param("c", {32});
  c.group = 1;
  if (change) change(c);
  model.add(c);
  return model;
}

void every_difference_in_the_model_shows(void**) {
  static char memory;
  std::set<uint64_t> plans, hashes;
  const auto note = [&](const ParameterTable& model) {
    plans.insert(Plan::make(settings_of(1, 2), model)->fingerprint);
    hashes.insert(parameter_hash(model, 2));
  };
  note(small_model());
  note(small_model({}, 0.25));
  note(small_model({}, std::numeric_limits<double>::quiet_NaN()));
  note(small_model([](Parameter& c) { c.name = "d"; }));
  note(small_model([](Parameter& c) { c.shape = {4, 8}; }));
  note(small_model([](Parameter& c) { c.dtype = ZERO_DTYPE_BF16; }));
  note(small_model([](Parameter& c) { c.role = ZERO_PARAM_FROZEN; }));
  note(small_model([](Parameter& c) { c.group = 2; }));
  note(small_model([](Parameter& c) { c.unit = 3; }));
  note(small_model([](Parameter& c) {
    c.group = 0;
    c.tied_to = 1;
  }));
  note(small_model([](Parameter& c) {
    c.storage = ZERO_STORAGE_CALLER;
    c.data = &memory;
  }));
  EXPECT_EQUAL(plans.size(), 11u);
  EXPECT_EQUAL(hashes.size(), 11u);
}

void where_the_data_lies_is_no_difference(void**) {
  static char memory[2];
  const auto at = [](void* data) {
    return Plan::make(settings_of(1, 2), small_model([&](Parameter& c) {
                        c.storage = ZERO_STORAGE_CALLER;
                        c.data = data;
                      }))
        ->fingerprint;
  };
  EXPECT(at(&memory[0]) == at(&memory[1]));
}

void every_setting_that_shapes_the_plan_shows(void**) {
  std::set<uint64_t> seen;
  size_t cases = 0;
  const auto note = [&](auto change) {
    PlanSettings settings = settings_of(1, 2);
    change(settings);
    seen.insert(Plan::make(settings, small_model())->fingerprint);
    ++cases;
  };
  note([](PlanSettings&) {});
  note([](PlanSettings& s) { s.stage = 2; });
  note([](PlanSettings& s) { s.group.ranks = 3; });
  note([](PlanSettings& s) { s.group.kind = ZERO_COMM_USER; });
  note([](PlanSettings& s) { s.alignment = 64; });
  note([](PlanSettings& s) { s.reduce_bucket_elements = 1; });
  note([](PlanSettings& s) { s.prefetch_elements = 1; });
  note([](PlanSettings& s) { s.persistence_threshold_elements = 1; });
  note([](PlanSettings& s) { s.model_persistence_elements = 1; });
  note([](PlanSettings& s) { s.max_live_elements = 1; });
  note([](PlanSettings& s) { s.live_elements = 1; });
  note([](PlanSettings& s) { s.open_buckets = 1; });
  note([](PlanSettings& s) { s.staging_segment_bytes = 64; });
  note([](PlanSettings& s) { s.optimizer_states = 1; });
  note([](PlanSettings& s) { s.optimizer_present = false; });
  note([](PlanSettings& s) { s.accumulation_dtype = ZERO_DTYPE_BF16; });
  note([](PlanSettings& s) { s.reproducible_stage = true; });
  note([](PlanSettings& s) { s.param_norms = true; });
  note([](PlanSettings& s) { s.checkpoint_background = true; });
  note([](PlanSettings& s) { s.own_allocator = true; });
  note([](PlanSettings& s) { s.place = ZERO_PLACE_DEVICE; });
  ParameterTable reordered = small_model();
  reordered.set_backward_order({0, 1, 2});
  seen.insert(Plan::make(settings_of(1, 2), reordered)->fingerprint);
  EXPECT_EQUAL(seen.size(), cases + 1);
}

void the_first_difference_of_two_models_is_named(void**) {
  const ParameterTable model = small_model();
  EXPECT(first_difference(model, small_model()).empty());
  const std::string shape = first_difference(model, small_model([](Parameter& c) {
                                               c.shape = {8, 4};
                                             }));
  EXPECT(shape.find("param 2 is \"c\" 32 fp32") == 0);
  EXPECT(shape.find("\"c\" 8x4 fp32") != std::string::npos);
  const std::string rate = first_difference(model, small_model({}, 0.25));
  EXPECT(rate.find("lr 0.5") != std::string::npos && rate.find("lr 0.25") != std::string::npos);
  const std::string shorter = first_difference(model, model_of({}));
  EXPECT(shorter.find("nothing (the model has 0 parameters)") != std::string::npos);
}

size_t count(const std::string& text, const std::string& word) {
  size_t times = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++times;
  return times;
}

void the_text_has_a_line_for_each_bucket(void**) {
  const auto plan = Plan::make(settings_of(3, 4), gpt2(2, 64, 1000, 64));
  const std::string text = plan->text();
  EXPECT_EQUAL(count(text, "\nbucket "), plan->buckets.size());
  EXPECT(text.find("stage 3, 4 ranks") == 0);
  EXPECT_EQUAL(count(text, "lm_head"), 0u); // an alias lies nowhere
  EXPECT_EQUAL(count(text, ": wte\n"), 1u);
  EXPECT(count(text, "\n  total: ") == 1 && text.back() == '\n');
}

// 10^12 parameters in 10^5 tensors on 4,096 ranks; how long it takes is bench_plan's business.
void a_trillion_parameters_on_4096_ranks_are_planned(void**) {
  ParameterTable model;
  for (int32_t i = 0; i < 100000; ++i) {
    Parameter parameter = param("tensor." + std::to_string(i), {10000, 1000});
    parameter.unit = i / 10;
    model.add(parameter);
  }
  for (const int32_t stage : {1, 3}) {
    const auto plan = Plan::make(settings_of(stage, 4096), model);
    EXPECT_EQUAL(plan->classes[0].real_elements, 1000000000000u);
    // What all ranks hold is the whole model, once, and at most a bucket's padding each time.
    const uint64_t held = plan->classes[0].shard_elements * 4096;
    EXPECT(held >= 1000000000000u && held - 1000000000000u <= plan->buckets.size() * 4096 * 32);
    EXPECT_EQUAL(plan->shard_span(0, 4095).offset + plan->shard_span(0, 4095).count, 10000000u);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_difference_in_the_model_shows),
      cmocka_unit_test(where_the_data_lies_is_no_difference),
      cmocka_unit_test(every_setting_that_shapes_the_plan_shows),
      cmocka_unit_test(the_first_difference_of_two_models_is_named),
      cmocka_unit_test(the_text_has_a_line_for_each_bucket),
      cmocka_unit_test(a_trillion_parameters_on_4096_ranks_are_planned),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Reports of users of other ZeRO implementations, as far as layout and memory answer them.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan/safetensors_header.h"
#include "plan_cases.h"

using namespace plan_cases;

namespace {

uint64_t owned_by(const Plan& plan, zero_param_id id, int32_t rank) {
  return plan.shard_span(id, rank).count;
}

PlanSettings unaligned(int32_t stage, int32_t ranks) {
  PlanSettings settings = settings_of(stage, ranks);
  settings.alignment = 1;
  return settings;
}

void r033_fewer_elements_than_ranks(void**) {
  for (const int32_t stage : {0, 1, 2, 3}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3}, {1}, {}}) {
      const uint64_t elements = shape.empty() ? 1 : static_cast<uint64_t>(shape[0]);
      const auto even = Plan::make(unaligned(stage, 8), model_of({shape}));
      const auto plan = Plan::make(settings_of(stage, 8), model_of({shape}));
      for (int32_t rank = 0; rank < 8; ++rank) {
        const auto r = static_cast<uint64_t>(rank);
        EXPECT_EQUAL(owned_by(*even, 0, rank), r < elements ? 1 : 0);
        EXPECT_EQUAL(owned_by(*plan, 0, rank), r == 0 ? elements : 0); // one shard is 32
        EXPECT_EQUAL(plan->runs(0, rank).size(), r == 0 ? 1 : 0);
      }
    }
  }
}

void r034_zero_size_parameter_at_the_end(void**) {
  for (const int32_t stage : {1, 2, 3}) {
    for (const int32_t ranks : {1, 2}) {
      const auto plan = Plan::make(settings_of(stage, ranks), model_of({{16}, {0, 4}}));
      EXPECT(plan->places[1].bucket >= 0);
      EXPECT(plan->model.parameters()[1].shape == (std::vector<int64_t>{0, 4}));
      for (int32_t rank = 0; rank < ranks; ++rank) EXPECT_EQUAL(owned_by(*plan, 1, rank), 0u);
      size_t members = 0;
      for (const Bucket& bucket : plan->buckets) members += bucket.members.size();
      EXPECT_EQUAL(members, 2u);
    }
  }
}

void r036_an_empty_parameter_keeps_its_shape(void**) {
  ParameterTable model = model_of({{0, 8}, {8, 0, 3}, {0}});
  const auto plan = Plan::make(settings_of(3, 2), model);
  EXPECT(plan->model.parameters()[0].shape == (std::vector<int64_t>{0, 8}));
  EXPECT(plan->model.parameters()[1].shape == (std::vector<int64_t>{8, 0, 3}));
  for (const Bucket& bucket : plan->buckets) EXPECT_EQUAL(bucket.elements, 0u);
  // In a file: begin = end.
  const std::string json = R"({"a":{"dtype":"F32","shape":[0,8],"data_offsets":[0,0]},)"
                           R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const SafetensorsHeader header = parse_safetensors_header(json, 8 + json.size() + 8, "file");
  EXPECT(header.tensors[0].name == "a");
  EXPECT(header.tensors[0].shape == (std::vector<int64_t>{0, 8}));
  EXPECT(header.tensors[0].begin == 0 && header.tensors[0].end == 0);
}

// Groups of 10 and 2 elements, cut at 6 without padding: rank 0 owns nothing of the second.
void r037_a_group_may_be_empty_on_a_rank(void**) {
  ParameterTable model;
  model.add_group("second", GroupValues());
  model.add(param("first", {10}));
  Parameter second = param("second", {2});
  second.group = 1;
  model.add(second);
  model.set_backward_order({0, 1});
  const auto plan = Plan::make(unaligned(1, 2), model);
  EXPECT_EQUAL(plan->buckets.size(), 1u); // groups do not split buckets
  EXPECT_EQUAL(plan->buckets[0].shard_elements, 6u);
  EXPECT(owned_by(*plan, 0, 0) == 6 && owned_by(*plan, 1, 0) == 0);
  EXPECT(owned_by(*plan, 0, 1) == 4 && owned_by(*plan, 1, 1) == 2);
  const std::vector<Run> runs = plan->runs(0, 1);
  EXPECT(runs.size() == 2 && runs[0].param == 0 && runs[1].param == 1);
  EXPECT(runs[0].param_offset == 6 && runs[0].count == 4 && runs[1].bucket_offset == 10);
}

void r038_an_empty_parameter_group(void**) {
  for (const int32_t stage : {0, 1, 2, 3}) {
    ParameterTable model;
    const zero_group_id decay = model.add_group("decay", GroupValues());
    model.add_group("no_decay", GroupValues());
    Parameter parameter = param("weight", {8});
    parameter.group = decay;
    model.add(parameter);
    const auto plan = Plan::make(settings_of(stage, 2), model);
    EXPECT_EQUAL(plan->model.groups().size(), 3u);
    EXPECT(plan->model.groups()[2].name == "no_decay");
    EXPECT_EQUAL(plan->model.parameters()[0].group, decay);
  }
}

void r041_a_parameter_smaller_than_the_number_of_ranks(void**) {
  const auto even = Plan::make(unaligned(3, 64), model_of({{32}}));
  const auto plan = Plan::make(settings_of(3, 64), model_of({{32}}));
  for (int32_t rank = 0; rank < 64; ++rank) {
    EXPECT_EQUAL(owned_by(*even, 0, rank), rank < 32 ? 1 : 0);
    EXPECT_EQUAL(owned_by(*plan, 0, rank), rank == 0 ? 32 : 0);
  }
}

void r043_any_bucket_size_costs_at_most_the_model(void**) {
  for (const uint64_t bucket : {0, 1, 3, 10, 500000000}) {
    for (const int32_t stage : {1, 2, 3}) {
      PlanSettings settings = settings_of(stage, 2);
      settings.reduce_bucket_elements = bucket;
      const auto plan = Plan::make(settings, model_of({{10}}));
      EXPECT_EQUAL(plan->buckets.size(), 1u);
      EXPECT_EQUAL(plan->buckets[0].elements, 64u); // 10, up to 2 ranks x 32
      EXPECT(plan->memory.bytes[ZERO_MEMORY_BUCKETS] == (stage == 1 ? 0 : 64 * 4));
    }
  }
}

void r048_a_tied_weight_is_laid_out_once(void**) {
  ParameterTable model = model_of({{1}});
  Parameter head = param("head", {1});
  head.tied_to = 0;
  model.add(head);
  for (const int32_t stage : {0, 1, 2, 3}) {
    const auto plan = Plan::make(settings_of(stage, 1), model);
    EXPECT_EQUAL(plan->classes[0].real_elements, 1u);
    EXPECT_EQUAL(plan->buckets[0].members.size(), 1u);
    EXPECT_EQUAL(plan->memory.bytes[ZERO_MEMORY_OPTIMIZER], 2 * 32 * 4u); // one pair of moments
    EXPECT(plan->places[1].bucket == plan->places[0].bucket &&
           plan->places[1].offset == plan->places[0].offset);
  }
}

void r049_73_elements_over_4_ranks(void**) {
  const auto plan = Plan::make(unaligned(1, 4), model_of({{73}}));
  EXPECT_EQUAL(plan->buckets[0].shard_elements, 19u);
  EXPECT_EQUAL(plan->buckets[0].elements, 76u);
  EXPECT_EQUAL(owned_by(*plan, 0, 2), 19u);
  EXPECT_EQUAL(owned_by(*plan, 0, 3), 16u); // and 3 of padding
  EXPECT_EQUAL(plan->shard_span(0, 3).offset, 57u);
}

void r057_more_than_2_31_1_elements(void**) {
  const int64_t elements = 3218569051;
  const auto plan = Plan::make(unaligned(1, 7), model_of({{elements}}));
  EXPECT_EQUAL(plan->buckets[0].shard_elements, 459795579u);
  EXPECT_EQUAL(plan->shard_span(0, 6).offset, 6 * uint64_t{459795579});
  const std::string json =
      R"({"w":{"dtype":"F32","shape":[3218569051],"data_offsets":[0,12874276204]}})";
  const SafetensorsHeader header =
      parse_safetensors_header(json, 8 + json.size() + 12874276204u, "file");
  EXPECT_EQUAL(header.tensors[0].end, 12874276204u);
}

uint64_t states(const Plan& plan) {
  const uint64_t* bytes = plan.memory.bytes;
  return bytes[ZERO_MEMORY_PARAMS] + bytes[ZERO_MEMORY_GRADS] + bytes[ZERO_MEMORY_MASTER] +
         bytes[ZERO_MEMORY_OPTIMIZER];
}

// 3e9 parameters with Adam; in units of 1e6 bytes.
void r114_memory_formulas_of_the_paper(void**) {
  const uint64_t fp16_at_8[] = {48000, 16500, 11250, 6000};
  const uint64_t fp32_at_8[] = {48000, 27000, 16500, 6000};
  for (const int32_t stage : {0, 1, 2, 3}) {
    for (const int32_t ranks : {1, 8}) {
      PlanSettings settings = settings_of(stage, ranks);
      settings.accumulation_dtype = ZERO_DTYPE_FP16; // the paper's 2 bytes a gradient
      const auto half = Plan::make(settings, model_of({{3000000000}}, ZERO_DTYPE_FP16));
      EXPECT_EQUAL(states(*half), (ranks == 1 ? 48000 : fp16_at_8[stage]) * 1000000);
      settings.accumulation_dtype = ZERO_DTYPE_FP32;
      const auto full = Plan::make(settings, model_of({{3000000000}}));
      EXPECT_EQUAL(states(*full), (ranks == 1 ? 48000 : fp32_at_8[stage]) * 1000000);
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r033_fewer_elements_than_ranks),
      cmocka_unit_test(r034_zero_size_parameter_at_the_end),
      cmocka_unit_test(r036_an_empty_parameter_keeps_its_shape),
      cmocka_unit_test(r037_a_group_may_be_empty_on_a_rank),
      cmocka_unit_test(r038_an_empty_parameter_group),
      cmocka_unit_test(r041_a_parameter_smaller_than_the_number_of_ranks),
      cmocka_unit_test(r043_any_bucket_size_costs_at_most_the_model),
      cmocka_unit_test(r048_a_tied_weight_is_laid_out_once),
      cmocka_unit_test(r049_73_elements_over_4_ranks),
      cmocka_unit_test(r057_more_than_2_31_1_elements),
      cmocka_unit_test(r114_memory_formulas_of_the_paper),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Offload in the plan: which bytes lie in host memory and which stay on the device, from the sizes
// of the types and the number of parameters alone.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan/memory_plan.h"
#include "plan_cases.h"

using namespace plan_cases;

namespace {

constexpr uint64_t kP = uint64_t{1} << 20; // needs no padding up to 8 ranks

uint64_t at(const Plan& plan, zero_place place, zero_memory_use use) {
  return plan.memory.placed[place][use];
}
uint64_t on_device(const Plan& plan, zero_memory_use use) {
  return at(plan, ZERO_PLACE_DEVICE, use);
}
uint64_t pinned(const Plan& plan, zero_memory_use use) {
  return at(plan, ZERO_PLACE_PINNED, use);
}
uint64_t on_host(const Plan& plan, zero_memory_use use) {
  return at(plan, ZERO_PLACE_HOST, use);
}

PlanSettings device_settings(int32_t stage, int32_t ranks, bool optimizer, bool params = false) {
  PlanSettings settings = settings_of(stage, ranks);
  settings.place = ZERO_PLACE_DEVICE;
  if (ranks > 1) settings.group.kind = ZERO_COMM_NCCL;
  settings.offload_optimizer = optimizer;
  settings.offload_param = params;
  return settings;
}

ParameterTable square(zero_dtype dtype) {
  return model_of({{1 << 10, 1 << 10}}, dtype);
}

// Masters and states 12 bytes an element, the fp32 sum of gradients 4, the parameters on their way
// 2 (16 bits) or none (fp32: they are the masters).
void the_optimizer_s_shards_are_the_host_s(void**) {
  for (const zero_dtype dtype : {ZERO_DTYPE_BF16, ZERO_DTYPE_FP16, ZERO_DTYPE_FP32}) {
    const bool wide = dtype == ZERO_DTYPE_FP32;
    const uint64_t size = wide ? 4 : 2;
    for (const int32_t stage : {1, 2, 3}) {
      for (const int32_t ranks : {1, 2, 8}) {
        const uint64_t shard = kP / static_cast<uint64_t>(ranks);
        const auto plan = Plan::make(device_settings(stage, ranks, true), square(dtype));
        EXPECT_EQUAL(on_device(*plan, ZERO_MEMORY_MASTER), 0u);
        EXPECT_EQUAL(on_device(*plan, ZERO_MEMORY_OPTIMIZER), 0u);
        EXPECT_EQUAL(on_host(*plan, ZERO_MEMORY_OPTIMIZER), 8 * shard);
        EXPECT_EQUAL(on_host(*plan, ZERO_MEMORY_MASTER), wide ? 0 : 4 * shard);
        EXPECT_EQUAL(pinned(*plan, ZERO_MEMORY_MASTER), wide ? 4 * shard : 0);
        EXPECT_EQUAL(pinned(*plan, ZERO_MEMORY_PARAMS), wide ? 0 : 2 * shard);
        EXPECT_EQUAL(pinned(*plan, ZERO_MEMORY_GRADS), 4 * shard);
        EXPECT_EQUAL(on_device(*plan, ZERO_MEMORY_GRADS), stage == 1 ? size * kP : 0);
        EXPECT_EQUAL(on_device(*plan, ZERO_MEMORY_PARAMS), size * (stage == 3 ? shard : kP));
        EXPECT_EQUAL(on_device(*plan, ZERO_MEMORY_BUCKETS) > 0, stage >= 2);
      }
    }
  }
}

void what_only_the_host_touches_is_pinned_where_the_config_says_so(void**) {
  PlanSettings settings = device_settings(2, 4, true);
  const auto plain = Plan::make(settings, square(ZERO_DTYPE_BF16));
  settings.offload_pinned = true;
  const auto all = Plan::make(settings, square(ZERO_DTYPE_BF16));
  for (const zero_memory_use use : {ZERO_MEMORY_MASTER, ZERO_MEMORY_OPTIMIZER}) {
    EXPECT_EQUAL(pinned(*plain, use), 0u);
    EXPECT_EQUAL(on_host(*all, use), 0u);
    EXPECT_EQUAL(pinned(*all, use), on_host(*plain, use));
  }
  for (const zero_memory_use use : {ZERO_MEMORY_GRADS, ZERO_MEMORY_PARAMS}) {
    EXPECT_EQUAL(pinned(*all, use), pinned(*plain, use));
  }
  EXPECT_EQUAL(all->memory.bytes[ZERO_MEMORY_TOTAL], plain->memory.bytes[ZERO_MEMORY_TOTAL]);
}

void remainders_and_narrow_states_keep_their_size(void**) {
  PlanSettings settings = device_settings(3, 2, true);
  settings.master_is_remainder = true;
  settings.state_dtype = ZERO_DTYPE_BF16;
  const auto plan = Plan::make(settings, square(ZERO_DTYPE_BF16));
  EXPECT_EQUAL(on_host(*plan, ZERO_MEMORY_MASTER), kP / 2 * 17 / 8); // 2 1/8 bytes
  EXPECT_EQUAL(on_host(*plan, ZERO_MEMORY_OPTIMIZER), 4 * kP / 2);
  EXPECT_EQUAL(pinned(*plan, ZERO_MEMORY_PARAMS), 2 * kP / 2);
}

// With the parameters' shard in host memory there is no second copy of it there.
void offloaded_parameters_leave_loans_and_buckets_on_the_device(void**) {
  for (const zero_dtype dtype : {ZERO_DTYPE_BF16, ZERO_DTYPE_FP32}) {
    const uint64_t size = dtype_bytes(dtype);
    for (const bool optimizer : {false, true}) {
      ParameterTable model = square(dtype);
      Parameter frozen = param("frozen", {1 << 10, 1 << 10}, dtype);
      frozen.role = ZERO_PARAM_FROZEN;
      model.add(frozen);
      const auto plan = Plan::make(device_settings(3, 2, optimizer, true), model);
      EXPECT_EQUAL(on_device(*plan, ZERO_MEMORY_PARAMS), 0u);
      EXPECT_EQUAL(pinned(*plan, ZERO_MEMORY_PARAMS), 2 * size * kP / 2);
      EXPECT_EQUAL(pinned(*plan, ZERO_MEMORY_MASTER), 0u);
      EXPECT_EQUAL(pinned(*plan, ZERO_MEMORY_GRADS), optimizer ? 4 * kP / 2 : 0);
      EXPECT(on_device(*plan, ZERO_MEMORY_GATHERED) > 0 &&
             on_device(*plan, ZERO_MEMORY_BUCKETS) > 0);
    }
  }
}

void nothing_moves_where_it_has_no_meaning(void**) {
  const auto same = [](PlanSettings settings, const char* what) {
    const auto with = Plan::make(settings, square(ZERO_DTYPE_BF16));
    settings.offload_optimizer = settings.offload_param = false;
    const auto without = Plan::make(settings, square(ZERO_DTYPE_BF16));
    for (int32_t use = 0; use < 16; ++use) {
      for (const zero_place place : kPlacesHeld) {
        if (at(*with, place, use) == at(*without, place, use)) continue;
        SAY_AND_FAIL("%s: place %d, use %d", what, place, use);
      }
    }
  };
  same(device_settings(0, 2, true, true), "stage 0");
  same(device_settings(1, 2, false, true), "parameters at stage 1");
  same(device_settings(2, 2, false, true), "parameters at stage 2");
  PlanSettings host = device_settings(3, 2, true, true);
  host.place = ZERO_PLACE_HOST;
  same(host, "on the host");
}

void the_text_says_what_lies_where(void**) {
  const std::string text = Plan::make(device_settings(2, 1, true), square(ZERO_DTYPE_BF16))->text();
  for (const char* line : {"optimizer: 8388608 bytes (8.00 MiB), host 8388608\n",
                           "params: 4194304 bytes (4.00 MiB), device 2097152, pinned 2097152\n",
                           "grads: 4194304 bytes (4.00 MiB), pinned 4194304\n"}) {
    if (text.find(line) == std::string::npos) SAY_AND_FAIL("no %s in:\n%s", line, text.c_str());
  }
  const std::string host = Plan::make(settings_of(2, 1), square(ZERO_DTYPE_BF16))->text();
  EXPECT(host.find("optimizer: 8388608 bytes (8.00 MiB)\n") != std::string::npos);
}

// Any model: what leaves the device is all that changes there, and it is on the host again.
void nothing_is_lost_on_the_way(void**) {
  for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
    const auto ranks = static_cast<int32_t>(1 + seed % 9);
    RandomCase made = random_case(seed, ranks);
    made.settings.place = ZERO_PLACE_DEVICE;
    std::shared_ptr<const Plan> plans[3];
    try {
      for (int32_t k = 0; k < 3; ++k) {
        made.settings.offload_optimizer = k > 0;
        made.settings.offload_param = k > 1;
        plans[k] = Plan::make(made.settings, made.model);
      }
    } catch (const Error&) {
      continue;
    }
    for (int32_t k = 1; k < 3; ++k) {
      const Plan& without = *plans[0];
      const Plan& with = *plans[k];
      EXPECT(on_device(with, ZERO_MEMORY_TOTAL) <= on_device(without, ZERO_MEMORY_TOTAL));
      for (const zero_memory_use use :
           {ZERO_MEMORY_MASTER, ZERO_MEMORY_OPTIMIZER, ZERO_MEMORY_PARAMS, ZERO_MEMORY_GRADS}) {
        EXPECT(with.memory.bytes[use] + 64 >= without.memory.bytes[use]);
      }
      for (const zero_memory_use use : {ZERO_MEMORY_GATHERED, ZERO_MEMORY_STAGING}) {
        EXPECT_EQUAL(on_device(with, use), on_device(without, use));
      }
      const bool moved = with.placement.optimizer_sharded && made.settings.optimizer_present;
      if (moved) EXPECT_EQUAL(on_device(with, ZERO_MEMORY_MASTER), 0u);
      if (moved) EXPECT_EQUAL(on_device(with, ZERO_MEMORY_OPTIMIZER), 0u);
    }
  }
}

// The user's claim: 1.5 B parameters, 16 bits, on one card of 24 GB.
void gpt2_xl_trains_on_one_device_of_24_gb(void**) {
  const ParameterTable model =
      gpt2(48, 1600, 50257, 1024, [](Parameter& parameter) { parameter.dtype = ZERO_DTYPE_FP16; });
  uint64_t parameters = 0;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.tied_to < 0) parameters += parameter.elements;
  }
  EXPECT_EQUAL(parameters, 1557611200u);
  constexpr uint64_t kCard = 24000000000;
  for (const int32_t stage : {0, 1, 2, 3}) {
    const auto plan = Plan::make(device_settings(stage, 1, false), model);
    EXPECT(on_device(*plan, ZERO_MEMORY_TOTAL) > kCard);
  }
  const auto optimizer = Plan::make(device_settings(3, 1, true), model);
  const auto both = Plan::make(device_settings(3, 1, true, true), model);
  EXPECT(on_device(*optimizer, ZERO_MEMORY_TOTAL) < kCard / 4);
  EXPECT(on_device(*both, ZERO_MEMORY_TOTAL) < kCard / 12);
  // 12 bytes of masters and states, 4 of gradients, 2 of parameters; padding besides.
  const uint64_t host = both->memory.bytes[ZERO_MEMORY_TOTAL] -
                        on_device(*both, ZERO_MEMORY_TOTAL) - on_host(*both, ZERO_MEMORY_TABLES);
  EXPECT(host >= 18 * parameters && host < 18 * parameters + (1 << 20));
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_optimizer_s_shards_are_the_host_s),
      cmocka_unit_test(what_only_the_host_touches_is_pinned_where_the_config_says_so),
      cmocka_unit_test(remainders_and_narrow_states_keep_their_size),
      cmocka_unit_test(offloaded_parameters_leave_loans_and_buckets_on_the_device),
      cmocka_unit_test(nothing_moves_where_it_has_no_meaning),
      cmocka_unit_test(the_text_says_what_lies_where),
      cmocka_unit_test(nothing_is_lost_on_the_way),
      cmocka_unit_test(gpt2_xl_trains_on_one_device_of_24_gb),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Memory of 16-bit parameters, gradients, masters and states: planned, allocated, the host
// program's. SPDX-License-Identifier: BSD-3-Clause
#include "precision_rank.h"

using namespace precision;

namespace {

// One vector of 192 elements: without padding at 1, 2 and 3 ranks, so that the bytes can be said.
void what_is_planned_is_what_is_allocated(void**) {
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    for (const zero_dtype accumulation : {kFp32, dtype}) {
      Setup setup;
      setup.dtype = dtype;
      setup.optimizer = kAdamW;
      setup.top = std::string(", \"data_types\": {\"grad_accum_dtype\": \"") +
                  name_of(accumulation) + "\"}";
      at_all_stages({1, 2, 3}, setup, [&](Rank& self) {
        const zero_param_id w = self.add("w", Floats(192, 1));
        zero_plan_options options;
        zero_plan_options_init(&options, sizeof(options));
        options.world_size = self.ranks;
        options.comm = self.ranks > 1 ? ZERO_COMM_LOCAL : ZERO_COMM_SELF;
        zero_plan* plan = nullptr;
        OK(zero_plan_create(self.config, self.model, &options, &plan));
        self.shard();
        for (int32_t step = 0; step < 2; ++step) {
          zero_buffer loan;
          OK(zero_params_acquire(self.runtime, &w, 1, nullptr, &loan));
          OK(zero_params_release(self.runtime, &w, 1, 0, nullptr));
          self.give(w, Floats(192, 1));
          EXPECT(self.step().skipped == 0);
        }
        const auto usage = [&](zero_memory_use use) {
          zero_memory_info info;
          zero_memory_info_init(&info, sizeof(info));
          OK(zero_memory_usage(self.runtime, ZERO_PLACE_HOST, use, &info));
          uint64_t planned = 0;
          OK(zero_plan_memory(plan, self.rank, ZERO_PLACE_HOST, use, &planned));
          EXPECT(info.planned == planned);
          if (use == ZERO_MEMORY_TABLES || use == ZERO_MEMORY_TOTAL) {
            EXPECT(info.current <= planned); // tables are bounded
          } else {
            EXPECT(info.current == planned && info.peak == planned);
          }
          return planned;
        };
        for (zero_memory_use use = ZERO_MEMORY_TOTAL; use <= ZERO_MEMORY_TABLES; ++use) usage(use);
        const int32_t stage = self.setup.stage;
        const uint64_t whole = 192, part = 192 / static_cast<uint64_t>(self.ranks);
        const uint64_t owned = stage == 0 ? whole : part;
        EXPECT(usage(ZERO_MEMORY_PARAMS) == 2 * (stage == 3 ? part : whole));
        EXPECT(usage(ZERO_MEMORY_GRADS) == (stage < 2 ? 2 * whole : bytes_of(accumulation) * part));
        EXPECT(usage(ZERO_MEMORY_MASTER) == 4 * owned);
        EXPECT(usage(ZERO_MEMORY_OPTIMIZER) == 8 * owned);
        zero_plan_destroy(plan);
        self.close();
      });
    }
  }
}

void* poisoned(void*, zero_place, int32_t, zero_memory_use, uint64_t bytes, uint64_t alignment) {
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  std::memset(memory, 0x7f, bytes); // NaN in every dtype
  return memory;
}
void freed(void*, zero_place, int32_t, void* memory, uint64_t) {
  std::free(memory);
}

void memory_of_the_host_program_gives_the_same_bits(void**) {
  zero_allocator allocator;
  zero_allocator_init(&allocator, sizeof(allocator));
  allocator.allocate = poisoned;
  allocator.release = freed;
  for (const zero_dtype dtype : {kBf16, kFp16}) {
    Setup setup;
    setup.dtype = dtype;
    setup.optimizer = kAdamW;
    for (const int32_t count : {1, 2, 3}) {
      for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
        ranks::SharedArray<float> result(2 * 4 * 77);
        for (const size_t own : {size_t{0}, size_t{1}}) {
          setup.allocator = own == 1 ? &allocator : nullptr;
          at_ranks(count, setup, [&](Rank& self) {
            const zero_param_id w = self.add("w", Floats(77, 0.25f));
            self.shard();
            for (int32_t step = 0; step < 3; ++step) {
              Floats gradient;
              for (int32_t i = 0; i < 77; ++i) {
                gradient.push_back(static_cast<float>(i + step + self.rank) / 1024);
              }
              self.give_scaled(w, gradient);
              EXPECT(self.step().skipped == 0);
            }
            const std::vector<Floats> parts = self.all_parts(w, 2);
            for (size_t k = 0; k < 4 && self.rank == 0; ++k) {
              std::copy(parts[k].begin(), parts[k].end(), result.data() + (4 * own + k) * 77);
            }
            self.close();
          });
        }
        assert_memory_equal(result.data(), result.data() + 4 * 77, 4 * 77 * 4);
        assert_true(std::isfinite(result[77]) && result[77] != 0.25f);
      }
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_planned_is_what_is_allocated),
      cmocka_unit_test(memory_of_the_host_program_gives_the_same_bits),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

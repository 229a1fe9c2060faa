// Memory of the host program's own: pools of exactly the planned size, asked for once a use and in
// zero_shard_params only; and what happens when one of them is refused.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>

#include "memory_help.h"
#include "model_values.h"

namespace {

using training::RunSpec;

constexpr unsigned char kCanary = 0xa5;
constexpr uint64_t kPage = 4096;

// One rank's.  Behind the last byte lie canaries to the end of the page, then a page that nobody
// may touch.
struct Pool {
  uint64_t planned[16] = {};
  int asked[16] = {};
  int calls = 0; // in zero_shard_params
  int live = 0;
  int refuse = -1; // this call gets nothing
  bool sharding = false;
};

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void* take(void* user_data, zero_place place, int32_t device, zero_memory_use use, uint64_t bytes,
           uint64_t alignment) {
  auto* pool = static_cast<Pool*>(user_data);
  EXPECT(pool->sharding && place == ZERO_PLACE_HOST && device == -1);
  EXPECT(use > ZERO_MEMORY_TOTAL && use < ZERO_MEMORY_TABLES);
  EXPECT(bytes == pool->planned[use] && bytes > 0);
  EXPECT(alignment > 0 && kPage % alignment == 0);
  if (pool->calls++ == pool->refuse) return nullptr;
  EXPECT(++pool->asked[use] == 1);
  ++pool->live;
  const uint64_t pages = whole_pages(bytes);
  void* mapping =
      mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(mapping != MAP_FAILED);
  auto* memory = static_cast<unsigned char*>(mapping);
  std::memset(memory, kCanary, pages);
  EXPECT(mprotect(memory + pages, kPage, PROT_NONE) == 0);
  return memory;
}

void give_back(void* user_data, zero_place place, int32_t device, void* memory, uint64_t bytes) {
  auto* pool = static_cast<Pool*>(user_data);
  EXPECT(place == ZERO_PLACE_HOST && device == -1);
  const auto* values = static_cast<unsigned char*>(memory);
  for (uint64_t i = bytes; i < whole_pages(bytes); ++i) EXPECT(values[i] == kCanary);
  EXPECT(munmap(memory, whole_pages(bytes) + kPage) == 0);
  --pool->live;
}

struct Rank {
  zero_config* config = nullptr;
  zero_comm* comm = nullptr;
  zero_runtime* runtime = nullptr;
  zero_model* model = nullptr;
  training::Values values;
  Pool pool;

  Rank(const RunSpec& spec, int32_t rank, const std::string& group) {
    const std::string text = training::config_text(spec);
    OK(zero_config_load_text(text.data(), text.size(), &config));
    if (spec.ranks == 1) {
      OK(zero_comm_create_self(&comm));
    } else {
      OK(zero_comm_create_local(group.c_str(), rank, spec.ranks, 60 * ranks::kSecond, &comm));
    }
    zero_allocator allocator;
    zero_allocator_init(&allocator, sizeof(allocator));
    allocator.allocate = take;
    allocator.release = give_back;
    allocator.user_data = &pool;
    zero_init_options init;
    zero_init_options_init(&init, sizeof(init));
    init.comm = comm;
    init.allocator = &allocator;
    OK(zero_init(config, &init, &runtime));
    model = training::make_model(memory_help::blocks_model(), spec, &values);
    zero_plan_options options;
    zero_plan_options_init(&options, sizeof(options));
    options.world_size = spec.ranks;
    options.own_allocator = 1;
    zero_plan* plan = nullptr;
    OK(zero_plan_create(config, model, &options, &plan));
    for (zero_memory_use use = ZERO_MEMORY_PARAMS; use < ZERO_MEMORY_TABLES; ++use) {
      OK(zero_plan_memory(plan, rank, ZERO_PLACE_HOST, use, &pool.planned[use]));
    }
    zero_plan_destroy(plan);
    // What ranks copy through is shared, and so the communicator's.
    if (spec.ranks > 1) pool.planned[ZERO_MEMORY_STAGING] = 0;
  }
  ~Rank() {
    zero_runtime_destroy(runtime);
    EXPECT(pool.live == 0);
    zero_comm_destroy(comm);
    zero_model_destroy(model);
    zero_config_destroy(config);
  }
  zero_status shard() {
    pool.sharding = true;
    const zero_status status = zero_shard_params(runtime, model);
    pool.sharding = false;
    return status;
  }
};

RunSpec spec_of(int32_t size, int32_t stage, zero_dtype dtype) {
  RunSpec spec;
  spec.ranks = size;
  spec.stage = stage;
  spec.dtype = dtype;
  spec.overlap = size > 1 ? 1 : 0;
  spec.accumulation = 1 + stage % 2;
  return spec;
}

template <typename Body>
void for_every_kind_of_run(Body body) {
  for (int32_t size = 1; size <= 3; ++size) {
    for (int32_t stage = 0; stage <= 3; ++stage) {
      for (const zero_dtype dtype : {ZERO_DTYPE_FP32, ZERO_DTYPE_BF16}) {
        body(spec_of(size, stage, dtype));
      }
    }
  }
}

void a_pool_of_exactly_the_planned_size_is_enough(void**) {
  for_every_kind_of_run([](const RunSpec& spec) {
    ranks::run_threads(spec.ranks, [&](int32_t rank, const std::string& group) {
      Rank self(spec, rank, group);
      OK(self.shard());
      for (zero_memory_use use = ZERO_MEMORY_PARAMS; use < ZERO_MEMORY_TABLES; ++use) {
        EXPECT(self.pool.asked[use] == (self.pool.planned[use] > 0 ? 1 : 0));
      }
      for (int32_t step = 0; step < 2; ++step) {
        memory_help::train(self.runtime, memory_help::blocks_model(), spec.accumulation);
      }
      OK(zero_runtime_close(self.runtime));
    });
  });
}

// Every call of every rank in turn.
void a_refusal_at_any_call_is_the_same_error_on_all_ranks_and_can_be_made_good(void**) {
  for_every_kind_of_run([](const RunSpec& spec) {
    for (int32_t at = 0; at < spec.ranks; ++at) {
      int most = 1;
      for (int call = 0; call < most; ++call) {
        std::atomic<int> calls{0};
        ranks::run_threads(spec.ranks, [&](int32_t rank, const std::string& group) {
          Rank self(spec, rank, group);
          if (rank == at) self.pool.refuse = call;
          EXPECT(self.shard() == ZERO_ERR_OUT_OF_MEMORY);
          const std::string said = ranks::last_error();
          EXPECT(said.find("the host program's allocator refused") != std::string::npos);
          const bool names = said.find("rank " + std::to_string(at)) != std::string::npos;
          EXPECT(rank == at || names);
          EXPECT(self.pool.live == 0 && zero_runtime_status(self.runtime) == ZERO_OK);
          EXPECT(memory_help::usage(self.runtime, ZERO_MEMORY_TOTAL, false) == 0);
          // The same again, now with an answer.
          self.pool.refuse = -1;
          self.pool.calls = 0;
          std::memset(self.pool.asked, 0, sizeof(self.pool.asked));
          OK(self.shard());
          if (rank == at) calls = self.pool.calls;
          memory_help::train(self.runtime, memory_help::blocks_model(), spec.accumulation);
          OK(zero_runtime_close(self.runtime));
        });
        most = calls.load();
        assert_true(most > 2);
      }
    }
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_pool_of_exactly_the_planned_size_is_enough),
      cmocka_unit_test(a_refusal_at_any_call_is_the_same_error_on_all_ranks_and_can_be_made_good),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

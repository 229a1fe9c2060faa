// Parts of parameters read and written over several ranks, in place and whole; where first values
// come from; an optimizer and an allocator of the host program's own.
// SPDX-License-Identifier: BSD-3-Clause
#include "report_rank.h"

using namespace reports;

namespace {

constexpr const char* kAdamW = R"({"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.1}})";

Floats counting(size_t count, float from) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = from + static_cast<float>(i);
  return values;
}

// 3 ranks: 200 elements are cut at 96 and 192, so that the last rank owns 8.
void a_part_set_whole_lies_with_its_owners(void**) {
  Setup setup;
  setup.optimizer = kAdamW;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(3, setup, [&](Rank& self, int32_t rank) {
      const zero_param_id w = self.add("w", Floats(200, 0));
      self.shard();
      const struct {
        zero_part part;
        int32_t index;
      } parts[] = {
          {ZERO_PART_VALUE, 0}, {ZERO_PART_MASTER, 0}, {ZERO_PART_STATE, 0}, {ZERO_PART_STATE, 1}};
      for (const auto& one : parts) {
        const Floats values = counting(200, static_cast<float>(1000 * (one.part + one.index + 1)));
        OK(zero_param_set(self.runtime, w, one.part, one.index, values.data(), 800));
        EXPECT(same(self.get(w, one.part, one.index), values));
        zero_span span;
        zero_buffer own;
        OK(zero_param_shard(self.runtime, w, rank, &span));
        OK(zero_shard_buffer(self.runtime, w, one.part, one.index, &own));
        EXPECT(own.count == span.count && own.bytes == 4 * span.count);
        EXPECT(span.count == 0 ||
               std::memcmp(own.data, values.data() + span.offset, 4 * span.count) == 0);
        // Written in place by its owner, seen by all (a value at stages 1 and 2 is everywhere).
        if (one.part != ZERO_PART_STATE || setup.stage == 0) continue;
        if (span.count > 0) static_cast<float*>(own.data)[span.count - 1] = -7;
        OK(zero_comm_barrier(zero_runtime_comm(self.runtime)));
        const Floats now = self.get(w, one.part, one.index);
        for (int32_t r = 0; r < 3; ++r) {
          OK(zero_param_shard(self.runtime, w, r, &span));
          EXPECT(span.count == 0 || now[span.offset + span.count - 1] == -7);
        }
      }
      self.close();
    });
  }
}

void values_that_differ_between_ranks_are_not_set(void**) {
  Setup setup;
  setup.optimizer = kAdamW;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t rank) {
      const zero_param_id w = self.add("w", Floats(100, 3));
      self.shard();
      const Floats values(100, static_cast<float>(rank));
      EXPECT(zero_param_set(self.runtime, w, ZERO_PART_VALUE, 0, values.data(), 400) ==
             ZERO_ERR_INVALID_ARGUMENT);
      EXPECT(ranks::last_error().find("\"w\"") != std::string::npos);
      EXPECT(ranks::last_error().find("rank 1") != std::string::npos);
      EXPECT(same(self.get(w), Floats(100, 3)));
      OK(zero_runtime_status(self.runtime)); // nothing broke
      self.close();
    });
  }
}

// With "local" rank r's own shard is the truth: 100 elements and 28 of padding, 64 a rank.
void initial_values_come_from_where_the_config_says(void**) {
  for (const char* from : {"rank:0", "rank:1", "local", "verify"}) {
    Setup setup;
    setup.top = std::string(R"(, "libzero": {"initial_values": ")") + from + "\"}";
    for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
      at_ranks(2, setup, [&](Rank& self, int32_t rank) {
        const std::string where = from;
        const bool verify = where == "verify";
        const auto own = static_cast<float>(verify ? 9 : rank + 1);
        const zero_param_id w = self.add("w", Floats(100, own));
        zero_param_options frozen = Rank::options();
        frozen.role = ZERO_PARAM_FROZEN;
        const zero_param_id f = self.add("f", {100}, Floats(100, own), frozen);
        self.shard();
        Floats expected(100, verify ? 9.0f : where == "rank:1" ? 2.0f : 1.0f);
        if (where == "local") std::fill(expected.begin() + 64, expected.end(), 2.0f);
        EXPECT(same(self.get(w), expected));
        EXPECT(same(self.get(f), expected));
        self.give(w, Floats(100, 1)); // and nothing of it was taken for a gradient
        EXPECT(self.step().grad_norm == 10);
        for (float& value : expected) value -= 1;
        EXPECT(same(self.get(w), expected));
        self.close();
      });
    }
  }
}

void groups_that_differ_between_ranks_are_noticed_at_the_next_step(void**) {
  Setup setup;
  setup.optimizer = kAdamW;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    at_ranks(2, setup, [](Rank& self, int32_t rank) {
      const zero_param_id w = self.add("w", Floats(10, 1));
      self.shard();
      zero_group_options group;
      zero_group_options_init(&group, sizeof(group));
      group.lr = rank == 0 ? 0.5 : 0.25;
      OK(zero_group_set(self.runtime, 0, &group));
      self.give(w, Floats(10, 1));
      EXPECT(zero_step(self.runtime, nullptr, nullptr, nullptr) == ZERO_ERR_COMM_MISMATCH);
      EXPECT(ranks::last_error().find("rank 1") != std::string::npos);
    });
  }
}

// Plain SGD by the host program, on its shards.
void a_host_optimizer_updates_shards_as_the_built_in_one(void**) {
  Setup setup;
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    ranks::SharedArray<float> result(2 * 200);
    for (const bool host : {false, true}) {
      setup.clipping = 2;
      setup.optimizer = host ? R"({"type": "libzero.host", "params": {"states": 0}})" : kSgd;
      at_ranks(3, setup, [&](Rank& self, int32_t rank) {
        const zero_param_id w = self.add("w", counting(200, 1));
        self.shard();
        for (int32_t step = 0; step < 3; ++step) {
          self.give(w, counting(200, static_cast<float>(step * rank) * 0.37f));
          if (!host) {
            self.step();
            continue;
          }
          OK(zero_step_begin(self.runtime, nullptr, nullptr, nullptr));
          zero_buffer grad, master;
          OK(zero_shard_buffer(self.runtime, w, ZERO_PART_GRAD, 0, &grad));
          OK(zero_shard_buffer(self.runtime, w, ZERO_PART_MASTER, 0, &master));
          const Floats whole = self.get(w, ZERO_PART_GRAD); // averaged and clipped
          double squares = 0;
          for (const float g : whole) squares += static_cast<double>(g) * static_cast<double>(g);
          EXPECT(near(std::sqrt(squares), 2, 1e-5));
          for (uint64_t i = 0; i < master.count; ++i) {
            auto* values = static_cast<float*>(master.data);
            values[i] = std::fma(-1.0f, static_cast<const float*>(grad.data)[i], values[i]);
          }
          OK(zero_step_end(self.runtime, nullptr));
        }
        const Floats values = self.get(w);
        if (rank == 2) std::copy(values.begin(), values.end(), result.data() + (host ? 200 : 0));
        self.close();
      });
    }
    assert_memory_equal(result.data(), result.data() + 200, 800);
    assert_true(result[150] != 151);
  }
}

// Its memory cannot be shared: the local communicator copies through staging of its own.
void a_host_allocator_gives_the_bits_of_libzero_s_own_memory(void**) {
  Setup setup;
  setup.clipping = 1;
  setup.optimizer = kAdamW;
  setup.zero = R"(, "reduce_bucket_size": 100)";
  zero_allocator allocator;
  zero_allocator_init(&allocator, sizeof(allocator));
  allocator.allocate = [](void*, zero_place, int32_t, zero_memory_use, uint64_t bytes,
                          uint64_t alignment) {
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  };
  allocator.release = [](void*, zero_place, int32_t, void* memory, uint64_t) { std::free(memory); };
  for (setup.stage = 0; setup.stage <= 3; ++setup.stage) {
    ranks::SharedArray<float> result(2 * 200);
    for (const bool own : {false, true}) {
      ranks::assert_all_ended_well(
          ranks::run_processes(2, [&](int32_t rank, const std::string& group) {
            Rank self(rank, 2, group, setup, own ? &allocator : nullptr);
            const zero_param_id a = self.add("a", counting(150, 1));
            const zero_param_id b = self.add("b", counting(50, 7));
            self.shard();
            for (int32_t step = 0; step < 3; ++step) {
              self.give(b, counting(50, static_cast<float>(rank + step)));
              self.give(a, counting(150, static_cast<float>(rank - step)));
              self.step();
            }
            for (zero_memory_use use = ZERO_MEMORY_PARAMS; use < ZERO_MEMORY_TABLES; ++use) {
              zero_memory_info info;
              zero_memory_info_init(&info, sizeof(info));
              OK(zero_memory_usage(self.runtime, ZERO_PLACE_HOST, use, &info));
              EXPECT(info.current == info.planned && info.peak == info.planned);
            }
            Floats values = self.get(a);
            const Floats more = self.get(b);
            values.insert(values.end(), more.begin(), more.end());
            if (rank == 1) std::copy(values.begin(), values.end(), result.data() + (own ? 200 : 0));
            self.close();
          }));
    }
    assert_memory_equal(result.data(), result.data() + 200, 800);
    assert_true(result[0] != 1);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_part_set_whole_lies_with_its_owners),
      cmocka_unit_test(values_that_differ_between_ranks_are_not_set),
      cmocka_unit_test(initial_values_come_from_where_the_config_says),
      cmocka_unit_test(groups_that_differ_between_ranks_are_noticed_at_the_next_step),
      cmocka_unit_test(a_host_optimizer_updates_shards_as_the_built_in_one),
      cmocka_unit_test(a_host_allocator_gives_the_bits_of_libzero_s_own_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

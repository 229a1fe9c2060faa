// Reports of users of other ZeRO implementations whose ranks are threads, so that ThreadSanitizer
// sees them.
// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>

#include "report_rank.h"

using namespace reports;

namespace {

// Every parameter is one element; its gradient is its index.  Rank 1 dawdles now and then, rank 0
// at other places.
void r045_a_buffer_is_not_reused_while_it_is_reduced(void**) {
  constexpr int32_t kParams = 4096;
  Setup setup;
  setup.zero = R"(, "overlap_comm": true, "reduce_bucket_size": 1024)";
  for (setup.stage = 0; setup.stage <= 2; setup.stage += setup.stage == 0 ? 2 : 1) {
    ranks::run_threads(2, [&](int32_t rank, const std::string& group) {
      Rank self(rank, 2, group, setup);
      for (int32_t p = 0; p < kParams; ++p) self.add("p" + std::to_string(p), {0});
      self.shard();
      for (int32_t step = 1; step <= 2; ++step) {
        for (int32_t p = kParams; p-- > 0;) {
          self.give(p, {static_cast<float>(p)});
          if (p % 1000 == (rank == 1 ? 300 : 700)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
        }
        self.step();
        for (int32_t p = 0; p < kParams; ++p) {
          zero_buffer buffer;
          OK(zero_param_buffer(self.runtime, p, &buffer));
          EXPECT(*static_cast<const float*>(buffer.data) == static_cast<float>(-step * p));
        }
        // Nobody reads on while a peer's next step writes.
        OK(zero_comm_barrier(zero_runtime_comm(self.runtime)));
      }
      self.close();
    });
  }
}

void r041_32_elements_on_64_ranks(void**) {
  Setup setup;
  setup.stage = 3;
  setup.zero = R"(, "overlap_comm": false)";
  ranks::run_threads(64, [&](int32_t rank, const std::string& group) {
    Rank self(rank, 64, group, setup);
    const zero_param_id w = self.add("w", Floats(32, 1));
    self.shard();
    zero_span own;
    OK(zero_param_shard(self.runtime, w, rank, &own));
    EXPECT(rank == 0 ? own.count == 32 : own.count == 0); // the others hold padding only
    zero_buffer loan;
    OK(zero_params_acquire(self.runtime, &w, 1, nullptr, &loan));
    EXPECT(static_cast<const float*>(loan.data)[31] == 1);
    OK(zero_params_release(self.runtime, &w, 1, 0, nullptr));
    self.give(w, Floats(32, static_cast<float>(rank)));
    // The mean of 0 to 63, in all 32 elements.
    EXPECT(near(self.step().grad_norm, 31.5 * std::sqrt(32.0), 1e-15));
    EXPECT(same(self.get(w), Floats(32, -30.5f)));
    self.close();
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(r045_a_buffer_is_not_reused_while_it_is_reduced),
      cmocka_unit_test(r041_32_elements_on_64_ranks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

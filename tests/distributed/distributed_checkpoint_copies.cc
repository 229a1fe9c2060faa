// The copy that a save in the background makes, by several threads, has the bytes of a save that
// makes none: for every kind of master, and parameters that are cut anywhere.
// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>

#include "checkpoint_rank.h"

using namespace checkpoints;
using precision::at_ranks;

namespace {

// Some MiB, of which no part begins or ends at a round number.
const std::vector<size_t> kSizes = {77, 700001, 5, 900003, 31};

struct Kind {
  zero_dtype dtype;
  const char* section;
  const char* libzero;
};
constexpr Kind kKinds[] = {
    {kFp32, "", ""},
    {kBf16, "", ""},
    {kBf16, "", ", \"master_weights\": \"remainder\""},
    {kBf16, ", \"bf16_optimizer_states\": true, \"bf16_master_weights_and_grads\": true", ""},
};

// Behind the header, which has the save's own number.
std::string data_of(const std::string& path, int32_t piece) {
  std::ifstream file(path + "/piece-0000" + std::to_string(piece) + ".zero", std::ios::binary);
  file.seekg(4096);
  return {std::istreambuf_iterator<char>(file), {}};
}

void a_copy_by_several_threads_has_the_bytes_of_a_save_at_once(void**) {
  for (const Kind& kind : kKinds) {
    for (const int32_t ranks : {1, 2}) {
      Setup setup;
      setup.stage = ranks == 1 ? 0 : 2;
      setup.dtype = kind.dtype;
      setup.section = kind.section;
      setup.optimizer = kAdam;
      setup.top = std::string(R"(, "libzero": {"checkpoint_background": true, "threads": 3)") +
                  kind.libzero + "}";
      const std::string now = scratch().fresh(), later = scratch().fresh();
      at_ranks(ranks, setup, [&](Rank& self) {
        for (size_t p = 0; p < kSizes.size(); ++p) {
          Floats values(kSizes[p]);
          for (size_t i = 0; i < kSizes[p]; ++i) values[i] = static_cast<float>(i % 1021 + p) / 512;
          self.add("p" + std::to_string(p), values);
        }
        self.shard();
        for (int32_t step = 0; step < 2; ++step) {
          for (size_t p = kSizes.size(); p-- > 0;) {
            Floats gradient(kSizes[p]);
            for (size_t i = 0; i < kSizes[p]; ++i)
              gradient[i] = static_cast<float>(i % 97 + 1) / 64;
            self.give(static_cast<zero_param_id>(p), gradient);
          }
          self.step();
        }
        save(self, now);
        zero_save_options options = save_options();
        options.in_background = 1;
        OK(zero_checkpoint_save(self.runtime, later.c_str(), &options));
        OK(zero_checkpoint_wait(self.runtime));
        self.close();
      });
      for (int32_t piece = 0; piece < ranks; ++piece) {
        const std::string data = data_of(now, piece);
        assert_true(data.size() > (size_t{4} << 20));
        assert_true(data == data_of(later, piece));
      }
      std::filesystem::remove_all(now);
      std::filesystem::remove_all(later);
    }
  }
}

} // namespace

int main() {
  scratch();
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_copy_by_several_threads_has_the_bytes_of_a_save_at_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// A load that fails when much of it is done is taken back, bit for bit, on the rank that met the
// damage and on the others; and what it needs of memory for that is told and given back.
// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>

#include "checkpoint_rank.h"

using namespace checkpoints;
using precision::at_ranks;

namespace {

// More than one transfer of a piece, on each of two ranks too, and a range that starts in the
// middle of a page, so that the second transfer of one rank's ends in the middle of 32 elements.
constexpr size_t kFirst = 77, kMany = 1100001;
constexpr int32_t kStates = 2;

struct Kind {
  zero_dtype dtype;
  const char* section;
  const char* libzero;
};
constexpr Kind kKinds[] = {
    {kFp32, "", "\"live_parameters\": 2000000"},
    {kBf16, "", "\"live_parameters\": 2000000"},
    {kBf16, "", "\"live_parameters\": 2000000, \"master_weights\": \"remainder\""},
    {kFp16, "", "\"live_parameters\": 2000000"},
};

Setup setup_of(const Kind& kind, int32_t stage, uint64_t budget = 0) {
  Setup setup;
  setup.stage = stage;
  setup.dtype = kind.dtype;
  setup.optimizer = kAdam;
  if (kind.dtype == kFp16) setup.section = ", \"initial_scale_power\": 4";
  setup.top = std::string(", \"libzero\": {") + kind.libzero +
              (budget != 0 ? ", \"memory_budget\": " + std::to_string(budget) : "") + "}";
  return setup;
}

void build(Rank& self, float first) {
  self.add("first", numbered(kFirst, first));
  Floats values(kMany);
  for (size_t i = 0; i < kMany; ++i) values[i] = first + static_cast<float>(i % 1021) / 512;
  self.add("many", values);
  self.shard();
}

// resting: so many elements from the start have no gradient, so that their states stay zero.
void step_once(Rank& self, float scale, size_t resting = 0) {
  Floats gradient(kMany);
  for (size_t i = resting; i < kMany; ++i)
    gradient[i] = scale * static_cast<float>(i % 97 + 1) / 64;
  self.give_scaled(1, gradient);
  self.give_scaled(0, Floats(kFirst, resting == 0 ? scale : 0));
  self.step();
}

// Each halfway between two bf16 numbers, some of which round up and some down: a remainder keeps a
// bit of that beside it, which hardly any other master needs.
Floats halfway() {
  Floats masters(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    const uint32_t bits = 0x3f808000u + static_cast<uint32_t>(i % 4) * 0x10000u;
    std::memcpy(&masters[i], &bits, sizeof(bits));
  }
  return masters;
}

std::vector<Floats> everything(Rank& self) {
  std::vector<Floats> all = self.all_parts(0, kStates);
  for (Floats& part : self.all_parts(1, kStates)) all.push_back(std::move(part));
  all.push_back({static_cast<float>(zero_step_count(self.runtime)),
                 static_cast<float>(zero_loss_scale(self.runtime))});
  return all;
}

// A checkpoint of one step.
std::string saved(const Kind& kind, int32_t stage, int32_t writers = 2) {
  const std::string path = scratch().fresh();
  at_ranks(writers, setup_of(kind, stage), [&](Rank& self) {
    build(self, 1);
    step_once(self, 1);
    save(self, path);
    self.close();
  });
  return path;
}

std::string last_piece(const std::string& path) {
  const std::string second = "piece-00001.zero";
  return std::filesystem::exists(path + "/" + second) ? second : "piece-00000.zero";
}

// A copy whose last byte of data in the last piece is another.
std::string damaged(const std::string& path) {
  const std::string copy = scratch().fresh();
  std::filesystem::copy(path, copy, std::filesystem::copy_options::recursive);
  std::fstream file(copy + "/" + last_piece(copy), std::ios::in | std::ios::out | std::ios::binary);
  uint64_t table_position = 0;
  file.seekg(24);
  file.read(reinterpret_cast<char*>(&table_position), 8);
  const auto last = static_cast<std::streamoff>(table_position) - 1;
  file.seekg(last);
  const int byte = file.get();
  file.seekp(last);
  file.put(static_cast<char>(byte ^ 0x40));
  return copy;
}

zero_memory_info memory_of(Rank& self, zero_memory_use use) {
  zero_memory_info info;
  zero_memory_info_init(&info, sizeof(info));
  OK(zero_memory_usage(self.runtime, ZERO_PLACE_HOST, use, &info));
  return info;
}

// As the plan says it.
uint64_t planned_for_loads(Rank& self) {
  const zero_plan* const plan = zero_runtime_plan(self.runtime);
  uint64_t length = 0;
  zero_plan_text(plan, nullptr, 0, &length);
  std::string text(length + 1, '\0');
  OK(zero_plan_text(plan, text.data(), length + 1, &length));
  const char* const words = "a load of a checkpoint takes up to ";
  const size_t at = text.find(words);
  EXPECT(at != std::string::npos);
  return std::strtoull(text.c_str() + at + std::strlen(words), nullptr, 10);
}

// What has been said of a second reading, since the last time.
bool said_that_it_reads_twice(Rank& self) {
  bool said = false;
  zero_log_level level = 0;
  char text[4096];
  uint64_t length = 0;
  while (zero_log_read(self.runtime, &level, text, sizeof(text), &length) == ZERO_OK) {
    said = said || std::strstr(text, "is read twice") != nullptr;
  }
  return said;
}

// In a new run, and in the middle of training.
void try_it(int32_t ranks, const Setup& setup, const std::string& path, const std::string& bad,
            bool twice, size_t resting = 0) {
  at_ranks(ranks, setup, [&](Rank& self) {
    build(self, 3);
    const std::vector<Floats> fresh = everything(self);
    expect_error(try_load(self, bad), ZERO_ERR_FILE_CORRUPT, {last_piece(bad)});
    EXPECT(same(everything(self), fresh));
    step_once(self, 2, resting);
    step_once(self, -1, resting);
    self.set(1, ZERO_PART_MASTER, halfway());
    const std::vector<Floats> before = everything(self);
    expect_error(try_load(self, bad), ZERO_ERR_FILE_CORRUPT, {last_piece(bad)});
    EXPECT(same(everything(self), before));
    OK(zero_runtime_status(self.runtime));
    // What was taken for it is given back, and was told.
    const zero_memory_info staging = memory_of(self, ZERO_MEMORY_STAGING);
    EXPECT(staging.current <= staging.planned);
    // At stage 0 the gradients' memory is a third of what is needed.
    if (setup.stage == 0) EXPECT((staging.peak > staging.planned) != twice);
    if (twice) EXPECT(staging.peak <= staging.planned);
    EXPECT(staging.peak <= staging.planned + planned_for_loads(self));
    EXPECT(said_that_it_reads_twice(self) == twice);
    // Weights alone do not touch the damage.
    zero_load_options options = load_options();
    options.weights_only = 1;
    load(self, bad, &options);
    EXPECT(same(self.get(1, ZERO_PART_STATE, 1), Floats(kMany, 0)));
    step_once(self, 2, resting);
    load(self, path);
    zero_checkpoint* checkpoint = open(path);
    Floats expected(kMany);
    for (const int32_t index : {-1, 0, 1}) {
      const zero_part part = index < 0 ? ZERO_PART_MASTER : ZERO_PART_STATE;
      OK(zero_checkpoint_read(checkpoint, "many", part, std::max(index, 0), 0, kMany,
                              expected.data(), 4 * kMany));
      EXPECT(same(self.get(1, part, std::max(index, 0)), expected));
    }
    zero_checkpoint_destroy(checkpoint);
    EXPECT(zero_step_count(self.runtime) == 1);
    step_once(self, 1);
    self.close();
  });
}

void a_load_that_fails_late_is_taken_back_bit_for_bit(void**) {
  int32_t number = 0;
  for (const Kind& kind : kKinds) {
    for (int32_t stage = 0; stage <= 3; ++stage, ++number) {
      // Each kind at one stage, each stage with one kind; all of them where there is time.
      if (!ranks::full_tier() && number % 5 != 0) continue;
      const std::string path = saved(kind, stage), bad = damaged(path);
      for (const int32_t count : {2, 3}) {
        try_it(count, setup_of(kind, stage), path, bad, /*twice=*/false);
      }
      std::filesystem::remove_all(path);
      std::filesystem::remove_all(bad);
    }
  }
}

// What a transfer of one piece ends with and the next begins with lies in one word, noted twice.
void a_word_of_ties_that_two_transfers_share_is_taken_back(void**) {
  const Kind& kind = kKinds[2];
  const std::string path = saved(kind, 1, 1), bad = damaged(path);
  try_it(1, setup_of(kind, 1), path, bad, /*twice=*/false);
}

// A budget that the plan fills.
void load_without_memory(size_t resting) {
  const std::string path = saved(kKinds[0], 0), bad = damaged(path);
  for (const int32_t count : {2, 3}) {
    const std::string total = scratch().fresh();
    at_ranks(count, setup_of(kKinds[0], 0), [&](Rank& self) {
      build(self, 3);
      if (self.rank == 0) std::ofstream(total) << memory_of(self, ZERO_MEMORY_TOTAL).planned;
      self.close();
    });
    uint64_t budget = 0;
    std::ifstream(total) >> budget;
    assert_true(budget > 0);
    try_it(count, setup_of(kKinds[0], 0, budget), path, bad, /*twice=*/true, resting);
  }
}

void without_memory_to_take_it_back_from_everything_is_read_twice(void**) {
  load_without_memory(0);
}

// States that begin with zeros are taken for zeros: what the gradients' memory does not hold is
// noticed when the parameters are in their place already.
void memory_that_ends_in_the_middle_of_a_load_takes_nothing_away(void**) {
  load_without_memory(70000);
}

} // namespace

int main() {
  scratch();
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_load_that_fails_late_is_taken_back_bit_for_bit),
      cmocka_unit_test(a_word_of_ties_that_two_transfers_share_is_taken_back),
      cmocka_unit_test(without_memory_to_take_it_back_from_everything_is_read_twice),
      cmocka_unit_test(memory_that_ends_in_the_middle_of_a_load_takes_nothing_away),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

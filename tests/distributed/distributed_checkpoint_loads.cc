// Strict loading: what does not fit is listed, what may be left out is left out, and a refusal
// changes nothing on any rank.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <barrier>
#include <fstream>

#include "checkpoint_rank.h"

using namespace checkpoints;
using precision::at_ranks;
using precision::kSgd;

namespace {

Setup adam(int32_t stage) {
  Setup setup;
  setup.stage = stage;
  setup.dtype = kFp32;
  setup.optimizer = kAdam;
  return setup;
}

// "a" 12, "b" 3x4, "c" 5: after one step.
const std::string& saved() {
  static std::string path;
  if (!path.empty()) return path;
  path = scratch().fresh();
  at_ranks(2, adam(2), [&](Rank& self) {
    self.add("a", numbered(12, 0));
    self.add("b", {3, 4}, numbered(12, 100), kFp32);
    self.add("c", numbered(5, 200));
    self.shard();
    for (zero_param_id p = 3; p-- > 0;) self.give(p, Floats(p == 2 ? 5 : 12, 1));
    self.step();
    save(self, path);
    self.close();
  });
  return path;
}

// A model that build adds to is refused with these words, and is what it was.
void check_refused(const Setup& setup, const std::function<void(Rank&)>& build,
                   const std::vector<std::string>& words,
                   zero_load_options options = load_options()) {
  const std::string path = saved();
  at_ranks(3, setup, [&](Rank& self) {
    build(self);
    self.shard();
    const zero_param_id params = std::min(zero_param_count(self.runtime), 3);
    std::vector<Floats> before;
    for (zero_param_id p = 0; p < params; ++p) before.push_back(self.get(p));
    expect_error(try_load(self, path, &options), ZERO_ERR_FILE_MISMATCH, words);
    for (zero_param_id p = 0; p < params; ++p) {
      EXPECT(same(self.get(p), before[static_cast<size_t>(p)]));
    }
    EXPECT(zero_step_count(self.runtime) == 0);
    OK(zero_runtime_status(self.runtime));
    self.close();
  });
}

void add_all(Rank& self, float first) {
  self.add("a", numbered(12, first));
  self.add("b", {3, 4}, numbered(12, first), kFp32);
  self.add("c", numbered(5, first));
}

void missing_extra_and_renamed_parameters_are_listed(void**) {
  check_refused(adam(1),
                [](Rank& self) {
                  self.add("a", Floats(12, 7));
                  self.add("b", {3, 4}, Floats(12, 7), kFp32);
                  self.add("renamed", Floats(5, 7));
                  self.add("new", Floats(2, 7));
                },
                {"2 missing in it", "\"renamed\" (renamed? \"c\" there has its shape)", "\"new\"",
                 "1 not in the model: \"c\""});
}

void reshaped_parameters_are_listed(void**) {
  check_refused(adam(3),
                [](Rank& self) {
                  self.add("a", {3, 4}, Floats(12, 7), kFp32);
                  self.add("b", {4, 3}, Floats(12, 7), kFp32);
                  self.add("c", Floats(6, 7));
                },
                {"3 of another shape", "\"a\" is [12] there, [3, 4] here",
                 "\"b\" is [3, 4] there, [4, 3] here", "\"c\" is [5] there, [6] here"});
  // Not even for weights alone, nor where parameters may be missing.
  zero_load_options options = load_options();
  options.weights_only = options.allow_missing = options.allow_extra = 1;
  check_refused(
      adam(0),
      [](Rank& self) {
        self.add("a", {2, 6}, Floats(12, 7), kFp32);
      },
      {"1 of another shape: \"a\""}, options);
}

void a_long_list_is_cut_and_counted(void**) {
  check_refused(adam(0),
                [](Rank& self) {
                  add_all(self, 7);
                  for (int32_t i = 0; i < 40; ++i) self.add("x" + std::to_string(i), Floats(1, 1));
                },
                {"40 missing in it", "\"x0\"", "and 32 more"});
}

void ties_are_the_same_ties(void**) {
  check_refused(adam(2),
                [](Rank& self) {
                  add_all(self, 7);
                  zero_param_options options;
                  zero_param_options_init(&options, sizeof(options));
                  options.tied_to = 0;
                  const int64_t shape[] = {12};
                  zero_param_id id = -1;
                  OK(zero_param_add(self.model, "d", shape, 1, &options, &id));
                },
                {"1 missing in it: \"d\""});
}

void another_optimizer_is_refused(void**) {
  Setup lion = adam(2);
  lion.optimizer = R"({"type": "Lion", "params": {"lr": 0.1}})";
  check_refused(lion, [](Rank& self) { add_all(self, 7); }, {"\"adam\" with 2 states", "\"lion\""});
  Setup lamb = adam(2);
  lamb.optimizer = R"({"type": "Lamb", "params": {"lr": 0.1}})";
  check_refused(lamb, [](Rank& self) { add_all(self, 7); }, {"\"adam\"", "\"lamb\""});
}

void other_groups_are_refused(void**) {
  check_refused(adam(2),
                [](Rank& self) {
                  zero_group_id group = -1;
                  OK(zero_group_add(self.model, "g", nullptr, &group));
                  add_all(self, 7);
                },
                {"it has 1 parameter groups, the model 2"});
}

void a_parameter_that_was_frozen_has_no_state_to_bring(void**) {
  const std::string path = scratch().fresh();
  const auto build = [](Rank& self, bool frozen) {
    zero_group_options options;
    zero_group_options_init(&options, sizeof(options));
    options.frozen = 1;
    zero_group_id group = -1;
    OK(zero_group_add(self.model, "frozen", &options, &group));
    self.add("w", numbered(9, 1));
    self.add("f", {9}, numbered(9, 50), kFp32, frozen ? group : 0);
    self.shard();
  };
  at_ranks(2, adam(3), [&](Rank& self) {
    build(self, true);
    save(self, path);
    self.close();
  });
  at_ranks(2, adam(3), [&](Rank& self) {
    build(self, false);
    expect_error(try_load(self, path), ZERO_ERR_FILE_MISMATCH, {"\"f\" is frozen there"});
    self.close();
  });
  at_ranks(3, adam(1), [&](Rank& self) { // frozen is loaded whole
    build(self, true);
    OK(zero_param_set(self.runtime, 1, ZERO_PART_VALUE, 0, Floats(9, 0).data(), 36));
    load(self, path);
    EXPECT(same(self.get(1), numbered(9, 50)));
    self.close();
  });
}

void subsets_are_loaded_where_they_are_allowed(void**) {
  const std::string path = saved();
  zero_load_options options = load_options();
  options.allow_missing = options.allow_extra = 1;
  for (int32_t stage = 0; stage <= 3; ++stage) {
    at_ranks(2, adam(stage), [&](Rank& self) {
      self.add("b", {3, 4}, Floats(12, 7), kFp32);
      self.add("mine", numbered(70, 7));
      self.shard();
      zero_load_options only = options;
      only.allow_missing = 0;
      expect_error(try_load(self, path, &only), ZERO_ERR_FILE_MISMATCH, {"missing", "\"mine\""});
      only = options;
      only.allow_extra = 0;
      expect_error(try_load(self, path, &only), ZERO_ERR_FILE_MISMATCH, {"\"a\", \"c\""});
      load(self, path, &options);
      zero_checkpoint* checkpoint = open(path);
      Floats expected(12);
      OK(zero_checkpoint_read(checkpoint, "b", ZERO_PART_VALUE, 0, 0, 12, expected.data(), 48));
      EXPECT(same(self.get(0), expected));
      OK(zero_checkpoint_read(checkpoint, "b", ZERO_PART_STATE, 1, 0, 12, expected.data(), 48));
      EXPECT(same(self.get(0, ZERO_PART_STATE, 1), expected));
      zero_checkpoint_destroy(checkpoint);
      EXPECT(same(self.get(1), numbered(70, 7)));
      EXPECT(zero_step_count(self.runtime) == 1);
      self.close();
    });
  }
}

void weights_alone_come_from_a_whole_checkpoint_too(void**) {
  const std::string path = saved();
  Setup setup = adam(2);
  setup.optimizer = kSgd;
  at_ranks(3, setup, [&](Rank& self) {
    add_all(self, 7);
    self.shard();
    zero_load_options options = load_options();
    options.weights_only = 1;
    load(self, path, &options);
    zero_checkpoint* checkpoint = open(path);
    Floats expected(5);
    OK(zero_checkpoint_read(checkpoint, "c", ZERO_PART_MASTER, 0, 0, 5, expected.data(), 20));
    zero_checkpoint_destroy(checkpoint);
    EXPECT(same(self.get(2), expected));
    EXPECT(zero_step_count(self.runtime) == 0);
    self.close();
  });
}

// One rank finds its file damaged: all ranks say so, with its number, and have changed nothing.
void damage_that_one_rank_meets_is_the_same_error_on_all(void**) {
  const std::string path = scratch().fresh();
  at_ranks(2, adam(2), [&](Rank& self) {
    self.add("a", numbered(200, 0));
    self.shard();
    save(self, path);
    self.close();
  });
  {
    std::fstream file(path + "/piece-00001.zero", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 64);
    file.put('\x55');
  }
  at_ranks(2, adam(2), [&](Rank& self) {
    const zero_param_id a = self.add("a", Floats(200, 7));
    self.shard();
    expect_error(try_load(self, path), ZERO_ERR_FILE_CORRUPT, {"piece-00001.zero", "[4096, "});
    zero_error_info info;
    zero_error_info_init(&info, sizeof(info));
    zero_last_error(&info);
    EXPECT(info.rank == 1 || self.rank == 1);
    EXPECT(same(self.get(a), Floats(200, 7)));
    EXPECT(same(self.get(a, ZERO_PART_STATE, 0), Floats(200, 0)));
    self.give(a, Floats(200, 1));
    self.step();
    self.close();
  });
}

// A remainder keeps the ties of 32 elements in one word; a section of the file may end inside it.
void ties_of_remainder_masters_come_back_wherever_a_section_ends(void**) {
  constexpr size_t kMany = 1100000; // beyond a section and a buffer of the writer
  Setup setup;
  setup.dtype = kBf16;
  setup.stage = 1;
  setup.top = ", \"libzero\": {\"master_weights\": \"remainder\"}";
  Floats masters(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    // Halfway between two bf16 numbers, which rounds up or down; or just anything.
    const uint32_t tie = 0x3f808000u + static_cast<uint32_t>(i % 4) * 0x10000u;
    const uint32_t any = static_cast<uint32_t>(i) * 2654435761u;
    const uint32_t bits = i % 3 == 0 ? tie : 0x3f800000u + (any >> 12);
    std::memcpy(&masters[i], &bits, sizeof(bits));
  }
  const std::string path = scratch().fresh();
  const auto build = [&](Rank& self) {
    self.add("first", numbered(16, 1)); // so that the next one starts at a half block
    const zero_param_id w = self.add("w", Floats(kMany, 1));
    self.shard();
    return w;
  };
  at_ranks(1, setup, [&](Rank& self) {
    const zero_param_id w = build(self);
    self.set(w, ZERO_PART_MASTER, masters);
    EXPECT(same(self.master(w), masters));
    save(self, path);
    self.close();
  });
  for (const int32_t ranks : {1, 3}) {
    at_ranks(ranks, setup, [&](Rank& self) {
      const zero_param_id w = build(self);
      load(self, path);
      EXPECT(same(self.master(w), masters));
      self.close();
    });
  }
}

// A rank that opened another checkpoint than the others.
void ranks_that_load_different_checkpoints_are_told(void**) {
  const std::string paths[] = {scratch().fresh(), scratch().fresh()};
  at_ranks(2, adam(1), [&](Rank& self) {
    self.add("a", numbered(20, 0));
    self.shard();
    save(self, paths[0]);
    save(self, paths[1]);
    const zero_status status = try_load(self, paths[self.rank]);
    expect_error(status, ZERO_ERR_COMM_MISMATCH, {"checkpoints to load"});
  });
}

// Two threads' communicator of which rank 1 may receive other values than rank 0 sent.
struct Wire {
  std::barrier<> meeting{2};
  const char* sent[2] = {nullptr, nullptr};
  std::atomic<bool> damages{false};
};
struct End {
  Wire* wire;
  int32_t rank;
};

// What libzero says to itself is shorter than the values.
constexpr uint64_t kValueBytes = 4096;

template <bool kToAll>
zero_status exchange(void* user_data, int32_t, const void* send, void* recv, uint64_t bytes,
                     zero_place, void*) {
  const End& self = *static_cast<End*>(user_data);
  self.wire->sent[self.rank] = static_cast<const char*>(send);
  self.wire->meeting.arrive_and_wait();
  auto* const to = static_cast<char*>(recv);
  for (int32_t from = 0; from < 2; ++from) {
    const uint64_t offset = kToAll ? static_cast<uint64_t>(self.rank) * bytes : 0;
    std::memmove(to + static_cast<uint64_t>(from) * bytes, self.wire->sent[from] + offset, bytes);
  }
  if (self.wire->damages && self.rank == 1 && bytes >= kValueBytes) to[bytes / 2] ^= 1;
  self.wire->meeting.arrive_and_wait();
  return ZERO_OK;
}

zero_comm* comm_of(End* end) {
  zero_comm_callbacks callbacks;
  zero_comm_callbacks_init(&callbacks, sizeof(callbacks));
  callbacks.channels = 1;
  callbacks.all_gather = &exchange<false>;
  callbacks.all_to_all = &exchange<true>;
  zero_comm* comm = nullptr;
  OK(zero_comm_create_user(end->rank, 2, &callbacks, end, &comm));
  return comm;
}

// What every rank holds whole has to be the same everywhere when a load has ended.
void values_that_differ_behind_a_load_are_told_by_name(void**) {
  const std::string path = scratch().fresh();
  Wire wire;
  End ends[2] = {{&wire, 0}, {&wire, 1}};
  ranks::run_threads(2, [&](int32_t rank, const std::string& group) {
    Setup setup = adam(2);
    setup.comm = comm_of(&ends[rank]);
    Rank self(rank, 2, group, setup);
    self.add("sound", numbered(40, 0));
    self.add("differs", numbered(5000, 0));
    self.shard();
    save(self, path);
    load(self, path);
    OK(zero_comm_barrier(setup.comm));
    wire.damages = true;
    expect_error(try_load(self, path), ZERO_ERR_COMM_MISMATCH, {"loaded parameters", "differs"});
    OK(zero_comm_barrier(setup.comm));
    wire.damages = false;
  });
}

} // namespace

int main() {
  scratch();
  const CMUnitTest tests[] = {
      cmocka_unit_test(missing_extra_and_renamed_parameters_are_listed),
      cmocka_unit_test(reshaped_parameters_are_listed),
      cmocka_unit_test(a_long_list_is_cut_and_counted),
      cmocka_unit_test(ties_are_the_same_ties),
      cmocka_unit_test(another_optimizer_is_refused),
      cmocka_unit_test(other_groups_are_refused),
      cmocka_unit_test(a_parameter_that_was_frozen_has_no_state_to_bring),
      cmocka_unit_test(subsets_are_loaded_where_they_are_allowed),
      cmocka_unit_test(weights_alone_come_from_a_whole_checkpoint_too),
      cmocka_unit_test(damage_that_one_rank_meets_is_the_same_error_on_all),
      cmocka_unit_test(ties_of_remainder_masters_come_back_wherever_a_section_ends),
      cmocka_unit_test(ranks_that_load_different_checkpoints_are_told),
      cmocka_unit_test(values_that_differ_behind_a_load_are_told_by_name),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Saving: when it may be asked for, what stays and what goes, the host's own blobs, and the
// background.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <filesystem>

#include "checkpoint_rank.h"

using namespace checkpoints;
using precision::at_ranks;

namespace {

constexpr const char* kBackground = ", \"libzero\": {\"checkpoint_background\": true}";

Setup adam(int32_t stage, const char* top = "") {
  Setup setup;
  setup.stage = stage;
  setup.dtype = kFp32;
  setup.optimizer = kAdam;
  setup.top = top;
  return setup;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

int64_t step_in(const std::string& path) {
  zero_checkpoint* checkpoint = open(path);
  zero_checkpoint_info info;
  zero_checkpoint_info_init(&info, sizeof(info));
  OK(zero_checkpoint_describe(checkpoint, &info));
  OK(zero_checkpoint_verify(checkpoint));
  zero_checkpoint_destroy(checkpoint);
  return info.step;
}

void step_once(Rank& self, zero_param_id param, size_t count) {
  self.give(param, Floats(count, 1));
  self.step();
}

void wait_until_done(Rank& self) {
  for (int32_t done = 0; done == 0;) {
    OK(zero_checkpoint_poll(self.runtime, &done));
    usleep(1000);
  }
}

void a_save_is_only_had_between_two_steps(void**) {
  Setup setup = adam(2);
  setup.top = ", \"gradient_accumulation_steps\": 2";
  const std::string path = scratch().fresh();
  at_ranks(2, setup, [&](Rank& self) {
    const zero_param_id w = self.add("w", numbered(40, 0));
    self.shard();
    const auto refused = [&](const char* word) {
      expect_error(zero_checkpoint_save(self.runtime, path.c_str(), nullptr),
                   ZERO_ERR_INVALID_STATE, {word});
    };
    self.give(w, Floats(40, 1));
    refused("micro-batch 1 of a step is open");
    self.micro_end();
    refused("micro-batch 1 of a step is done");
    self.give(w, Floats(40, 1));
    self.micro_end();
    refused("micro-batch 2");
    self.step();
    zero_buffer buffer;
    OK(zero_params_acquire(self.runtime, &w, 1, nullptr, &buffer));
    refused("on loan: \"w\"");
    OK(zero_params_release(self.runtime, &w, 1, 0, nullptr));
    self.give(w, Floats(40, 1));
    OK(zero_grads_clear(self.runtime, nullptr));
    save(self, path);
    self.close();
  });
  assert_int_equal(step_in(path), 1);
}

void what_is_there_is_replaced_only_where_it_is_asked_for(void**) {
  const std::string folder = scratch().fresh(), path = folder + "/c";
  at_ranks(2, adam(1), [&](Rank& self) {
    const zero_param_id w = self.add("w", numbered(40, 0));
    self.shard();
    save(self, path);
    step_once(self, w, 40);
    expect_error(zero_checkpoint_save(self.runtime, path.c_str(), nullptr),
                 ZERO_ERR_INVALID_ARGUMENT, {path, "exists already"});
    if (self.rank == 0) EXPECT(step_in(path) == 0);
    zero_save_options options = save_options();
    options.replace = 1;
    OK(zero_checkpoint_save(self.runtime, path.c_str(), &options));
    if (self.rank == 0) EXPECT(step_in(path) == 1);
    // Somebody's folder is never replaced.
    const std::string other = folder + "/notes";
    if (self.rank == 0) std::filesystem::create_directory(other);
    expect_error(zero_checkpoint_save(self.runtime, other.c_str(), &options),
                 ZERO_ERR_INVALID_ARGUMENT, {"no checkpoint"});
    self.close();
  });
  assert_true(names_in(folder) == (std::vector<std::string>{"c", "notes"}));
}

void old_checkpoints_go_and_the_latest_is_named(void**) {
  for (const bool background : {false, true}) {
    const std::string folder = scratch().fresh();
    at_ranks(2, adam(2, kBackground), [&](Rank& self) {
      const zero_param_id w = self.add("w", numbered(40, 0));
      self.shard();
      zero_save_options options = save_options();
      options.keep_last = 2;
      options.keep_every = 4;
      options.latest = "latest";
      options.in_background = background ? 1 : 0;
      for (int32_t step = 1; step <= 7; ++step) {
        step_once(self, w, 40);
        const std::string path = folder + "/step-" + std::to_string(step);
        OK(zero_checkpoint_save(self.runtime, path.c_str(), &options));
      }
      OK(zero_checkpoint_wait(self.runtime));
      self.close();
    });
    assert_true(names_in(folder) ==
                (std::vector<std::string>{"latest", "step-4", "step-6", "step-7"}));
    assert_int_equal(step_in(folder), 7);
    assert_int_equal(step_in(folder + "/latest"), 7);
    // A run that was loaded goes on with the same list; a new one leaves it alone.
    at_ranks(3, adam(1), [&](Rank& self) {
      self.add("w", numbered(40, 0));
      self.shard();
      zero_save_options options = save_options();
      options.keep_last = 1;
      OK(zero_checkpoint_save(self.runtime, (folder + "/of-a-new-run").c_str(), &options));
      self.close();
    });
    assert_int_equal(names_in(folder).size(), 5);
    at_ranks(3, adam(1), [&](Rank& self) {
      const zero_param_id w = self.add("w", numbered(40, 0));
      self.shard();
      load(self, folder);
      step_once(self, w, 40);
      zero_save_options options = save_options();
      options.keep_last = 1;
      options.latest = "latest";
      OK(zero_checkpoint_save(self.runtime, (folder + "/step-8").c_str(), &options));
      self.close();
    });
    assert_true(names_in(folder) == (std::vector<std::string>{"latest", "of-a-new-run", "step-8"}));
  }
}

void what_the_host_put_comes_back_by_key_and_rank(void**) {
  for (const bool background : {false, true}) {
    const std::string path = scratch().fresh(), later = scratch().fresh();
    at_ranks(3, adam(3, kBackground), [&](Rank& self) {
      self.add("w", numbered(40, 0));
      self.shard();
      const std::string rng(10000 + static_cast<size_t>(self.rank),
                            static_cast<char>('a' + self.rank));
      OK(zero_checkpoint_put(self.runtime, "rng", "old", 3));
      OK(zero_checkpoint_put(self.runtime, "rng", rng.data(), rng.size()));
      if (self.rank == 1) OK(zero_checkpoint_put(self.runtime, "only one", "x", 1));
      zero_save_options options = save_options();
      options.in_background = background ? 1 : 0;
      OK(zero_checkpoint_save(self.runtime, path.c_str(), &options));
      // The save in flight has its own.
      OK(zero_checkpoint_put(self.runtime, "rng", std::string(rng.size(), 'z').data(), rng.size()));
      OK(zero_checkpoint_put(self.runtime, "rng", nullptr, 0));
      OK(zero_checkpoint_wait(self.runtime));
      OK(zero_checkpoint_save(self.runtime, later.c_str(), &options));
      self.close();
    });
    zero_checkpoint* checkpoint = open(path);
    for (int32_t rank = 0; rank < 3; ++rank) {
      uint64_t count = 0;
      OK(zero_checkpoint_get(checkpoint, rank, "rng", nullptr, 0, &count));
      assert_int_equal(count, 10000 + rank);
      std::string bytes(count, '\0');
      count = 0;
      expect_error(zero_checkpoint_get(checkpoint, rank, "rng", bytes.data(), 9999, &count),
                   ZERO_ERR_BUFFER_TOO_SMALL, {"9999"});
      assert_int_equal(count, 10000 + rank);
      OK(zero_checkpoint_get(checkpoint, rank, "rng", bytes.data(), bytes.size(), &count));
      assert_true(bytes == std::string(count, static_cast<char>('a' + rank)));
    }
    uint64_t count = 77;
    OK(zero_checkpoint_get(checkpoint, 1, "only one", nullptr, 0, &count));
    assert_int_equal(count, 1);
    expect_error(zero_checkpoint_get(checkpoint, 0, "only one", nullptr, 0, &count),
                 ZERO_ERR_NOT_FOUND, {"rank 0", "\"only one\""});
    zero_checkpoint_destroy(checkpoint);
    checkpoint = open(later);
    expect_error(zero_checkpoint_get(checkpoint, 0, "rng", nullptr, 0, &count), ZERO_ERR_NOT_FOUND,
                 {"\"rng\""});
    zero_checkpoint_destroy(checkpoint);
  }
}

void the_background_needs_memory_that_the_plan_lists(void**) {
  const std::string path = scratch().fresh();
  zero_save_options options = save_options();
  options.in_background = 1;
  ranks::SharedArray<uint64_t> planned(2);
  for (const bool asked : {false, true}) {
    at_ranks(2, adam(2, asked ? kBackground : ""), [&](Rank& self) {
      self.add("w", numbered(100000, 0));
      self.shard();
      zero_memory_info info;
      zero_memory_info_init(&info, sizeof(info));
      OK(zero_memory_usage(self.runtime, ZERO_PLACE_HOST, ZERO_MEMORY_STAGING, &info));
      if (self.rank == 0) planned[asked ? 1 : 0] = info.planned;
      const zero_status status = zero_checkpoint_save(self.runtime, path.c_str(), &options);
      if (asked) {
        OK(status);
      } else {
        expect_error(status, ZERO_ERR_INVALID_STATE, {"checkpoint_background"});
      }
      zero_memory_info after;
      zero_memory_info_init(&after, sizeof(after));
      OK(zero_memory_usage(self.runtime, ZERO_PLACE_HOST, ZERO_MEMORY_STAGING, &after));
      EXPECT(after.current == info.current);
      self.close();
    });
  }
  // Half of a master and two moments, and some pages.
  const uint64_t copy = 100000 / 2 * 12;
  assert_in_range(planned[1] - planned[0], copy, copy + 5 * 4096);
}

void one_save_is_in_flight_and_the_next_one_waits_for_it(void**) {
  const std::string first = scratch().fresh(), second = scratch().fresh();
  at_ranks(3, adam(3, kBackground), [&](Rank& self) {
    const zero_param_id w = self.add("w", numbered(5000, 0));
    self.shard();
    int32_t done = 0;
    OK(zero_checkpoint_poll(self.runtime, &done));
    EXPECT(done == 1);
    zero_save_options options = save_options();
    options.in_background = 1;
    OK(zero_checkpoint_save(self.runtime, first.c_str(), &options));
    step_once(self, w, 5000);
    OK(zero_checkpoint_save(self.runtime, second.c_str(), &options));
    EXPECT(step_in(first) == 0); // whole by now
    wait_until_done(self);
    EXPECT(step_in(second) == 1);
    OK(zero_checkpoint_wait(self.runtime));
    OK(zero_checkpoint_wait(self.runtime)); // nothing to wait for
    self.close();
  });
}

// The name of `latest` is a folder: the save itself is whole, naming it fails.
void an_error_in_the_background_is_told_by_poll_wait_and_the_next_save(void**) {
  const std::string folder = scratch().fresh();
  std::filesystem::create_directories(folder + "/taken");
  for (const int32_t how : {0, 1, 2}) {
    at_ranks(3, adam(1, kBackground), [&](Rank& self) {
      const zero_param_id w = self.add("w", numbered(500, 0));
      self.shard();
      zero_save_options options = save_options();
      options.in_background = 1;
      options.latest = "taken";
      const std::string path = folder + "/c" + std::to_string(how);
      OK(zero_checkpoint_save(self.runtime, path.c_str(), &options));
      step_once(self, w, 500);
      if (how == 0) {
        zero_status status = ZERO_OK;
        for (int32_t done = 0; status == ZERO_OK;) {
          status = zero_checkpoint_poll(self.runtime, &done);
          EXPECT(done == 0);
          usleep(1000);
        }
        expect_error(status, ZERO_ERR_IO, {"taken"});
        int32_t done = 0;
        expect_error(zero_checkpoint_poll(self.runtime, &done), ZERO_ERR_IO, {"taken"});
        expect_error(zero_checkpoint_wait(self.runtime), ZERO_ERR_IO, {"taken"});
      } else if (how == 1) {
        expect_error(zero_checkpoint_wait(self.runtime), ZERO_ERR_IO, {"taken"});
      } else {
        options.latest = nullptr;
        const std::string next = path + "-next";
        expect_error(zero_checkpoint_save(self.runtime, next.c_str(), &options), ZERO_ERR_IO,
                     {"taken"});
      }
      // It is over: training and saving go on.
      int32_t done = 0;
      OK(zero_checkpoint_poll(self.runtime, &done));
      EXPECT(done == 1);
      step_once(self, w, 500);
      options.latest = nullptr;
      OK(zero_checkpoint_save(self.runtime, (path + "-after").c_str(), &options));
      self.close();
    });
    assert_int_equal(step_in(folder + "/c" + std::to_string(how) + "-after"), 2);
  }
  for (const std::string& name : names_in(folder)) assert_true(name[0] != '.');
}

// The runtime ends with a save in flight: nothing is left that looks whole and is not.
void a_runtime_that_is_destroyed_gives_its_save_up(void**) {
  const std::string folder = scratch().fresh();
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/c";
  at_ranks(2, adam(2, kBackground), [&](Rank& self) {
    self.add("w", numbered(300000, 0));
    self.shard();
    zero_save_options options = save_options();
    options.in_background = 1;
    OK(zero_checkpoint_save(self.runtime, path.c_str(), &options));
  });
  zero_checkpoint* checkpoint = nullptr;
  const zero_status status = zero_checkpoint_open(path.c_str(), &checkpoint);
  if (status == ZERO_OK) {
    OK(zero_checkpoint_verify(checkpoint));
    zero_checkpoint_destroy(checkpoint);
  } else {
    assert_int_equal(status, ZERO_ERR_NOT_FOUND);
  }
}

// Closing waits for the save and says how it ended.
void closing_waits_for_the_save_in_flight(void**) {
  const std::string folder = scratch().fresh();
  std::filesystem::create_directories(folder + "/taken");
  at_ranks(2, adam(2, kBackground), [&](Rank& self) {
    self.add("w", numbered(300000, 0));
    self.shard();
    zero_save_options options = save_options();
    options.in_background = 1;
    OK(zero_checkpoint_save(self.runtime, (folder + "/c").c_str(), &options));
    self.close();
    if (self.rank == 0) EXPECT(step_in(folder + "/c") == 0);
  });
  at_ranks(2, adam(2, kBackground), [&](Rank& self) {
    self.add("w", numbered(3000, 0));
    self.shard();
    zero_save_options options = save_options();
    options.in_background = 1;
    options.latest = "taken";
    OK(zero_checkpoint_save(self.runtime, (folder + "/d").c_str(), &options));
    expect_error(zero_runtime_close(self.runtime), ZERO_ERR_IO, {"taken"});
  });
}

void ranks_that_save_under_different_names_are_told(void**) {
  const std::string path = scratch().fresh();
  at_ranks(2, adam(1), [&](Rank& self) {
    self.add("w", numbered(40, 0));
    self.shard();
    const std::string mine = path + std::to_string(self.rank);
    expect_error(zero_checkpoint_save(self.runtime, mine.c_str(), nullptr), ZERO_ERR_COMM_MISMATCH,
                 {path + "0", path + "1"});
  });
}

void wrong_options_are_refused_by_name(void**) {
  const std::string path = scratch().fresh();
  at_ranks(1, adam(0), [&](Rank& self) {
    self.add("w", numbered(40, 0));
    self.shard();
    const auto refused = [&](auto change, const char* word) {
      zero_save_options options = save_options();
      change(options);
      expect_error(zero_checkpoint_save(self.runtime, path.c_str(), &options),
                   ZERO_ERR_INVALID_ARGUMENT, {word});
    };
    refused([](zero_save_options& o) { o.keep_last = -1; }, "keep_last");
    refused([](zero_save_options& o) { o.keep_every = -1; }, "keep_every");
    refused([](zero_save_options& o) { o.latest = "a/b"; }, "latest");
    refused([](zero_save_options& o) { o.latest = ".."; }, "latest");
    expect_error(zero_checkpoint_save(self.runtime, "", nullptr), ZERO_ERR_INVALID_ARGUMENT,
                 {"path"});
    expect_error(zero_checkpoint_put(self.runtime, "", "x", 1), ZERO_ERR_INVALID_ARGUMENT, {"key"});
    self.close();
  });
}

} // namespace

int main() {
  scratch();
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_save_is_only_had_between_two_steps),
      cmocka_unit_test(what_is_there_is_replaced_only_where_it_is_asked_for),
      cmocka_unit_test(old_checkpoints_go_and_the_latest_is_named),
      cmocka_unit_test(what_the_host_put_comes_back_by_key_and_rank),
      cmocka_unit_test(the_background_needs_memory_that_the_plan_lists),
      cmocka_unit_test(one_save_is_in_flight_and_the_next_one_waits_for_it),
      cmocka_unit_test(an_error_in_the_background_is_told_by_poll_wait_and_the_next_save),
      cmocka_unit_test(a_runtime_that_is_destroyed_gives_its_save_up),
      cmocka_unit_test(closing_waits_for_the_save_in_flight),
      cmocka_unit_test(ranks_that_save_under_different_names_are_told),
      cmocka_unit_test(wrong_options_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

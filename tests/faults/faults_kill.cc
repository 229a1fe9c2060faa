// Real kills: ranks train and save until SIGKILL at a random moment, then new ones go on from what
// is left.  Every checkpoint that can be seen is whole, none is lost but what may be deleted, and
// the run that was killed so often gets where an undisturbed one gets.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <random>

#include "fault_help.h"
#include "saved_runs.h"

using faults::kRanks;
using faults::OwnFolder;
using faults::State;

namespace {

// Each step is saved: odd ones beside the others (the newest three stay), even ones over "last";
// some in the background.
void train_and_save(faults::SavingRank* self, const std::string& root) {
  for (;;) {
    self->train_to(self->step() + 1);
    const bool background = self->step() % 3 == 0;
    if (self->step() % 2 == 1) {
      // It may be there: its save died between its name and the pointer.
      OK(self->save(root + "/ckpt-" + std::to_string(self->step()), {true, background, 3, true}));
    } else {
      OK(self->save(root + "/last", {true, background, 0, false}));
    }
  }
}

// The ranks of one life: from the pointer on, if there is one, until they are killed.
void live_and_die(int64_t life, const std::string& root, std::mt19937_64* random) {
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  const std::string group = ranks::fresh_group();
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      faults::SavingRank self(rank, kRanks, group, static_cast<int32_t>(life % 4));
      if (std::filesystem::exists(root + "/latest")) OK(self.load(root));
      EXPECT(write(ready[1], "r", 1) == 1);
      train_and_save(&self, root);
      _exit(0);
    }
    pids.push_back(pid);
  }
  char byte = 0;
  for (int32_t rank = 0; rank < kRanks; ++rank) assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  const auto sleep_up_to = [&](uint64_t microseconds) {
    usleep(static_cast<useconds_t>((*random)() % (microseconds + 1)));
  };
  sleep_up_to(life % 5 == 0 ? 100000 : 20000);
  if ((*random)() % 2 == 0) std::swap(pids[0], pids[1]);
  for (const pid_t pid : pids) {
    kill(pid, SIGKILL);
    if ((*random)() % 2 == 0) sleep_up_to(2000); // the other one may notice, or not
  }
  for (size_t i = 0; i < pids.size(); ++i) {
    int status = 0;
    waitpid(pids[i], &status, 0);
    // It lived until it was killed; the other one may have seen that first, and ended by itself.
    if (i == 0) assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
}

int64_t step_at(const std::string& path) {
  State state;
  int64_t step = -1;
  const faults::Outcome read = faults::read_state(path, &state, &step);
  if (read.status != ZERO_OK) print_error("%s: %s\n", path.c_str(), read.text.c_str());
  assert_int_equal(read.status, ZERO_OK);
  return step;
}

void killed_ranks_leave_whole_checkpoints_and_the_run_goes_on(void**) {
  std::mt19937_64 random(6);
  const OwnFolder folder;
  int64_t latest = 0;
  int64_t replaced = 0;
  const int64_t kills = ranks::full_tier() ? 120 : 5;
  for (int64_t life = 0; life < kills; ++life) {
    live_and_die(life, folder.path(), &random);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      const std::string name = entry.path().filename().string();
      if (name.compare(0, 5, "ckpt-") == 0) {
        assert_int_equal(step_at(entry.path().string()), std::stoll(name.substr(5)));
      }
    }
    if (latest > 0 || std::filesystem::exists(folder / "latest")) {
      const int64_t step = step_at(folder.path());
      assert_true(step >= latest); // what was saved is not lost
      latest = step;
    }
    if (replaced > 0 || std::filesystem::exists(folder / "last")) {
      const int64_t step = step_at(folder / "last");
      // A life that started at the pointer may replace it by an earlier one, never by none.
      assert_true(step >= std::min(replaced, latest));
      replaced = step;
    }
  }
  assert_true(latest > 0); // else nothing was tried
  // As if nothing had been.
  const std::vector<State> expected = faults::states_of_a_run(std::max(latest, replaced));
  for (const auto& [name, step] : {std::pair{"latest", latest}, std::pair{"last", replaced}}) {
    if (step == 0) continue;
    assert_string_equal(faults::wrong_at(folder / name, expected, step, step).c_str(), "");
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(killed_ranks_leave_whole_checkpoints_and_the_run_goes_on),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

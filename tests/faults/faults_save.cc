// A save whose k-th call of the file system fails, is interrupted, is cut short or is the process's
// last, for every k: the checkpoints before it stay whole, all ranks hear the same, the run goes
// on. SPDX-License-Identifier: BSD-3-Clause
#include <barrier>
#include <random>

#include "fault_help.h"
#include "saved_runs.h"

using faults::Action;
using faults::Kind;
using faults::kRanks;
using faults::Outcome;
using faults::OwnFolder;
using faults::Point;
using faults::SavedRun;
using faults::State;

namespace {

const std::vector<State>& expected() {
  static const std::vector<State> states = faults::states_of_a_run(6);
  return states;
}

// Says what is wrong, and goes on to the other points.
int report(const std::string& wrong, const SavedRun& run, const Point& point, Action action) {
  if (wrong.empty()) return 0;
  print_error("%s, action %d at %s: %s\n", run.name, static_cast<int>(action), point.text().c_str(),
              wrong.c_str());
  return 1;
}

// Looks for what another rank has to say: as many as it takes, in one run more than in another.
bool is_polled(const Point& point) {
  const bool mark = point.path.find(".mark") != std::string::npos;
  return mark &&
         (point.kind == Kind::kOpen || point.kind == Kind::kRead || point.kind == Kind::kClose ||
          point.kind == Kind::kLock || point.kind == Kind::kLook);
}

// One run with one fault, in this process.
std::string run_with(const SavedRun& run, const Point& point, Action action) {
  const OwnFolder folder;
  std::vector<Outcome> outcomes(kRanks);
  bool came = false;
  std::barrier gate(kRanks);
  std::string wrong;
  std::unique_ptr<faults::WatchedFiles> files;
  faults::Points points(folder.path());
  faults::at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
    faults::SavingRank self(rank, kRanks, group);
    faults::save_before(run, self, folder.path());
    gate.arrive_and_wait();
    if (rank == 0) {
      files = std::make_unique<faults::WatchedFiles>();
      files->judge = [&](const faults::Call& call) {
        if (points.next(call) != point) return Action::kPass;
        came = true;
        return action;
      };
      zero::set_file_system(files.get());
    }
    gate.arrive_and_wait();
    Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    outcome = faults::save_watched(run, self, folder.path(),
                                   static_cast<faults::Hears>(point.occurrence % 3));
    gate.arrive_and_wait();
    if (rank == 0) {
      zero::set_file_system(nullptr);
      wrong = faults::wrong_after(run, folder.path(), expected(), outcome.status == ZERO_OK);
    }
    gate.arrive_and_wait();
    // The run goes on as if nothing had been, and so do its saves.
    self.train_to(run.before + 2);
    OK(self.save(folder / "after", {}));
    if (rank == 0 && wrong.empty()) {
      wrong = faults::wrong_at(folder / "after", expected(), run.before + 2, run.before + 2);
    }
    self.close();
  });
  if (!came) return is_polled(point) ? "" : "the call did not come";
  for (const Outcome& outcome : outcomes) {
    if (outcome == outcomes[0]) continue;
    return "rank 0 hears \"" + outcomes[0].text + "\", another rank \"" + outcome.text + "\"";
  }
  const Outcome& outcome = outcomes[0];
  if (!wrong.empty()) return wrong + " (the save said \"" + outcome.text + "\")";
  if (action == Action::kInterrupted || action == Action::kShort) {
    return outcome.status == ZERO_OK ? "" : "refused: " + outcome.text;
  }
  if (outcome.status == ZERO_OK) {
    return faults::may_fail_unsaid(run, point) ? "" : "nobody was told";
  }
  const bool no_space = action == Action::kNoSpace;
  if (outcome.status != (no_space ? ZERO_ERR_NO_SPACE : ZERO_ERR_IO) ||
      outcome.native_code != (no_space ? ENOSPC : EIO)) {
    return "said " + std::string(zero_status_name(outcome.status)) + ": " + outcome.text;
  }
  return "";
}

// The same where the process ends at that call.
std::string run_to_death(const SavedRun& run, const Point& point) {
  const OwnFolder folder;
  const int code = faults::in_a_child([&] {
    std::barrier gate(kRanks);
    faults::WatchedFiles files;
    faults::Points points(folder.path());
    faults::at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
      faults::SavingRank self(rank, kRanks, group);
      faults::save_before(run, self, folder.path());
      gate.arrive_and_wait();
      if (rank == 0) {
        files.judge = [&](const faults::Call& call) {
          return points.next(call) == point ? Action::kDie : Action::kPass;
        };
        zero::set_file_system(&files);
      }
      gate.arrive_and_wait();
      faults::save_watched(run, self, folder.path(), faults::Hears::kFromPollAndWait);
    });
    _exit(0);
  });
  if (code == 0 && is_polled(point)) return "";
  if (code != faults::WatchedFiles::kDeathCode) return "ended by " + std::to_string(code);
  const std::string wrong = faults::wrong_after(run, folder.path(), expected(), false);
  return wrong.empty() ? faults::wrong_resume(run, folder.path(), expected()) : wrong;
}

std::vector<Point> points_of(const SavedRun& run) {
  const OwnFolder folder;
  std::vector<Point> all;
  std::barrier gate(kRanks);
  faults::WatchedFiles files;
  faults::Points points(folder.path());
  faults::at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
    faults::SavingRank self(rank, kRanks, group);
    faults::save_before(run, self, folder.path());
    gate.arrive_and_wait();
    if (rank == 0) {
      files.judge = [&](const faults::Call& call) {
        all.push_back(points.next(call));
        return Action::kPass;
      };
      zero::set_file_system(&files);
    }
    gate.arrive_and_wait();
    const Outcome outcome =
        faults::save_watched(run, self, folder.path(), faults::Hears::kFromPollAndWait);
    EXPECT(outcome.status == ZERO_OK);
    gate.arrive_and_wait();
    if (rank == 0) zero::set_file_system(nullptr);
    gate.arrive_and_wait();
    self.close();
  });
  const std::string wrong = faults::wrong_after(run, folder.path(), expected(), true);
  if (!wrong.empty()) print_error("%s: %s\n", run.name, wrong.c_str());
  assert_true(wrong.empty());
  std::sort(all.begin(), all.end());
  std::erase_if(all, [](const Point& point) { return is_polled(point) && point.occurrence > 0; });
  return all;
}

constexpr size_t kQuick = 12; // of the points of each run and action

template <typename Try>
void at_every_point(uint64_t seed, const std::vector<Action>& actions, const Try& attempt) {
  int wrong = 0;
  for (const SavedRun& run : faults::kSavedRuns) {
    std::vector<Point> points = points_of(run);
    assert_true(points.size() > 20); // else the seam is passed by
    for (const Action action : actions) {
      std::shuffle(points.begin(), points.end(), std::mt19937_64(seed++));
      const size_t count = ranks::full_tier() ? points.size() : std::min(kQuick, points.size());
      for (size_t i = 0; i < count; ++i) {
        wrong += report(attempt(run, points[i], action), run, points[i], action);
      }
    }
  }
  assert_int_equal(wrong, 0);
}

void a_failing_call_loses_no_checkpoint_and_all_ranks_hear_the_same(void**) {
  at_every_point(1, {Action::kNoSpace, Action::kIoError}, &run_with);
}

void an_interrupted_or_short_call_is_no_failure(void**) {
  at_every_point(2, {Action::kInterrupted, Action::kShort}, &run_with);
}

void a_death_at_any_call_loses_no_checkpoint(void**) {
  at_every_point(3, {Action::kDie}, [](const SavedRun& run, const Point& point, Action) {
    return run_to_death(run, point);
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_failing_call_loses_no_checkpoint_and_all_ranks_hear_the_same),
      cmocka_unit_test(an_interrupted_or_short_call_is_no_failure),
      cmocka_unit_test(a_death_at_any_call_loses_no_checkpoint),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

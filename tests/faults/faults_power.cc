// Power cuts: behind every call of a save the disk may hold what was synced and any part of the
// rest.  Each such disk is made, and has the old checkpoints or the new one, whole.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <barrier>

#include "disk_model.h"
#include "fault_help.h"
#include "saved_runs.h"

using faults::Call;
using faults::DiskModel;
using faults::kRanks;
using faults::Left;
using faults::OwnFolder;
using faults::SavedRun;
using faults::State;

namespace {

const std::vector<State>& expected() {
  static const std::vector<State> states = faults::states_of_a_run(6);
  return states;
}

struct Recorded {
  std::unique_ptr<DiskModel> start;
  std::vector<Call> calls;
  bool saved = false;
};

// What a save does to the disk; `judge` may make it fail, then it goes on to its end.
Recorded record(const SavedRun& run, const std::string& root,
                const std::function<faults::Action(const Call&)>& judge = {}) {
  Recorded recorded;
  std::barrier gate(kRanks);
  faults::WatchedFiles files;
  faults::at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
    faults::SavingRank self(rank, kRanks, group);
    faults::save_before(run, self, root);
    gate.arrive_and_wait();
    if (rank == 0) {
      recorded.start = std::make_unique<DiskModel>(root);
      if (judge) files.judge = judge;
      files.note = [&](const Call& call) {
        if (faults::changes_disk(call.kind)) recorded.calls.push_back(call);
      };
      zero::set_file_system(&files);
    }
    gate.arrive_and_wait();
    const bool saved =
        faults::save_watched(run, self, root, faults::Hears::kFromWait).status == ZERO_OK;
    EXPECT(saved || judge);
    gate.arrive_and_wait();
    if (rank == 0) {
      recorded.saved = saved;
      zero::set_file_system(nullptr);
    }
    gate.arrive_and_wait();
    self.close();
  });
  return recorded;
}

struct Cuts {
  size_t from = 0; // behind this many calls and later ones,
  size_t every = 1; // so many apart, and the last one
  uint64_t seeds = 1;
  bool resumes = false; // some are also gone on from
};

void check_cuts(const SavedRun& run, const Recorded& recorded, const std::string& cut,
                const Cuts& cuts) {
  DiskModel disk = *recorded.start;
  for (size_t done = 0; done <= recorded.calls.size(); ++done) {
    if (done > 0) {
      const uint64_t before = disk.changes();
      disk.apply(recorded.calls[done - 1]);
      if (disk.changes() == before) continue;
    }
    const bool is_last = done == recorded.calls.size();
    if (done < cuts.from || ((done - cuts.from) % cuts.every != 0 && !is_last)) continue;
    for (const Left left : faults::kLefts) {
      for (uint64_t seed = 0; seed < (left == Left::kSome ? cuts.seeds : 1); ++seed) {
        disk.write_what_is_left(cut, left, seed);
        const bool saved = recorded.saved && done == recorded.calls.size();
        std::string wrong = faults::wrong_after(run, cut, expected(), saved);
        if (wrong.empty() && cuts.resumes && seed == 0 && done % 7 == 0) {
          wrong = faults::wrong_resume(run, cut, expected());
        }
        if (!wrong.empty()) {
          const Call& last = recorded.calls[done == 0 ? 0 : done - 1];
          print_error("%s, cut behind call %zu of %zu (%s of %s), left %d, seed %llu: %s\n",
                      run.name, done, recorded.calls.size(), name_of(last.kind), last.path.c_str(),
                      static_cast<int>(left), static_cast<unsigned long long>(seed), wrong.c_str());
          assert_true(false);
        }
        faults::remove_tree_of(cut);
      }
    }
  }
}

std::string make_root(const OwnFolder& folder) {
  const std::string root = folder / "root";
  std::filesystem::create_directory(root);
  return root;
}

void a_power_cut_behind_any_call_loses_no_checkpoint(void**) {
  for (const SavedRun& run : faults::kSavedRuns) {
    const OwnFolder folder;
    const Recorded recorded = record(run, make_root(folder));
    assert_true(recorded.calls.size() > 10);
    check_cuts(run, recorded, folder / "cut", {0, 1, ranks::full_tier() ? 50u : 2u, true});
  }
}

// The save hears of it and clears up; nobody knows what the disk has kept.
void a_power_cut_behind_a_failed_sync_loses_no_checkpoint(void**) {
  for (const SavedRun& run : faults::kSavedRuns) {
    for (int which = 0;; which += ranks::full_tier() ? 1 : 3) {
      const OwnFolder folder;
      std::atomic<int> syncs{0};
      std::atomic<bool> came{false};
      const Recorded recorded = record(run, make_root(folder), [&](const Call& call) {
        if (call.kind != faults::Kind::kSync || syncs++ < which || came)
          return faults::Action::kPass;
        came = true;
        return faults::Action::kIoError;
      });
      if (!came) break;
      check_cuts(run, recorded, folder / "cut",
                 {0, ranks::full_tier() ? 1u : 4u, ranks::full_tier() ? 4u : 1u, false});
    }
  }
}

// The process dies at a call; its successor goes on, saves to the same place, and then the power is
// cut: what the first one did may still be on its way to the disk.
void a_power_cut_in_the_save_behind_a_death_loses_no_checkpoint(void**) {
  for (const SavedRun& run : faults::kSavedRuns) {
    const OwnFolder first;
    const std::vector<Call> calls = record(run, make_root(first)).calls;
    for (size_t death = 0; death < calls.size(); ++death) {
      // Quick: where names have just changed.
      const bool renamed = death > 0 && (calls[death - 1].kind == faults::Kind::kRename ||
                                         calls[death - 1].kind == faults::Kind::kExchange);
      if (!ranks::full_tier() && !renamed) continue;
      const OwnFolder folder;
      const std::string root = make_root(folder);
      std::atomic<size_t> made{0};
      // Dead: no call of it has an effect any more.
      Recorded recorded = record(run, root, [&](const Call& call) {
        if (!faults::changes_disk(call.kind)) return faults::Action::kPass;
        return made++ < death ? faults::Action::kPass : faults::Action::kIoError;
      });
      const size_t before = recorded.calls.size();
      if (run.before == 0 && !std::filesystem::exists(root + "/latest")) continue;
      faults::WatchedFiles files;
      files.note = [&](const Call& call) {
        if (faults::changes_disk(call.kind)) recorded.calls.push_back(call);
      };
      zero::set_file_system(&files);
      faults::at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
        faults::SavingRank self(rank, kRanks, group, 1);
        OK(self.load(run.as.latest ? root : faults::path_of(run, root, run.before)));
        self.train_to(run.before + 1);
        faults::SaveAs as = run.as;
        as.background = false;
        as.replace = true; // it may be there
        OK(self.save(faults::path_of(run, root, run.before + 1), as));
        self.close();
      });
      zero::set_file_system(nullptr);
      recorded.saved = true;
      check_cuts(run, recorded, folder / "cut",
                 {before, ranks::full_tier() ? 3u : 7u, ranks::full_tier() ? 2u : 1u, false});
    }
  }
}

// The check is worth something: without the syncs it fails.
void without_its_syncs_a_save_would_lose_checkpoints(void**) {
  for (const SavedRun& run : faults::kSavedRuns) {
    const OwnFolder folder;
    const Recorded recorded = record(run, make_root(folder));
    DiskModel disk = *recorded.start;
    for (const Call& call : recorded.calls) {
      if (call.kind != faults::Kind::kSync) disk.apply(call);
    }
    int wrong = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      disk.write_what_is_left(folder / "cut", Left::kSome, seed);
      if (!faults::wrong_after(run, folder / "cut", expected(), true).empty()) ++wrong;
      faults::remove_tree_of(folder / "cut");
    }
    assert_true(wrong > 10);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_power_cut_behind_any_call_loses_no_checkpoint),
      cmocka_unit_test(a_power_cut_behind_a_failed_sync_loses_no_checkpoint),
      cmocka_unit_test(a_power_cut_in_the_save_behind_a_death_loses_no_checkpoint),
      cmocka_unit_test(without_its_syncs_a_save_would_lose_checkpoints),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

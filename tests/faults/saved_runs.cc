// SPDX-License-Identifier: BSD-3-Clause
#include "saved_runs.h"

#include <set>

namespace faults {
namespace {

constexpr const char* kLatest = "latest";

// The oldest step whose checkpoint stays when the save in question is whole.
int64_t oldest_kept(const SavedRun& run) {
  return run.as.keep_last == 0 ? 1 : run.before + 2 - run.as.keep_last;
}

} // namespace

std::string path_of(const SavedRun& run, const std::string& root, int64_t step) {
  return root + (run.as.replace ? "/ckpt" : "/ckpt-" + std::to_string(step));
}

void save_before(const SavedRun& run, SavingRank& self, const std::string& root) {
  SaveAs as = run.as;
  as.background = false;
  for (int64_t step = 1; step <= run.before; ++step) {
    self.train_to(step);
    OK(self.save(path_of(run, root, step), as));
  }
  self.train_to(run.before + 1);
}

Outcome save_watched(const SavedRun& run, SavingRank& self, const std::string& root, Hears hears) {
  zero_status status = self.save(path_of(run, root, run.before + 1), run.as);
  if (status != ZERO_OK || !run.as.background) return outcome(status);
  if (hears != Hears::kFromNextSave) {
    int32_t done = hears == Hears::kFromWait ? 1 : 0;
    while (status == ZERO_OK && done == 0) {
      status = zero_checkpoint_poll(self.runtime(), &done);
      usleep(500);
    }
    const Outcome polled = outcome(status);
    const Outcome waited = outcome(zero_checkpoint_wait(self.runtime()));
    // A rank may not know of another's failure before it waits.
    if (polled.status != ZERO_OK && polled.status != waited.status) {
      std::fprintf(stderr, "poll says \"%s\", wait \"%s\"\n", polled.text.c_str(),
                   waited.text.c_str());
    }
    EXPECT(polled.status == ZERO_OK || polled.status == waited.status);
    EXPECT(zero_checkpoint_wait(self.runtime()) == ZERO_OK); // told once
    return waited;
  }
  const std::string next = root + "/ckpt-next";
  const Outcome told = outcome(self.save(next));
  if (told.status == ZERO_OK) {
    // It was whole, and then this one was made.
    State state;
    int64_t step = 0;
    EXPECT(read_state(next, &state, &step).status == ZERO_OK && step == run.before + 1);
  }
  return told;
}

std::string wrong_at(const std::string& path, const std::vector<State>& expected, int64_t first,
                     int64_t last) {
  State state;
  int64_t step = -1;
  const Outcome read = read_state(path, &state, &step);
  if (read.status != ZERO_OK) return path + " is not whole: " + read.text;
  if (step < first || step > last) return path + " is of step " + std::to_string(step);
  for (const auto& [name, bytes] : expected[static_cast<size_t>(step)]) {
    if (state[name] != bytes) return path + " has another " + name;
  }
  return "";
}

std::string wrong_after(const SavedRun& run, const std::string& root,
                        const std::vector<State>& expected, bool saved) {
  const int64_t last = run.before + 1;
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (name[0] == '.' || name.compare(0, 6, kLatest) == 0) continue;
    const bool numbered = name.compare(0, 5, "ckpt-") == 0 && name != "ckpt-next";
    const int64_t step = numbered ? std::stoll(name.substr(5)) : -1;
    const std::string wrong = wrong_at(entry.path().string(), expected,
                                       numbered ? step : run.before, numbered ? step : last);
    if (!wrong.empty()) return wrong;
    seen.insert(name);
  }
  const auto is_there = [&](int64_t step) {
    return seen.count(path_of(run, "", step).substr(1)) != 0;
  };
  if (saved && !is_there(last)) return "what was saved is absent";
  for (int64_t step = run.as.replace ? run.before : oldest_kept(run); step <= run.before; ++step) {
    if (step > 0 && !is_there(step))
      return "the checkpoint of step " + std::to_string(step) + " is lost";
  }
  // Before the new one is whole nothing is deleted.
  if (!is_there(last) && run.before > 0 && !is_there(std::max<int64_t>(1, oldest_kept(run) - 1))) {
    return "an old one is deleted before the new one is whole";
  }
  if (saved && run.as.replace) {
    const std::string wrong = wrong_at(path_of(run, root, last), expected, last, last);
    if (!wrong.empty()) return wrong;
  }
  if (!run.as.latest || (run.before == 0 && !is_there(last))) return "";
  if (run.before == 0 && !saved && !std::filesystem::exists(root + "/" + kLatest)) return "";
  const std::string wrong =
      wrong_at(root + "/" + kLatest, expected, saved ? last : run.before, last);
  return wrong.empty() ? wrong_at(root, expected, saved ? last : run.before, last) : wrong;
}

std::string wrong_resume(const SavedRun& run, const std::string& root,
                         const std::vector<State>& expected) {
  std::string from = run.as.latest ? root : path_of(run, root, std::max<int64_t>(1, run.before));
  if (run.before == 0 && !std::filesystem::exists(root + "/" + kLatest)) return "";
  std::string wrong;
  at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
    SavingRank self(rank, kRanks, group, 1);
    OK(self.load(from));
    self.train_to(run.before + 2);
    SaveAs as = run.as;
    as.background = false;
    OK(self.save(path_of(run, root, run.before + 2), as));
    if (rank == 0) {
      wrong =
          wrong_at(path_of(run, root, run.before + 2), expected, run.before + 2, run.before + 2);
    }
    self.close();
  });
  return wrong;
}

bool may_fail_unsaid(const SavedRun& run, const Point& point) {
  const bool old = run.as.keep_last > 0; // an old one may stay: the log says so
  // What the ranks say to one another is said again.
  if (point.path.find(".mark") != std::string::npos) {
    return point.kind != Kind::kCreate && (point.kind != Kind::kWrite || point.occurrence > 0);
  }
  const bool at_end = point.path.empty() && point.occurrence >= 2; // behind the pointer's
  switch (point.kind) {
    case Kind::kClose: // of what was read or synced
    case Kind::kSetFlags: // then the file goes through the cache
    case Kind::kRemoveFile: // of what is no longer a checkpoint
    case Kind::kRemoveFolder:
    case Kind::kLook: // on the way to such a removal
    case Kind::kList:
      return true;
    case Kind::kRead:
      return old;
    case Kind::kOpen:
      return old && (!point.path.empty() || at_end);
    case Kind::kRename:
      return old && point.path.compare(0, 6, "/ckpt-") == 0;
    case Kind::kSync:
      return old && at_end;
    default:
      return false;
  }
}

} // namespace faults

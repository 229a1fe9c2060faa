// The saves that faults are tried on, and what must be left on the disk whatever becomes of them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fault_help.h"
#include "saving_rank.h"

namespace faults {

// Saves after each of the steps 1 to `before`; the next one is the one in question.
struct SavedRun {
  const char* name;
  int64_t before;
  SaveAs as;
};
inline const SavedRun kSavedRuns[] = {
    {"the first save", 0, {false, false, 0, true}},
    {"a save beside another", 1, {false, false, 0, true}},
    {"a save without a pointer", 1, {false, false, 0, false}},
    {"a save that replaces", 1, {true, false, 0, false}},
    {"a save that deletes old ones", 3, {false, false, 2, true}},
    {"a save in the background", 1, {false, true, 0, true}},
    {"a replacing save in the background", 1, {true, true, 0, true}},
    {"a save in the background that deletes old ones", 3, {false, true, 2, true}},
};

std::string path_of(const SavedRun& run, const std::string& root, int64_t step);

// The undisturbed saves, then one more step.
void save_before(const SavedRun& run, SavingRank& self, const std::string& root);

// Where the end of a save in the background is heard.
enum class Hears { kFromPollAndWait, kFromWait, kFromNextSave };
// The save in question, to its end.
Outcome save_watched(const SavedRun& run, SavingRank& self, const std::string& root, Hears hears);

// Each of these says what is wrong, or nothing.  At path lies a whole checkpoint of one of the
// steps first..last.
std::string wrong_at(const std::string& path, const std::vector<State>& expected, int64_t first,
                     int64_t last);
// Every name that can be seen is whole, none is lost but what may be deleted, and the pointer says
// one that is there; saved: the save said so, then it is there.
std::string wrong_after(const SavedRun& run, const std::string& root,
                        const std::vector<State>& expected, bool saved);
// New ranks go on from what is left, and get where the old ones would have got.
std::string wrong_resume(const SavedRun& run, const std::string& root,
                         const std::vector<State>& expected);

// Calls of the clearing up behind a save.
bool may_fail_unsaid(const SavedRun& run, const Point& point);

} // namespace faults

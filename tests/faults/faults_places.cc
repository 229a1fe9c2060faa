// Where checkpoints are saved to: places that cannot be written, that are full, that are taken,
// that two jobs want, that have odd names, that ranks do not share.  Success or a clear error, the
// same on all ranks, and what was there before is still there. SPDX-License-Identifier:
// BSD-3-Clause
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <mutex>

#include "base/file.h"
#include "disk_model.h"
#include "fault_help.h"
#include "saved_runs.h"

using faults::Action;
using faults::kRanks;
using faults::Outcome;
using faults::OwnFolder;
using faults::SaveAs;
using faults::SavingRank;
using faults::State;

namespace {

namespace fs = std::filesystem;

const std::vector<State>& expected() {
  static const std::vector<State> states = faults::states_of_a_run(4);
  return states;
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// One save at thread ranks; all must hear the same.
Outcome save(const std::string& path, const SaveAs& as = {}, int64_t step = 1,
             int32_t ranks = kRanks) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  faults::at_thread_ranks(ranks, [&](int32_t rank, const std::string& group) {
    SavingRank self(rank, ranks, group);
    self.train_to(step);
    Outcome& mine = outcomes[static_cast<size_t>(rank)];
    mine = faults::outcome(self.save(path, as));
    if (mine.status == ZERO_OK && as.background) {
      mine = faults::outcome(zero_checkpoint_wait(self.runtime()));
    }
    OK(zero_runtime_status(self.runtime()));
    self.train_to(step + 1); // nothing broke
    self.close();
  });
  for (const Outcome& one : outcomes) {
    if (one == outcomes[0]) continue;
    print_error("\"%s\" and \"%s\"\n", outcomes[0].text.c_str(), one.text.c_str());
    assert_true(false);
  }
  return outcomes[0];
}

void assert_whole(const std::string& path, int64_t step) {
  assert_string_equal(faults::wrong_at(path, expected(), step, step).c_str(), "");
}

// Seconds of nothing but this: saves to `path` by a child whose place `make` prepares.  False: the
// machine does not allow what make wants.  The status goes out as the exit code.
constexpr int kNotAllowed = 77;
int save_in(const std::function<bool()>& make, const std::string& path,
            const std::string& expected_words) {
  return faults::in_a_child([&] {
    if (!make()) _exit(kNotAllowed);
    const Outcome outcome = save(path);
    if (outcome.text.find(expected_words) == std::string::npos) {
      std::fprintf(stderr, "\"%s\" does not say \"%s\"\n", outcome.text.c_str(),
                   expected_words.c_str());
      _exit(1);
    }
    _exit(outcome.status);
  });
}

bool write_text(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY);
  if (fd < 0) return false;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return written;
}

// Mounts of one's own, as root or in a user namespace.
bool own_mounts() {
  if (unshare(CLONE_NEWNS) != 0) {
    const uid_t user = getuid();
    const gid_t group = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    write_text("/proc/self/setgroups", "deny");
    if (!write_text("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") ||
        !write_text("/proc/self/gid_map", "0 " + std::to_string(group) + " 1")) {
      return false;
    }
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

void a_place_that_is_mounted_read_only_is_one_error(void**) {
  const OwnFolder folder;
  const int code = save_in(
      [&] {
        return own_mounts() &&
               mount("none", folder.path().c_str(), "tmpfs", MS_RDONLY, nullptr) == 0;
      },
      folder / "above/ckpt", std::strerror(EROFS));
  if (code == kNotAllowed) skip();
  assert_int_equal(code, ZERO_ERR_IO);
  assert_true(fs::is_empty(folder.path()));
}

void a_folder_without_the_right_to_write_is_one_error(void**) {
  const OwnFolder folder;
  chmod(folder.path().c_str(), 0555);
  const int code = save_in(
      [&] {
        if (geteuid() != 0) return true;
        constexpr uid_t kNobody = 65534; // whoever may write everywhere becomes one who may not
        return setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
               setresuid(kNobody, kNobody, kNobody) == 0 &&
               access(folder.path().c_str(), W_OK) != 0;
      },
      folder / "ckpt", std::strerror(EACCES));
  chmod(folder.path().c_str(), 0755);
  if (code == kNotAllowed) skip();
  assert_int_equal(code, ZERO_ERR_IO);
  assert_true(fs::is_empty(folder.path()));
}

void a_small_disk_that_is_full_is_one_error(void**) {
  const OwnFolder folder;
  const int code = save_in(
      [&] {
        return own_mounts() && mount("none", folder.path().c_str(), "tmpfs", 0, "size=16k") == 0;
      },
      folder / "ckpt", std::strerror(ENOSPC));
  if (code == kNotAllowed) skip();
  assert_int_equal(code, ZERO_ERR_NO_SPACE);
}

// Wherever the disk becomes full, and stays so.
void a_disk_that_is_full_keeps_the_checkpoint_before(void**) {
  for (const bool background : {false, true}) {
    bool was_saved = false;
    for (uint64_t room = 0; !was_saved; room += ranks::full_tier() ? 512 : 8192) {
      const OwnFolder folder;
      assert_int_equal(save(folder / "ckpt-1", {false, false, 0, true}, 1).status, ZERO_OK);
      faults::WatchedFiles files;
      uint64_t used = 0;
      files.judge = [&](const faults::Call& call) {
        const bool takes = call.kind == faults::Kind::kWrite ||
                           call.kind == faults::Kind::kCreate ||
                           call.kind == faults::Kind::kMakeFolder;
        return takes && used >= room ? Action::kNoSpace : Action::kPass;
      };
      files.note = [&](const faults::Call& call) { used += call.data.size(); };
      zero::set_file_system(&files);
      const Outcome outcome = save(folder / "ckpt-2", {false, background, 0, true}, 2);
      zero::set_file_system(nullptr);
      was_saved = outcome.status == ZERO_OK;
      if (was_saved) {
        assert_whole(folder / "ckpt-2", 2);
        assert_whole(folder.path(), 2);
      } else {
        assert_int_equal(outcome.status, ZERO_ERR_NO_SPACE);
        assert_true(!fs::exists(folder / "ckpt-2") ||
                    faults::wrong_at(folder / "ckpt-2", expected(), 2, 2).empty());
        assert_string_equal(faults::wrong_at(folder.path(), expected(), 1, 2).c_str(), "");
      }
      assert_whole(folder / "ckpt-1", 1);
    }
  }
}

void what_is_there_is_not_overwritten(void**) {
  const OwnFolder folder;
  assert_int_equal(save(folder / "ckpt", {}, 1).status, ZERO_OK);
  Outcome outcome = save(folder / "ckpt", {}, 2);
  assert_int_equal(outcome.status, ZERO_ERR_INVALID_ARGUMENT);
  faults::assert_contains(outcome.text, folder / "ckpt");
  assert_whole(folder / "ckpt", 1);

  // Neither with replace, where it is no checkpoint but somebody's own.
  fs::create_directories(folder / "photos/2024");
  write_bytes(folder / "photos/2024/a", "precious");
  write_bytes(folder / "letter", "dear");
  for (const char* name : {"photos", "letter"}) {
    for (const bool background : {false, true}) {
      for (const bool replace : {false, true}) {
        outcome = save(folder / name, {replace, background, 0, false});
        assert_int_not_equal(outcome.status, ZERO_OK);
        faults::assert_contains(outcome.text, name);
      }
    }
  }
  const auto tree = faults::read_tree(folder.path());
  assert_string_equal(tree.at("photos/2024/a").c_str(), "precious");
  assert_string_equal(tree.at("letter").c_str(), "dear");
  assert_int_equal(tree.size(),
                   4 + 1 + kRanks + 1); // photos/ 2024/ a letter, and ckpt/ with its files

  // A file where a folder has to be.
  outcome = save(folder / "letter/below/ckpt");
  assert_int_equal(outcome.status, ZERO_ERR_IO);
  faults::assert_contains(outcome.text, "letter");
}

void odd_names_are_fine(void**) {
  const OwnFolder folder;
  for (const std::string& name : std::vector<std::string>{
           "with spaces and, commas", "été-жук-零-🙂", "%s%n %d", "-rf", ".hidden", "a\nb",
           "trailing/", "new/folders/above", "x.saving-1"}) {
    const Outcome outcome = save(folder / name, {false, false, 0, true}, 1);
    assert_string_equal(outcome.text.c_str(), "");
    assert_whole(folder / name, 1);
    assert_whole(zero::parent_folder(folder / name), 1); // by its pointer
    assert_int_equal(save(folder / name, {true, false, 0, true}, 2).status, ZERO_OK);
    assert_whole(folder / name, 2);
  }
  for (const std::string& bad : std::vector<std::string>{"", "/", folder / std::string(300, 'n')}) {
    const Outcome outcome = save(bad);
    assert_int_not_equal(outcome.status, ZERO_OK);
    assert_int_not_equal(outcome.status, ZERO_ERR_INTERNAL);
  }
}

// Two jobs of two ranks at one moment.  First come, first served; with replace, the last one stays.
void two_jobs_that_save_to_one_place_leave_one_whole_checkpoint(void**) {
  const OwnFolder folder;
  for (int round = 0; round < (ranks::full_tier() ? 60 : 6); ++round) {
    const bool replace = round % 2 == 1;
    const std::string path = folder / ("ckpt-" + std::to_string(round));
    Outcome outcomes[2];
    std::vector<std::thread> jobs;
    for (int job = 0; job < 2; ++job) {
      // The names of groups are drawn one after the other.
      const std::string group = ranks::fresh_group();
      jobs.emplace_back([&, job, group] {
        std::vector<Outcome> mine(kRanks);
        std::vector<std::thread> threads;
        for (int32_t rank = 0; rank < kRanks; ++rank) {
          threads.emplace_back([&, rank] {
            SavingRank self(rank, kRanks, group);
            self.train_to(1 + job);
            mine[static_cast<size_t>(rank)] =
                faults::outcome(self.save(path, {replace, round % 4 >= 2, 0, false}));
            if (mine[static_cast<size_t>(rank)].status == ZERO_OK) {
              mine[static_cast<size_t>(rank)] =
                  faults::outcome(zero_checkpoint_wait(self.runtime()));
            }
            self.close();
          });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT(mine[0] == mine[1]);
        outcomes[job] = mine[0];
      });
    }
    for (std::thread& job : jobs) job.join();
    const bool first = outcomes[0].status == ZERO_OK;
    const bool second = outcomes[1].status == ZERO_OK;
    if (!first && !second)
      print_error("%s; %s\n", outcomes[0].text.c_str(), outcomes[1].text.c_str());
    assert_true(first || second);
    if (!replace) assert_true(first != second);
    assert_string_equal(faults::wrong_at(path, expected(), first ? 1 : 2, second ? 2 : 1).c_str(),
                        "");
    for (const Outcome& outcome : outcomes) {
      if (outcome.status != ZERO_OK) faults::assert_contains(outcome.text, path);
    }
    // Nothing half done is in the way of the next one.
    assert_int_equal(save(path, {true, false, 0, false}, 3).status, ZERO_OK);
    assert_whole(path, 3);
  }
}

// R096: every rank may see that the folders above are absent.
void many_ranks_save_to_a_place_that_does_not_exist(void**) {
  const OwnFolder folder;
  static std::vector<State> states = faults::states_of_a_run(1, 8);
  for (int round = 0; round < (ranks::full_tier() ? 50 : 5); ++round) {
    const std::string path = folder / ("r" + std::to_string(round) + "/a/b/ckpt");
    assert_string_equal(save(path, {}, 1, 8).text.c_str(), "");
    assert_string_equal(faults::wrong_at(path, states, 1, 1).c_str(), "");
    assert_string_equal(save(path + "-2", {}, 1, 8).text.c_str(), ""); // its folder exists
  }
}

// Each rank process has a working folder of its own, so one relative path is two places.
void ranks_that_do_not_see_one_file_system_are_told_so(void**) {
  const OwnFolder folder;
  ranks::assert_all_ended_well(
      ranks::run_processes(kRanks, [&](int32_t rank, const std::string& group) {
        const std::string mine = folder / std::to_string(rank);
        fs::create_directory(mine);
        EXPECT(chdir(mine.c_str()) == 0);
        SavingRank self(rank, kRanks, group);
        self.train_to(1);
        for (const bool background : {false, true}) {
          zero_status status = self.save("ckpt", {false, background, 0, false});
          if (status == ZERO_OK && background) status = zero_checkpoint_wait(self.runtime());
          const Outcome outcome = faults::outcome(status);
          EXPECT(outcome.status == ZERO_ERR_IO);
          EXPECT(outcome.text.find("file system") != std::string::npos);
          EXPECT(outcome.text.find("rank 1") != std::string::npos);
        }
        EXPECT(!fs::exists("ckpt"));
        self.close();
      }));
}

// R095: it is collective, and says who is missing.
void a_save_by_one_rank_alone_names_the_other(void**) {
  const OwnFolder folder;
  int done[2];
  assert_int_equal(pipe(done), 0);
  ranks::assert_all_ended_well(
      ranks::run_processes(kRanks, [&](int32_t rank, const std::string& group) {
        SavingRank self(rank, kRanks, group, 2, ranks::kSecond);
        self.train_to(1);
        char byte = 0;
        if (rank == 1) {
          EXPECT(read(done[0], &byte, 1) == 1);
          return;
        }
        const Outcome outcome = faults::outcome(self.save(folder / "ckpt"));
        EXPECT(outcome.status == ZERO_ERR_COMM_TIMEOUT);
        EXPECT(outcome.text.find("rank 1") != std::string::npos);
        EXPECT(!fs::exists(folder / "ckpt"));
        EXPECT(write(done[1], "d", 1) == 1);
      }));
  close(done[0]);
  close(done[1]);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_place_that_is_mounted_read_only_is_one_error),
      cmocka_unit_test(a_folder_without_the_right_to_write_is_one_error),
      cmocka_unit_test(a_small_disk_that_is_full_is_one_error),
      cmocka_unit_test(a_disk_that_is_full_keeps_the_checkpoint_before),
      cmocka_unit_test(what_is_there_is_not_overwritten),
      cmocka_unit_test(odd_names_are_fine),
      cmocka_unit_test(two_jobs_that_save_to_one_place_leave_one_whole_checkpoint),
      cmocka_unit_test(many_ranks_save_to_a_place_that_does_not_exist),
      cmocka_unit_test(ranks_that_do_not_see_one_file_system_are_told_so),
      cmocka_unit_test(a_save_by_one_rank_alone_names_the_other),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

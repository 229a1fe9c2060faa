// Saves in the background where a rank can at last neither write nor remove anything, so that no
// file says how it went; and a limit on the size of files, which comes with a signal.
// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>
#include <sys/resource.h>

#include <barrier>

#include "fault_help.h"
#include "saved_runs.h"

using faults::Action;
using faults::Kind;
using faults::Outcome;
using faults::OwnFolder;
using faults::SavingRank;
using faults::State;

namespace {

constexpr int32_t kMembers = 3;

const std::vector<State>& expected() {
  static const std::vector<State> states = faults::states_of_a_run(3, kMembers);
  return states;
}

bool says(const std::string& path, const std::string& word) {
  return path.find(word) != std::string::npos;
}

// The disk breaks for `mute` (-1: for each of them) when its piece is written.
class BreakingDisk {
 public:
  explicit BreakingDisk(int32_t mute) : mute_(mute) {
    files_.judge = [this](const faults::Call& call) { return judge(call); };
    zero::set_file_system(&files_);
  }
  ~BreakingDisk() { zero::set_file_system(nullptr); }

 private:
  // Its own mark, and all that makes the pieces whole, which is rank 0's.
  bool is_by(int32_t rank, const std::string& path) const {
    const bool mark = says(path, ".mark");
    if (mark) return says(path, "rank-0000" + std::to_string(rank));
    return rank == 0 && !says(path, "piece-");
  }
  // One call at a time.
  Action judge(const faults::Call& call) {
    const bool changes = call.kind != Kind::kSync && faults::changes_disk(call.kind);
    for (int32_t rank = 0; rank < kMembers; ++rank) {
      if (mute_ >= 0 && mute_ != rank) continue;
      const bool its_piece = says(call.path, "piece-0000" + std::to_string(rank));
      if (call.kind == Kind::kSync && its_piece) broken_[rank] = true;
      if (broken_[rank] && changes && is_by(rank, call.path)) return Action::kIoError;
    }
    return Action::kPass;
  }
  const int32_t mute_;
  bool broken_[kMembers] = {};
  faults::WatchedFiles files_;
};

// Without a collective call in between each rank's own poll says that it failed.
void save_with(int32_t mute) {
  const OwnFolder folder;
  std::unique_ptr<BreakingDisk> disk;
  std::barrier gate(kMembers);
  faults::at_thread_ranks(kMembers, [&](int32_t rank, const std::string& group) {
    SavingRank self(rank, kMembers, group);
    self.train_to(1);
    OK(self.save(folder / "before"));
    gate.arrive_and_wait();
    if (rank == 0) disk = std::make_unique<BreakingDisk>(mute);
    gate.arrive_and_wait();
    self.train_to(2);
    OK(self.save(folder / "ckpt", {false, true, 0, false}));
    zero_status status = ZERO_OK;
    for (int32_t done = 0; status == ZERO_OK; usleep(1000)) {
      status = zero_checkpoint_poll(self.runtime(), &done);
      EXPECT(done == 0);
    }
    EXPECT(faults::outcome(status).status == ZERO_ERR_IO);
    gate.arrive_and_wait();
    const Outcome waited = faults::outcome(zero_checkpoint_wait(self.runtime()));
    EXPECT(waited.status == ZERO_ERR_IO);
    gate.arrive_and_wait();
    if (rank == 0) disk.reset();
    gate.arrive_and_wait();
    self.train_to(3);
    OK(self.save(folder / "after", {false, true, 0, false}));
    OK(zero_checkpoint_wait(self.runtime()));
    self.close();
  });
  EXPECT(!std::filesystem::exists(folder / "ckpt"));
  EXPECT(faults::wrong_at(folder / "before", expected(), 1, 1).empty());
  EXPECT(faults::wrong_at(folder / "after", expected(), 3, 3).empty());
}

void a_rank_that_can_neither_write_nor_remove_is_heard_by_the_poll_of_all(void**) {
  expected();
  for (const int32_t mute : {0, 1, 2, -1}) {
    assert_int_equal(faults::in_a_child([&] { save_with(mute); }), 0);
  }
}

void set_limit(rlim_t bytes) {
  rlimit limit{};
  EXPECT(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  limit.rlim_cur = bytes == RLIM_INFINITY ? limit.rlim_max : bytes;
  EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

void a_limit_on_the_size_of_files_is_an_error_and_no_signal(void**) {
  expected();
  const int code = faults::in_a_child([&] {
    signal(SIGXFSZ, SIG_DFL); // ends the process, where it comes
    const OwnFolder folder;
    std::barrier gate(kMembers);
    faults::at_thread_ranks(kMembers, [&](int32_t rank, const std::string& group) {
      SavingRank self(rank, kMembers, group);
      self.train_to(1);
      OK(self.save(folder / "before"));
      // Too small for a piece, and for what ranks say to one another.
      for (const rlim_t limit : {rlim_t{8192}, rlim_t{1000}}) {
        for (const bool background : {false, true}) {
          gate.arrive_and_wait();
          if (rank == 0) set_limit(limit);
          gate.arrive_and_wait();
          zero_status status = self.save(folder / "ckpt", {false, background, 0, false});
          if (status == ZERO_OK) status = zero_checkpoint_wait(self.runtime());
          const Outcome outcome = faults::outcome(status);
          EXPECT(outcome.status == ZERO_ERR_IO && outcome.native_code == EFBIG);
        }
      }
      gate.arrive_and_wait();
      if (rank == 0) set_limit(100);
      gate.arrive_and_wait();
      const std::string weights = folder / "weights.safetensors";
      EXPECT(zero_weights_export(self.runtime(), weights.c_str(), 0, 0) == ZERO_ERR_IO);
      gate.arrive_and_wait();
      if (rank == 0) set_limit(RLIM_INFINITY);
      gate.arrive_and_wait();
      self.train_to(2);
      OK(self.save(folder / "after"));
      self.close();
    });
    EXPECT(!std::filesystem::exists(folder / "ckpt"));
    EXPECT(faults::wrong_at(folder / "before", expected(), 1, 1).empty());
    EXPECT(faults::wrong_at(folder / "after", expected(), 2, 2).empty());
  });
  assert_int_equal(code, 0);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_that_can_neither_write_nor_remove_is_heard_by_the_poll_of_all),
      cmocka_unit_test(a_limit_on_the_size_of_files_is_an_error_and_no_signal),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

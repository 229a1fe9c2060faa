// What the host does while a save is in flight is not in it: the save's disk is held until it is
// done.
// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <barrier>

#include "fault_help.h"
#include "saved_runs.h"

using faults::OwnFolder;
using faults::SavingRank;
using faults::State;

namespace {

// Holds the first byte of every piece until it is let go.
class HeldPieces {
 public:
  HeldPieces() {
    files_.hold = [this](const std::string& path) {
      if (path.find("piece-") == std::string::npos) return;
      while (!let_go_) usleep(200);
    };
    zero::set_file_system(&files_);
  }
  ~HeldPieces() { zero::set_file_system(nullptr); }
  void let_go() { let_go_ = true; }

 private:
  std::atomic<bool> let_go_{false};
  faults::WatchedFiles files_;
};

// meanwhile: with the save of step 2 in flight; folder / "before" is of step 1.
void save_while(int32_t ranks,
                const std::function<void(SavingRank&, const OwnFolder&)>& meanwhile) {
  const std::vector<State> expected = faults::states_of_a_run(2, ranks);
  const OwnFolder folder;
  std::unique_ptr<HeldPieces> disk;
  std::barrier gate(ranks);
  faults::at_thread_ranks(ranks, [&](int32_t rank, const std::string& group) {
    SavingRank self(rank, ranks, group);
    self.train_to(1);
    OK(self.save(folder / "before"));
    self.train_to(2);
    gate.arrive_and_wait();
    if (rank == 0) disk = std::make_unique<HeldPieces>();
    gate.arrive_and_wait();
    OK(self.save(folder / "ckpt", {false, true, 0, false}));
    meanwhile(self, folder);
    int32_t done = 1;
    OK(zero_checkpoint_poll(self.runtime(), &done));
    EXPECT(done == 0);
    gate.arrive_and_wait();
    if (rank == 0) disk->let_go();
    OK(zero_checkpoint_wait(self.runtime()));
    gate.arrive_and_wait();
    if (rank == 0) disk.reset();
    self.close();
  });
  assert_string_equal(faults::wrong_at(folder / "ckpt", expected, 2, 2).c_str(), "");
  assert_string_equal(faults::wrong_at(folder / "before", expected, 1, 1).c_str(), "");
}

void steps_taken_meanwhile_are_not_in_a_save(void**) {
  for (const int32_t ranks : {1, 2}) {
    save_while(ranks, [](SavingRank& self, const OwnFolder&) { self.train_to(4); });
  }
}

void what_the_host_puts_meanwhile_is_not_in_a_save(void**) {
  for (const int32_t ranks : {1, 2}) {
    save_while(ranks, [](SavingRank& self, const OwnFolder&) {
      const std::string other = "rank 9 after step 9"; // as long as what is in it
      OK(zero_checkpoint_put(self.runtime(), "loader", other.data(), other.size()));
    });
  }
}

// A load keeps what it may have to take back in memory that nobody uses, and a save in flight does.
void a_load_meanwhile_leaves_a_save_alone(void**) {
  for (const int32_t ranks : {1, 2}) {
    save_while(ranks,
               [](SavingRank& self, const OwnFolder& folder) { OK(self.load(folder / "before")); });
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(steps_taken_meanwhile_are_not_in_a_save),
      cmocka_unit_test(what_the_host_puts_meanwhile_is_not_in_a_save),
      cmocka_unit_test(a_load_meanwhile_leaves_a_save_alone),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Damaged checkpoints: every byte changed, every length cut, files missing, doubled and swapped.
// Always an error that names the file, never another state, never a crash (also under ASan).
// SPDX-License-Identifier: BSD-3-Clause
#include <barrier>
#include <fstream>

#include "disk_model.h"
#include "fault_help.h"
#include "saved_runs.h"

using faults::kRanks;
using faults::Outcome;
using faults::OwnFolder;
using faults::SavingRank;
using faults::State;

namespace {

namespace fs = std::filesystem;
constexpr int64_t kStep = 2; // of the checkpoint

const std::vector<State>& expected() {
  static const std::vector<State> states = faults::states_of_a_run(3);
  return states;
}

// A checkpoint "ckpt" of two ranks in a folder, "latest" beside it.
void make_checkpoint(const std::string& folder, int64_t step = kStep) {
  faults::at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
    SavingRank self(rank, kRanks, group);
    self.train_to(step);
    OK(self.save(folder + "/ckpt", {false, false, 0, true}));
    self.close();
  });
}

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

bool is_about_a_file(const Outcome& outcome) {
  return outcome.status >= ZERO_ERR_FILE_FORMAT && outcome.status <= ZERO_ERR_FILE_MISMATCH;
}

// A runtime of one rank that is loaded into again and again.
class Loader {
 public:
  Loader() : self_(0, 1, "") { before_ = self_.state(); }
  // A sentence, or nothing: a whole load or none at all.
  std::string wrong_load(const std::string& path) {
    const Outcome loaded = faults::outcome(self_.load(path));
    const State now = self_.state();
    if (loaded.status == ZERO_OK) {
      return now == expected()[kStep] ? again() : "a load took what is wrong";
    }
    if (!is_about_a_file(loaded) && loaded.status != ZERO_ERR_NOT_FOUND) {
      return "refused by " + loaded.text;
    }
    return now == before_ ? "" : "a load that failed has changed the state";
  }

 private:
  std::string again() { // back to what it was before
    before_ = self_.state();
    return "";
  }
  SavingRank self_;
  State before_;
};

// Verify must find it; a load takes nothing that is wrong.
std::string wrong_judgement(Loader* loader, const std::string& path, const std::string& file) {
  State state;
  int64_t step = 0;
  const Outcome read = faults::read_state(path, &state, &step);
  if (read.status == ZERO_OK) return "nobody noticed";
  const bool absent = read.status == ZERO_ERR_NOT_FOUND && !fs::exists(path + "/" + file);
  if (!is_about_a_file(read) && !absent) return "verify is refused by " + read.text;
  if (read.text.find(file) == std::string::npos) return "no file is named: " + read.text;
  return loader->wrong_load(path);
}

template <typename Damage>
void for_each_file(const Damage& damage) {
  const OwnFolder folder;
  make_checkpoint(folder.path());
  assert_string_equal(faults::wrong_at(folder / "ckpt", expected(), kStep, kStep).c_str(), "");
  Loader loader;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "ckpt")) {
    const std::string path = entry.path().string();
    const std::string whole = read_bytes(path);
    damage(&loader, folder / "ckpt", path, whole);
    write_bytes(path, whole);
    ++files;
  }
  assert_int_equal(files, kRanks + 1);
  assert_string_equal(faults::wrong_at(folder / "ckpt", expected(), kStep, kStep).c_str(), "");
  assert_string_equal(loader.wrong_load(folder.path()).c_str(), ""); // through "latest"
}

// The quick tier looks at some: a prime apart, and all at the start and at the end.
bool is_looked_at(size_t at, size_t size) {
  return ranks::full_tier() || at < 64 || at + 16 >= size || at % 61 == 0;
}

void report(const std::string& wrong, const std::string& path, const char* what, size_t at) {
  if (wrong.empty()) return;
  print_error("%s, %s %zu: %s\n", path.c_str(), what, at, wrong.c_str());
  assert_true(false);
}

void every_changed_byte_is_an_error(void**) {
  for_each_file([](Loader* loader, const std::string& checkpoint, const std::string& path,
                   const std::string& whole) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](size_t at, int change) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(whole[at] ^ change));
      file.flush();
    };
    for (size_t at = 0; at < whole.size(); ++at) {
      if (!is_looked_at(at, whole.size())) continue;
      // One bit, another one for each byte; and sometimes all of them.
      put(at, at % 5 == 4 ? 255 : 1 << at % 8);
      report(wrong_judgement(loader, checkpoint, fs::path(path).filename()), path, "byte", at);
      put(at, 0);
    }
  });
}

void every_truncation_is_an_error(void**) {
  for_each_file([](Loader* loader, const std::string& checkpoint, const std::string& path,
                   const std::string& whole) {
    for (size_t size = whole.size(); size-- > 0;) {
      if (!is_looked_at(size, whole.size())) continue;
      fs::resize_file(path, size);
      report(wrong_judgement(loader, checkpoint, fs::path(path).filename()), path, "length", size);
    }
  });
}

void bytes_behind_the_end_are_an_error(void**) {
  for_each_file([](Loader* loader, const std::string& checkpoint, const std::string& path,
                   const std::string& whole) {
    for (const size_t more : {size_t{1}, size_t{4096}}) {
      write_bytes(path, whole + std::string(more, '\0'));
      report(wrong_judgement(loader, checkpoint, fs::path(path).filename()), path, "behind", more);
    }
  });
}

void a_missing_file_is_named(void**) {
  for_each_file([](Loader* loader, const std::string& checkpoint, const std::string& path,
                   const std::string&) {
    fs::remove(path);
    report(wrong_judgement(loader, checkpoint, fs::path(path).filename()), path, "missing", 0);
  });
}

// Each is a sound file, but not the one that belongs there.
void a_file_of_another_rank_or_another_save_is_noticed(void**) {
  const OwnFolder other;
  make_checkpoint(other.path(), kStep + 1);
  for_each_file([&](Loader* loader, const std::string& checkpoint, const std::string& path,
                    const std::string& whole) {
    const std::string name = fs::path(path).filename();
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      if (entry.path() == path || read_bytes(entry.path().string()) == whole) continue;
      write_bytes(path, read_bytes(entry.path().string()));
      report(wrong_judgement(loader, checkpoint, name), path, "swapped", 0);
    }
    const std::string stranger = read_bytes(other / ("ckpt/" + name));
    assert_true(stranger != whole);
    write_bytes(path, stranger);
    State state;
    int64_t step = 0;
    assert_true(is_about_a_file(faults::read_state(checkpoint, &state, &step)));
    report(loader->wrong_load(checkpoint), path, "from another save", 0);
  });
}

void a_damaged_pointer_leads_nowhere_or_to_the_right_one(void**) {
  const OwnFolder folder;
  make_checkpoint(folder.path());
  const std::string whole = read_bytes(folder / "latest");
  std::vector<std::string> contents = {"",  "\n", "ckpt-9", "..",
                                       ".", "/",  "../x",   std::string(5000, 'a')};
  for (size_t at = 0; at < whole.size(); ++at) {
    contents.push_back(whole.substr(0, at));
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      contents.push_back(changed);
    }
  }
  for (const std::string& content : contents) {
    write_bytes(folder / "latest", content);
    State state;
    int64_t step = 0;
    const Outcome read = faults::read_state(folder.path(), &state, &step);
    if (read.status == ZERO_OK) {
      assert_true(state == expected()[kStep]);
    } else {
      faults::assert_contains(read.text, "latest");
    }
    // Named itself, it needs no pointer.
    assert_string_equal(faults::wrong_at(folder / "ckpt", expected(), kStep, kStep).c_str(), "");
  }
  fs::remove(folder / "latest");
  State state;
  int64_t step = 0;
  const Outcome read = faults::read_state(folder.path(), &state, &step);
  assert_int_not_equal(read.status, ZERO_OK);
  faults::assert_contains(read.text, "latest");
}

// Damage that one rank alone reads.
void damage_seen_by_one_rank_is_the_same_error_on_all(void**) {
  const OwnFolder folder;
  make_checkpoint(folder.path());
  for (const auto& entry : fs::directory_iterator(folder / "ckpt")) {
    const std::string path = entry.path().string();
    const std::string whole = read_bytes(path);
    for (const size_t at : {size_t{1}, whole.size() / 2, whole.size() - 1}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x10);
      write_bytes(path, changed);
      std::vector<Outcome> outcomes(kRanks);
      faults::at_thread_ranks(kRanks, [&](int32_t rank, const std::string& group) {
        SavingRank self(rank, kRanks, group, 3);
        self.train_to(1);
        const State before = self.state();
        zero_checkpoint* checkpoint = nullptr;
        Outcome& told = outcomes[static_cast<size_t>(rank)];
        told = faults::outcome(zero_checkpoint_open((folder / "ckpt").c_str(), &checkpoint));
        if (told.status == ZERO_OK) {
          told = faults::outcome(zero_checkpoint_load(self.runtime(), checkpoint, nullptr));
        }
        zero_checkpoint_destroy(checkpoint);
        const State now = self.state();
        EXPECT(now == (told.status == ZERO_OK ? expected()[kStep] : before));
        self.train_to(2); // nothing broke
        self.close();
      });
      assert_true(outcomes[0] == outcomes[1]);
    }
    write_bytes(path, whole);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_changed_byte_is_an_error),
      cmocka_unit_test(every_truncation_is_an_error),
      cmocka_unit_test(bytes_behind_the_end_are_an_error),
      cmocka_unit_test(a_missing_file_is_named),
      cmocka_unit_test(a_file_of_another_rank_or_another_save_is_noticed),
      cmocka_unit_test(a_damaged_pointer_leads_nowhere_or_to_the_right_one),
      cmocka_unit_test(damage_seen_by_one_rank_is_the_same_error_on_all),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

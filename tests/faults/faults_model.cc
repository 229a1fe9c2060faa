// The tools that prove crash safety, proved themselves: the modelled disk equals the real one where
// nothing is lost, loses what nobody synced, and finds the usual mistakes of writers.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/file.h"
#include "disk_model.h"
#include "fault_help.h"

using faults::Action;
using faults::Call;
using faults::DiskModel;
using faults::Left;
using faults::OwnFolder;

namespace {

using Tree = std::map<std::string, std::string>;
const std::string kOld(1500, 'o');
const std::string kNew(2500, 'n');

// What is left after a power cut behind each of the calls, in each of the ways.
void for_each_cut(const DiskModel& start, const std::vector<Call>& calls, int seeds,
                  const std::function<void(const Tree&)>& check) {
  DiskModel disk = start;
  const OwnFolder folder;
  for (size_t done = 0;; ++done) {
    for (const Left left : faults::kLefts) {
      for (int seed = 0; seed < (left == Left::kSome ? seeds : 1); ++seed) {
        disk.write_what_is_left(folder / "disk", left, static_cast<uint64_t>(seed));
        check(faults::read_tree(folder / "disk"));
        faults::remove_tree_of(folder / "disk");
      }
    }
    if (done == calls.size()) return;
    disk.apply(calls[done]);
  }
}

// How often a writer of "a" leaves neither the old bytes nor the new.
int wrong_states(const std::function<void(const std::string&)>& write) {
  const OwnFolder folder;
  const std::string root = folder / "root";
  zero::make_folders(root);
  zero::write_file(root + "/a", kOld);
  const DiskModel start(root);
  const std::vector<Call> calls = faults::record([&] { write(root + "/a"); });
  int wrong = 0;
  bool last_is_new = false;
  for_each_cut(start, calls, 40, [&](const Tree& tree) {
    const auto a = tree.find("a");
    const bool is_new = a != tree.end() && a->second == kNew;
    if (!is_new && (a == tree.end() || a->second != kOld)) ++wrong;
    last_is_new = is_new; // of the last cut, when all is done
  });
  return last_is_new ? wrong : wrong + 1;
}

void what_is_synced_is_left_and_nothing_else_need_be(void**) {
  assert_int_equal(wrong_states([](const std::string& path) { zero::replace_file(path, kNew); }),
                   0);
}

void a_writer_in_place_is_found(void**) {
  assert_true(wrong_states([](const std::string& path) {
                zero::remove_file(path);
                zero::write_file(path, kNew);
                zero::sync_folder(zero::parent_folder(path));
              }) > 0);
}

void a_rename_of_unsynced_bytes_is_found(void**) {
  assert_true(wrong_states([](const std::string& path) {
                zero::File file = zero::File::create(path + ".new");
                file.write(0, kNew.data(), kNew.size());
                file.close();
                zero::rename_path(path + ".new", path);
                zero::sync_folder(zero::parent_folder(path));
              }) > 0);
}

void a_folder_that_is_not_synced_is_found(void**) {
  assert_true(wrong_states([](const std::string& path) {
                zero::write_file(path + ".new", kNew);
                zero::rename_path(path + ".new", path);
              }) > 0);
}

void a_name_in_a_folder_renamed_before_its_sync_is_found(void**) {
  const OwnFolder folder;
  const std::string root = folder / "root";
  zero::make_folders(root);
  const DiskModel start(root);
  const auto write = [&](bool with_sync) {
    std::filesystem::remove_all(root + "/done");
    return faults::record([&] {
      zero::make_folder(root + "/t");
      zero::write_file(root + "/t/x", kNew);
      if (with_sync) zero::sync_folder(root + "/t");
      zero::rename_path(root + "/t", root + "/done");
      zero::sync_folder(root);
    });
  };
  for (const bool with_sync : {true, false}) {
    int wrong = 0;
    for_each_cut(start, write(with_sync), 20, [&](const Tree& tree) {
      if (tree.count("done/") == 0) return;
      const auto x = tree.find("done/x");
      if (x == tree.end() || x->second != kNew) ++wrong;
    });
    assert_int_equal(wrong == 0, with_sync);
  }
}

void where_nothing_is_lost_the_model_is_the_disk(void**) {
  const OwnFolder folder;
  const std::string root = folder / "root";
  zero::make_folders(root + "/old");
  zero::write_file(root + "/old/x", kOld);
  DiskModel disk(root);
  const std::vector<Call> calls = faults::record([&] {
    zero::make_folders(root + "/a/b");
    zero::File file = zero::File::create(root + "/a/b/c");
    file.write(700, kNew.data(), kNew.size());
    file.resize(1000);
    file.close();
    zero::write_file(root + "/a/y", kOld);
    zero::exchange_paths(root + "/a", root + "/old");
    zero::rename_path(root + "/old/y", root + "/old/z");
    zero::remove_file(root + "/a/x");
    zero::replace_file(root + "/latest", "a");
  });
  for (const Call& call : calls) disk.apply(call);
  disk.write_what_is_left(folder / "again", Left::kEverything, 0);
  assert_true(faults::read_tree(folder / "again") == faults::read_tree(root));
}

void each_fault_leaves_the_old_bytes_or_the_new(void**) {
  const OwnFolder folder;
  const std::string path = folder / "a";
  const auto work = [&] { zero::replace_file(path, kNew); };
  zero::write_file(path, kOld);
  const auto points = faults::points_of(folder.path(), work);
  assert_true(points.size() >= 8);
  for (const auto& point : points) {
    for (const Action action :
         {Action::kNoSpace, Action::kIoError, Action::kInterrupted, Action::kShort, Action::kDie}) {
      faults::record([&] { zero::replace_file(path, kOld); }); // without waiting for the disk
      faults::Thrown outcome;
      const int code = faults::in_a_child([&] {
        bool came = false;
        came = faults::with_fault(folder.path(), point, action,
                                  [&] { outcome = faults::thrown_by(work); });
        _exit(!came ? 1 : outcome.status == ZERO_OK ? 0 : 2);
      });
      const std::string left = zero::read_file(path, 1 << 20);
      assert_true(left == kOld || left == kNew);
      if (action == Action::kDie) {
        assert_int_equal(code, faults::WatchedFiles::kDeathCode);
      } else if (action == Action::kInterrupted || action == Action::kShort) {
        assert_int_equal(code, 0);
        assert_true(left == kNew);
      } else if (code == 0) {
        assert_true(left == kNew); // only the closing of a synced folder may fail unsaid
        assert_int_equal(point.kind, faults::Kind::kClose);
      } else {
        assert_int_equal(code, 2);
      }
      faults::record(work); // what a fault left behind is in nobody's way
      assert_true(zero::read_file(path, 1 << 20) == kNew);
    }
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(where_nothing_is_lost_the_model_is_the_disk),
      cmocka_unit_test(what_is_synced_is_left_and_nothing_else_need_be),
      cmocka_unit_test(a_writer_in_place_is_found),
      cmocka_unit_test(a_rename_of_unsynced_bytes_is_found),
      cmocka_unit_test(a_folder_that_is_not_synced_is_found),
      cmocka_unit_test(a_name_in_a_folder_renamed_before_its_sync_is_found),
      cmocka_unit_test(each_fault_leaves_the_old_bytes_or_the_new),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

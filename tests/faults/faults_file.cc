// Whole transfers and clear errors of src/base/file, with the kernel beneath it and with a file
// system that interrupts, shortens and fails.
// SPDX-License-Identifier: BSD-3-Clause
#include <thread>

#include "base/file.h"
#include "disk_model.h"
#include "fault_help.h"

using faults::Action;
using faults::Call;
using faults::Kind;
using faults::OwnFolder;
using faults::Thrown;
using faults::thrown_by;
using zero::Caching;
using zero::File;
using zero::PathKind;

namespace {

std::string pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

// Every call of one kind is treated the same, `every` calls apart.
struct Treatment {
  Kind kind;
  Action action;
  int every;
};

std::function<Action(const Call&)> each(const Treatment& treatment) {
  return [treatment, count = 0](const Call& call) mutable {
    if (call.kind != treatment.kind) return Action::kPass;
    return count++ % treatment.every == 0 ? treatment.action : Action::kPass;
  };
}

void short_and_interrupted_transfers_are_whole(void**) {
  const std::string bytes = pattern(100000);
  for (const Action action : {Action::kInterrupted, Action::kShort}) {
    for (const Caching caching : {Caching::kCached, Caching::kDirect}) {
      for (const Kind kind : {Kind::kWrite, Kind::kRead, Kind::kOpen, Kind::kCreate, Kind::kSync,
                              Kind::kClose, Kind::kLook, Kind::kTruncate}) {
        const OwnFolder folder;
        faults::WatchedFiles files;
        files.judge = each({kind, action, 2});
        zero::set_file_system(&files);
        File file = File::create(folder / "a", caching);
        file.write(0, bytes.data(), bytes.size());
        file.resize(bytes.size());
        file.sync();
        file.close();
        file = File::open(folder / "a", caching);
        assert_int_equal(file.size(), bytes.size());
        std::string back(bytes.size(), '\0');
        file.read(0, back.data(), back.size());
        assert_true(back == bytes);
        zero::set_file_system(nullptr);
      }
    }
  }
}

void aligned_transfers_go_past_the_cache_where_the_disk_allows(void**) {
  const OwnFolder folder;
  const zero::AlignedBuffer out(3 * 4096);
  assert_int_equal(reinterpret_cast<uintptr_t>(out.data()) % zero::kDirectAlignment, 0);
  const std::string bytes = pattern(out.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  File file = File::create(folder / "a", Caching::kDirect);
  const bool possible = file.direct();
  file.write(4096, out.data(), 2 * 4096);
  file.write(0, out.data(), 4096);
  assert_int_equal(file.direct(), possible);
  file.write(3 * 4096, out.data(), 5); // no multiple: through the cache, and right
  assert_false(file.direct());
  file.sync_data();
  file.close();
  const std::string content = zero::read_file(folder / "a", 1 << 20);
  assert_true(content == bytes.substr(0, 4096) + bytes.substr(0, 2 * 4096) + bytes.substr(0, 5));
  assert_int_equal(zero::AlignedBuffer(0).size(), 0);
  assert_int_equal(zero::AlignedBuffer(1).size(), 4096);
}

void failed_calls_name_path_wish_and_reason(void**) {
  const OwnFolder folder;
  const std::string path = folder / "a";
  const auto work = [&] {
    zero::remove_file(path);
    File file = File::create(path);
    file.write(4096, "hello", 5);
    file.resize(8192);
    file.sync();
    file.close();
    file = File::open(path);
    char back[5];
    file.read(4096, back, 5);
    zero::rename_path(path, path + "2");
    zero::remove_file(path + "2");
    zero::make_folder(folder / "f");
    zero::list_folder(folder / "f");
    zero::remove_tree(folder / "f");
    zero::sync_folder(folder.path());
  };
  int failed = 0;
  for (const auto& point : faults::points_of(folder.path(), work)) {
    for (const auto& [action, status, code] :
         {std::tuple{Action::kNoSpace, ZERO_ERR_NO_SPACE, ENOSPC},
          std::tuple{Action::kIoError, ZERO_ERR_IO, EIO}}) {
      Thrown outcome;
      assert_true(
          faults::with_fault(folder.path(), point, action, [&] { outcome = thrown_by(work); }));
      std::filesystem::remove_all(folder / "f");
      std::filesystem::remove_all(path);
      std::filesystem::remove_all(path + "2");
      // Only what is closed after reading, or after its own sync, is beyond failing.
      if (point.kind == Kind::kClose && outcome.status == ZERO_OK) continue;
      ++failed;
      assert_int_equal(outcome.status, status);
      assert_int_equal(outcome.native_code, code);
      faults::assert_contains(outcome.text, folder.path() + (point.path == "" ? "" : point.path));
      faults::assert_contains(outcome.text, std::strerror(code));
    }
  }
  assert_true(failed > 20);
}

void a_file_too_short_says_where_it_ends(void**) {
  const OwnFolder folder;
  zero::write_file(folder / "a", "0123456789");
  char back[8];
  Thrown outcome = thrown_by([&] { File::open(folder / "a").read(5, back, 8); });
  assert_int_equal(outcome.status, ZERO_ERR_FILE_INCOMPLETE);
  faults::assert_contains(outcome.text, "/a\" ends at byte 10, expected 8 bytes at offset 5");
  outcome = thrown_by([&] { zero::read_file(folder / "a", 9); });
  assert_int_equal(outcome.status, ZERO_ERR_FILE_FORMAT);
  faults::assert_contains(outcome.text, "has 10 bytes, expected at most 9");
  assert_int_equal(thrown_by([&] { File::open(folder / "b"); }).native_code, ENOENT);
}

void nothing_new_replaces_what_is_there(void**) {
  const OwnFolder folder;
  zero::write_file(folder / "a", "old");
  assert_int_equal(thrown_by([&] { File::create(folder / "a"); }).native_code, EEXIST);
  assert_int_equal(thrown_by([&] { zero::make_folder(folder / "a"); }).native_code, EEXIST);
  const Thrown in_the_way = thrown_by([&] { zero::make_folders(folder / "a/b"); });
  assert_int_equal(in_the_way.native_code, EEXIST);
  faults::assert_contains(in_the_way.text, folder / "a\"");
  zero::write_file(folder / "b", "new");
  assert_false(zero::rename_to_new(folder / "b", folder / "a"));
  assert_true(zero::rename_to_new(folder / "b", folder / "c"));
  assert_string_equal(zero::read_file(folder / "a", 9).c_str(), "old");
  assert_string_equal(zero::read_file(folder / "c", 9).c_str(), "new");
  // Full folders: never replaced, but exchanged.
  zero::make_folders(folder / "x/1");
  zero::make_folders(folder / "y/2");
  assert_false(zero::rename_to_new(folder / "x", folder / "y"));
  if (zero::exchange_paths(folder / "x", folder / "y")) {
    assert_int_equal(zero::path_info(folder / "x/2").kind, PathKind::kFolder);
    assert_int_equal(zero::path_info(folder / "y/1").kind, PathKind::kFolder);
  }
}

void removing_a_tree_does_not_follow_links(void**) {
  const OwnFolder folder;
  zero::make_folders(folder / "tree/a/b");
  zero::make_folders(folder / "other");
  zero::write_file(folder / "tree/a/b/c", "1");
  zero::write_file(folder / "other/kept", "2");
  std::filesystem::create_directory_symlink(folder / "other", folder / "tree/a/link");
  assert_int_equal(zero::path_info(folder / "tree/a/link").kind, PathKind::kFolder);
  assert_true(zero::list_folder(folder / "tree/a") == std::vector<std::string>({"b", "link"}));
  zero::remove_tree(folder / "tree");
  zero::remove_tree(folder / "tree"); // absent: fine
  zero::remove_file(folder / "tree");
  assert_int_equal(zero::path_info(folder / "tree").kind, PathKind::kAbsent);
  assert_int_equal(zero::path_info(folder / "other/kept").bytes, 1);
}

void all_ranks_may_make_one_folder(void**) {
  const OwnFolder folder;
  for (int round = 0; round < 50; ++round) {
    const std::string path = folder / ("r" + std::to_string(round) + "/a/b/c");
    std::vector<Thrown> outcomes(8);
    std::vector<std::thread> ranks;
    for (Thrown& outcome : outcomes) {
      ranks.emplace_back([&] { outcome = thrown_by([&] { zero::make_folders(path); }); });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const Thrown& outcome : outcomes) assert_string_equal(outcome.text.c_str(), "");
    assert_int_equal(zero::path_info(path).kind, PathKind::kFolder);
  }
}

void paths_are_cut_and_joined(void**) {
  const char* const cases[][3] = {{"a", ".", "a"},           {"a/b", "a", "b"},  {"/a", "/", "a"},
                                  {"a/b/", "a", "b"},        {"a//b", "a", "b"}, {"/", "/", ""},
                                  {"./a b/ü", "./a b", "ü"}, {"//a", "/", "a"}};
  for (const auto& [path, parent, name] : cases) {
    assert_string_equal(zero::parent_folder(path).c_str(), parent);
    assert_string_equal(zero::base_name(path).c_str(), name);
  }
  assert_string_equal(zero::join_path("a", "b").c_str(), "a/b");
  assert_string_equal(zero::join_path("/", "b").c_str(), "/b");
  assert_string_equal(zero::join_path("", "b").c_str(), "b");
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(short_and_interrupted_transfers_are_whole),
      cmocka_unit_test(aligned_transfers_go_past_the_cache_where_the_disk_allows),
      cmocka_unit_test(failed_calls_name_path_wish_and_reason),
      cmocka_unit_test(a_file_too_short_says_where_it_ends),
      cmocka_unit_test(nothing_new_replaces_what_is_there),
      cmocka_unit_test(removing_a_tree_does_not_follow_links),
      cmocka_unit_test(all_ranks_may_make_one_folder),
      cmocka_unit_test(paths_are_cut_and_joined),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Exports of weights whose k-th call on the disk fails, is cut short, or ends the process: what was
// there before stays whole until the new one is.
// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/safetensors_writer.h"
#include "fault_help.h"
#include "plan/safetensors_files.h"

using namespace faults;
using zero::checkpoint::SafetensorsLayout;
using zero::checkpoint::SafetensorsWriter;

namespace {

namespace fs = std::filesystem;

const std::string& data() {
  static const std::string bytes = [] {
    std::string made(3 << 20, '\0');
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<char>(i * 2654435761u >> 13);
    return made;
  }();
  return bytes;
}

// Two tensors of 1.5 MiB, so that a file takes several writes.
SafetensorsLayout layout(uint64_t limit) {
  const auto half = static_cast<uint64_t>(data().size() / 2);
  return zero::checkpoint::lay_out_safetensors(
      {{"a", ZERO_DTYPE_UINT8, {static_cast<int64_t>(half)}, half},
       {"b", ZERO_DTYPE_UINT8, {static_cast<int64_t>(half)}, half}},
      {}, limit);
}

void write(const std::string& path, const SafetensorsLayout& to, bool as_folder) {
  SafetensorsWriter writer(path, to, as_folder);
  for (size_t at = 0; at < data().size(); at += 700001) {
    writer.append(data().data() + at, std::min<size_t>(700001, data().size() - at));
  }
  writer.finish();
}

std::string bytes_of(const std::string& path) {
  return zero::read_file(path, 1 << 26);
}

// What is at path: the old one, or the new one, or nothing where nothing was.
bool is_new(const std::string& path, bool as_folder) {
  if (!as_folder) {
    const std::string found = bytes_of(path);
    if (found == "old") return false;
    assert_true(found == layout(0).files[0].header + data());
    return true;
  }
  if (!fs::exists(path)) return false;
  const SafetensorsLayout expected = layout(2 << 20);
  assert_int_equal(expected.files.size(), 2);
  std::string all;
  for (const auto& file : expected.files) {
    const std::string found = bytes_of(path + "/" + file.name);
    assert_true(found.compare(0, file.header.size(), file.header) == 0);
    all += found.substr(file.header.size());
  }
  assert_true(all == data());
  assert_true(bytes_of(path + "/" + zero::checkpoint::kSafetensorsIndex) == expected.index);
  return true;
}

size_t entries(const std::string& path) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

void every_call(bool as_folder) {
  const uint64_t limit = as_folder ? 2 << 20 : 0;
  const SafetensorsLayout to = layout(limit);
  const auto prepare = [&](const OwnFolder& folder) {
    if (!as_folder) zero::write_file(folder / "w", "old");
  };
  std::vector<Point> points;
  {
    const OwnFolder folder;
    prepare(folder);
    points = points_of(folder.path(), [&] { write(folder / "w", to, as_folder); });
    assert_true(is_new(folder / "w", as_folder));
  }
  assert_true(points.size() > 8);
  for (const Point& point : points) {
    for (const Action action :
         {Action::kNoSpace, Action::kIoError, Action::kInterrupted, Action::kShort, Action::kDie}) {
      const OwnFolder folder;
      prepare(folder);
      const std::string path = folder / "w";
      if (action == Action::kDie) {
        const int code = in_a_child(
            [&] { with_fault(folder.path(), point, action, [&] { write(path, to, as_folder); }); });
        assert_int_equal(code, WatchedFiles::kDeathCode);
        is_new(path, as_folder);
        write(folder / "again", to, as_folder); // what it left is in nobody's way
        continue;
      }
      Thrown thrown;
      const bool came = with_fault(folder.path(), point, action, [&] {
        thrown = thrown_by([&] { write(path, to, as_folder); });
      });
      assert_true(came);
      const bool made = is_new(path, as_folder);
      if (action == Action::kShort || action == Action::kInterrupted) {
        if (thrown.status != ZERO_OK)
          print_error("%s: %s\n", point.text().c_str(), thrown.text.c_str());
        assert_int_equal(thrown.status, ZERO_OK);
        assert_true(made);
      } else if (thrown.status == ZERO_OK) {
        assert_true(made);
      } else {
        assert_true(thrown.status == ZERO_ERR_IO || thrown.status == ZERO_ERR_NO_SPACE);
        assert_contains(thrown.text, folder.path());
      }
      // Nothing is left beside but where the removal itself could not be done.
      const size_t expected = fs::exists(path) ? 1 : 0;
      if (point.kind != Kind::kRemoveFile && point.kind != Kind::kRemoveFolder &&
          point.kind != Kind::kList && point.kind != Kind::kLook) {
        if (entries(folder.path()) != expected) print_error("%s\n", point.text().c_str());
        assert_int_equal(entries(folder.path()), expected);
      }
    }
  }
}

void a_file_of_weights_is_the_old_one_or_the_new_one_at_every_fault(void**) {
  every_call(false);
}

void a_folder_of_weights_is_whole_or_absent_at_every_fault(void**) {
  every_call(true);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_file_of_weights_is_the_old_one_or_the_new_one_at_every_fault),
      cmocka_unit_test(a_folder_of_weights_is_whole_or_absent_at_every_fault),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

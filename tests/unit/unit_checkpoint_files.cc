// A checkpoint written and read by one process: what is in it, what is asked of it, its damage.
// SPDX-License-Identifier: BSD-3-Clause
#include <zero.h>

#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}
#undef fail // a name that C++ headers use

using namespace zero::checkpoint;
using zero::join_path;

namespace {

std::string g_folder; // of this process

// Element i of part k of parameter p.
float element(int32_t p, int32_t k, uint64_t i) {
  return static_cast<float>(p * 1000000 + k * 100000) + static_cast<float>(i % 99991);
}

void put_element(const PieceItem& item, uint64_t offset, uint64_t count, std::byte* out) {
  for (uint64_t i = 0; i < count; ++i) {
    if (item.parameter < 0) {
      out[i] = static_cast<std::byte>((offset + i) * 7);
    } else {
      const float value = element(item.parameter, item.part, offset + i);
      std::memcpy(out + i * sizeof(float), &value, sizeof(float));
    }
  }
}

Manifest state_of(const std::vector<uint64_t>& sizes) {
  Manifest m;
  m.groups.push_back({"default"});
  m.optimizer = "Adam";
  m.state_names = {"exp_avg", "exp_avg_sq"};
  for (size_t p = 0; p < sizes.size(); ++p) {
    StoredParameter parameter;
    parameter.name = "p" + std::to_string(p);
    parameter.shape = {static_cast<int64_t>(sizes[p])};
    parameter.elements = sizes[p];
    parameter.parts.push_back({ZERO_PART_MASTER, 0, ZERO_DTYPE_FP32, {}});
    parameter.parts.push_back({ZERO_PART_STATE, 0, ZERO_DTYPE_FP32, {}});
    parameter.parts.push_back({ZERO_PART_STATE, 1, ZERO_DTYPE_FP32, {}});
    m.parameters.push_back(parameter);
  }
  m.blobs.push_back({"loader", 2, 0, 0, 1000});
  return m;
}

std::string write(const char* name, const std::vector<uint64_t>& sizes, int32_t ranks) {
  const std::string path = join_path(g_folder, name);
  zero::remove_tree(path);
  write_checkpoint(path, state_of(sizes), ranks, put_element);
  return path;
}

std::string all_bytes(const std::string& path) {
  return zero::read_file(path, UINT64_MAX);
}
void overwrite(const std::string& path, const std::string& bytes) {
  zero::remove_file(path);
  zero::write_file(path, bytes);
}

// Everything is as put_element wrote it.
bool reads_right(const CheckpointReader& reader) {
  const Manifest& manifest = reader.manifest();
  for (int32_t p = 0; p < static_cast<int32_t>(manifest.parameters.size()); ++p) {
    const uint64_t elements = manifest.parameters[static_cast<size_t>(p)].elements;
    for (int32_t k = 0; k < 3; ++k) {
      std::vector<float> values(elements);
      reader.read(p, k, 0, elements, reinterpret_cast<std::byte*>(values.data()));
      for (uint64_t i = 0; i < elements; ++i) {
        if (values[i] != element(p, k, i)) return false;
      }
    }
  }
  return true;
}

template <typename Call>
void refused(Call call, zero_status status, const char* word) {
  try {
    call();
  } catch (const zero::Error& error) {
    if (error.status() != status || std::strstr(error.what(), word) == nullptr) {
      print_error("%d: %s\n", error.status(), error.what());
    }
    assert_int_equal(error.status(), status);
    assert_non_null(std::strstr(error.what(), word));
    return;
  }
  print_error("not refused: %s\n", word);
  assert_true(false);
}

} // namespace

static void what_was_written_is_read_whatever_the_number_of_pieces(void**) {
  for (const int32_t ranks : {1, 2, 3, 12, 64}) {
    const std::string path = write("whole", {3, 1, 0, 120, 700000, 5}, ranks);
    const CheckpointReader reader(path);
    assert_int_equal(reader.manifest().world_size, ranks);
    assert_true(reads_right(reader));
    assert_true(reader.verify({}).empty());
    const std::string blob = reader.read_blob(reader.find_blob(2, "loader"));
    assert_int_equal(blob.size(), 1000);
    assert_int_equal(static_cast<unsigned char>(blob[999]), 999 * 7 % 256);
    assert_int_equal(reader.find_blob(1, "loader"), -1);
    std::vector<float> some(1000);
    reader.read(4, 2, 345678, 1000, reinterpret_cast<std::byte*>(some.data()));
    for (uint64_t i = 0; i < 1000; ++i) assert_true(some[i] == element(4, 2, 345678 + i));
  }
}

// Ranges that overlap, are empty, or come in any order.
static void many_ranges_at_once_are_delivered_each_whole(void**) {
  const CheckpointReader reader(write("many", {50, 600000, 7}, 3));
  std::vector<CheckpointReader::PartRange> asked;
  for (uint64_t i = 0; i < 40; ++i) {
    asked.push_back({1, static_cast<int32_t>(i % 3), 599000 - i * 14000, 900 + i, i});
  }
  asked.push_back({0, 0, 10, 0, 40});
  asked.push_back({1, 1, 0, 600000, 41});
  std::vector<uint64_t> delivered(asked.size(), 0);
  bool right = true;
  reader.read_all(asked, [&](const CheckpointReader::PartRange& range, uint64_t offset,
                             uint64_t count, const std::byte* data) {
    for (uint64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, data + i * sizeof(float), sizeof(float));
      right = right && value == element(range.parameter, range.part, range.offset + offset + i);
    }
    delivered[range.tag] += count;
  });
  assert_true(right);
  for (size_t i = 0; i < asked.size(); ++i) assert_int_equal(delivered[i], asked[i].count);
}

static void only_the_pieces_that_are_needed_are_opened(void**) {
  const std::string path = write("needed", {64000, 64000}, 2);
  const std::string second = join_path(path, "piece-00001.zero");
  std::string bytes = all_bytes(second);
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  overwrite(second, bytes);
  const CheckpointReader reader(path);
  std::vector<float> values(64000);
  reader.read(0, 0, 0, 64000, reinterpret_cast<std::byte*>(values.data()));
  assert_true(values[63999] == element(0, 0, 63999));
  refused([&] { reader.read(1, 0, 0, 1, reinterpret_cast<std::byte*>(values.data())); },
          ZERO_ERR_FILE_CORRUPT, "piece-00001.zero");
}

static void a_damaged_byte_is_found_with_its_file_offset_and_parameter(void**) {
  const std::string path = write("damaged", {100, 900000}, 1);
  const std::string piece = join_path(path, "piece-00000.zero");
  const std::string sound = all_bytes(piece);
  struct Case {
    uint64_t at;
    const char* word;
  };
  for (const Case& c :
       {Case{4096 + 5, "\"p0\" (master)"}, Case{4096 + (2 << 20), "\"p1\" (master)"},
        Case{0, "offset 0"}, Case{4095, "offset 0"}, Case{2000, "offset 0"},
        Case{sound.size() - 1, "checksums"}, Case{sound.size() - 5000, "\"p1\""}}) {
    std::string bytes = sound;
    bytes[c.at] = static_cast<char>(bytes[c.at] ^ 16);
    overwrite(piece, bytes);
    const std::vector<Damage> found = CheckpointReader(path).verify({});
    assert_int_equal(found.size(), 1);
    assert_string_equal(found[0].file.c_str(), piece.c_str());
    assert_true(found[0].begin <= c.at && c.at < found[0].end);
    if (std::strstr(found[0].what.c_str(), c.word) == nullptr) {
      print_error("%llu: %s\n", static_cast<unsigned long long>(c.at), found[0].what.c_str());
    }
    assert_non_null(std::strstr(found[0].what.c_str(), c.word));
  }
}

// R082
static void a_missing_or_doubled_piece_is_an_error_that_names_the_rank(void**) {
  const std::string path = write("twelve", {1200}, 12);
  const std::string one = join_path(path, "piece-00003.zero");
  const std::string two = join_path(path, "piece-00004.zero");
  const std::string first = all_bytes(one), second = all_bytes(two);
  zero::remove_file(two);
  refused([&] { CheckpointReader{path}; }, ZERO_ERR_FILE_INCOMPLETE, "rank 4");
  overwrite(two, first);
  refused([&] { reads_right(CheckpointReader(path)); }, ZERO_ERR_FILE_MISMATCH, "rank 3");
  overwrite(two, second.substr(0, second.size() - 1));
  refused([&] { CheckpointReader{path}; }, ZERO_ERR_FILE_INCOMPLETE, "rank 4");
  overwrite(two, second + "x");
  refused([&] { CheckpointReader{path}; }, ZERO_ERR_FILE_CORRUPT, "rank 4");
  const std::string other = write("twelve-others", {1200}, 12);
  overwrite(two, all_bytes(join_path(other, "piece-00004.zero")));
  refused([&] { reads_right(CheckpointReader(path)); }, ZERO_ERR_FILE_MISMATCH, "another");
  overwrite(two, second);
  assert_true(reads_right(CheckpointReader(path)));
}

// R097
static void a_pointer_names_what_it_looked_for(void**) {
  const std::string parent = join_path(g_folder, "runs");
  zero::make_folders(parent);
  const std::string path = write("runs/step-5", {10}, 1);
  const std::string latest = join_path(parent, "latest");
  refused([&] { CheckpointReader{parent}; }, ZERO_ERR_NOT_FOUND, "\"latest\"");
  refused([&] { CheckpointReader{latest}; }, ZERO_ERR_NOT_FOUND, "runs/latest");
  overwrite(latest, "step-9\n");
  refused([&] { CheckpointReader{parent}; }, ZERO_ERR_NOT_FOUND, "step-9/manifest.zero");
  overwrite(latest, "");
  refused([&] { CheckpointReader{parent}; }, ZERO_ERR_FILE_FORMAT, "latest");
  overwrite(latest, "../runs/step-5");
  refused([&] { CheckpointReader{parent}; }, ZERO_ERR_FILE_FORMAT, "latest");
  assert_true(reads_right(CheckpointReader(path)));
  point_latest(path, "latest");
  assert_true(reads_right(CheckpointReader(parent)));
  assert_true(reads_right(CheckpointReader(latest)));
  assert_string_equal(CheckpointReader(latest).folder().c_str(), path.c_str());
}

static void an_existing_target_is_refused_and_left_alone(void**) {
  const std::string path = write("exists", {10}, 2);
  refused([&] { write_checkpoint(path, state_of({20}), 1, put_element); },
          ZERO_ERR_INVALID_ARGUMENT, "exists already");
  const CheckpointReader reader(path);
  assert_int_equal(reader.manifest().parameters[0].elements, 10);
  assert_true(reads_right(reader));
}

static void what_fails_leaves_nothing_behind(void**) {
  const std::string parent = join_path(g_folder, "clean");
  zero::make_folders(parent);
  refused(
      [&] {
        write_checkpoint(join_path(parent, "x"), state_of({3000000}), 2,
                         [](const PieceItem&, uint64_t offset, uint64_t, std::byte*) {
                           if (offset > 0) zero::fail(ZERO_ERR_USER, "enough");
                         });
      },
      ZERO_ERR_USER, "enough");
  assert_true(zero::list_folder(parent).empty());
}

// Keeps, of the names, all but these.
static void check_kept(std::vector<Kept> all, int32_t last, int32_t every, const char* newest,
                       const char* latest, std::vector<std::string> gone) {
  std::vector<std::string> result = superseded(std::move(all), last, every, newest, latest);
  std::sort(result.begin(), result.end());
  assert_true(result == gone);
}

static void the_rule_of_retention(void**) {
  const std::vector<Kept> all = {{"a", 10, 1}, {"b", 20, 2}, {"c", 30, 3}, {"d", 40, 4}};
  check_kept(all, 0, 0, "d", "", {});
  check_kept(all, 0, 10, "d", "", {});
  check_kept(all, 4, 0, "d", "", {});
  check_kept(all, 2, 0, "d", "", {"a", "b"});
  check_kept(all, 1, 0, "d", "", {"a", "b", "c"});
  check_kept(all, 1, 20, "d", "", {"a", "c"});
  check_kept(all, 1, 0, "d", "b", {"a", "c"});
  // The one just written counts as the newest even at an earlier step.
  check_kept(all, 1, 0, "a", "", {"b", "c", "d"});
  check_kept({{"a", 10, 1}}, 1, 0, "a", "", {});
  check_kept({{"a", 10, 1}, {"b", 10, 2}, {"c", 9, 3}}, 2, 0, "b", "", {"c"});
}

static void retention_deletes_no_other_run_and_counts_only_whole_ones(void**) {
  const std::string parent = join_path(g_folder, "kept");
  zero::make_folders(parent);
  const auto save = [&](const char* name, int64_t step, uint64_t run) {
    Manifest m = state_of({10});
    m.step = step;
    m.run = run;
    write_checkpoint(join_path(parent, name), m, 1, put_element);
  };
  save("other", 1, 99);
  save("s1", 1, 5);
  save("s2", 2, 5);
  save("s3", 3, 5);
  save("s4", 4, 5);
  zero::make_folder(join_path(parent, "notes"));
  // s3 is not whole: it neither counts nor goes.
  zero::remove_file(join_path(parent, "s3/piece-00000.zero"));
  apply_retention(join_path(parent, "s4"), 5, 2, 0, "");
  assert_true(zero::list_folder(parent) ==
              (std::vector<std::string>{"notes", "other", "s2", "s3", "s4"}));
}

// Some 29 MB in one piece: more than all buffers of a reader.
const std::vector<uint64_t> kManyBuffers = {1500000, 7, 900000};

std::vector<CheckpointReader::PartRange> all_of_many_buffers() {
  std::vector<CheckpointReader::PartRange> asked;
  for (int32_t p = 0; p < 3; ++p) {
    for (int32_t k = 0; k < 3; ++k) {
      asked.push_back({p, k, 0, kManyBuffers[static_cast<size_t>(p)], asked.size()});
    }
  }
  return asked;
}

void a_piece_larger_than_the_buffers_is_delivered_whole_and_right(void**) {
  const CheckpointReader reader(write("ahead", kManyBuffers, 1));
  std::vector<CheckpointReader::PartRange> asked = all_of_many_buffers();
  // Holes too: of less than a section, and of more than a buffer.
  asked[1].offset = 1499990;
  asked[1].count = 10;
  asked[2].offset = 300001;
  asked[2].count = 1100000;
  asked[8].count = 899999;
  std::vector<uint64_t> seen(asked.size(), 0);
  reader.read_all(asked, [&](const CheckpointReader::PartRange& range, uint64_t offset,
                             uint64_t count, const std::byte* data) {
    assert_int_equal(offset, seen[range.tag]);
    if (offset == 0) usleep(20000); // the reader runs as far ahead as it may
    for (uint64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, data + i * sizeof(float), sizeof(float));
      const float expected = element(range.parameter, range.part, range.offset + offset + i);
      if (value != expected) assert_float_equal(value, expected, 0);
    }
    seen[range.tag] += count;
  });
  for (size_t r = 0; r < asked.size(); ++r) assert_int_equal(seen[r], asked[r].count);
}

void what_goes_wrong_while_reading_ahead_is_the_readers_error(void**) {
  const std::string path = write("ahead-damaged", kManyBuffers, 1);
  const std::string file = join_path(path, piece_name(0));
  const std::vector<CheckpointReader::PartRange> asked = all_of_many_buffers();
  const CheckpointReader reader(path);
  uint64_t delivered = 0;
  const auto count_elements = [&](const CheckpointReader::PartRange&, uint64_t, uint64_t count,
                                  const std::byte*) { delivered += count; };
  // Who leaves in the middle may begin again.
  const auto leave = [](const CheckpointReader::PartRange&, uint64_t, uint64_t, const std::byte*) {
    zero::fail(ZERO_ERR_INVALID_STATE, "enough");
  };
  refused([&] { reader.read_all(asked, leave); }, ZERO_ERR_INVALID_STATE, "enough");
  reader.read_all(asked, count_elements);
  assert_int_equal(delivered, 3 * (1500000 + 7 + 900000));
  // A byte in the last section of the data.
  const std::string bytes = all_bytes(file);
  std::string damaged = bytes;
  damaged[static_cast<size_t>(reader.manifest().pieces[0].table_position) - 5000] ^= 1;
  overwrite(file, damaged);
  const CheckpointReader second(path);
  delivered = 0;
  refused([&] { second.read_all(asked, {}); }, ZERO_ERR_FILE_CORRUPT, "do not have their checksum");
  refused([&] { second.read_all(asked, count_elements); }, ZERO_ERR_FILE_CORRUPT, "is damaged");
  assert_true(delivered > 0);
  // The file loses its end under a reader that has it open.
  overwrite(file, bytes);
  const CheckpointReader third(path);
  third.read_all(asked, {});
  assert_int_equal(truncate(file.c_str(), 20 << 20), 0);
  refused([&] { third.read_all(asked, {}); }, ZERO_ERR_FILE_INCOMPLETE, "ends at byte");
}

int main() {
  char name[] = "/tmp/zero-unit-checkpoint-XXXXXX";
  if (mkdtemp(name) == nullptr) return 1;
  g_folder = name;
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_was_written_is_read_whatever_the_number_of_pieces),
      cmocka_unit_test(many_ranges_at_once_are_delivered_each_whole),
      cmocka_unit_test(a_piece_larger_than_the_buffers_is_delivered_whole_and_right),
      cmocka_unit_test(what_goes_wrong_while_reading_ahead_is_the_readers_error),
      cmocka_unit_test(only_the_pieces_that_are_needed_are_opened),
      cmocka_unit_test(a_damaged_byte_is_found_with_its_file_offset_and_parameter),
      cmocka_unit_test(a_missing_or_doubled_piece_is_an_error_that_names_the_rank),
      cmocka_unit_test(a_pointer_names_what_it_looked_for),
      cmocka_unit_test(an_existing_target_is_refused_and_left_alone),
      cmocka_unit_test(what_fails_leaves_nothing_behind),
      cmocka_unit_test(the_rule_of_retention),
      cmocka_unit_test(retention_deletes_no_other_run_and_counts_only_whole_ones),
  };
  const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
  zero::remove_tree(g_folder);
  return failed;
}

// What ranks say to one another by small files while a save is in flight, and what their silence
// says.
// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <memory>

#include "checkpoint/save_marks.h"
#include "fault_help.h"

using faults::Action;
using faults::Kind;
using faults::OwnFolder;
using zero::Error;
using zero::checkpoint::SaveMark;
using zero::checkpoint::SaveMarks;
using State = zero::checkpoint::SaveMarks::State;

namespace {

constexpr uint64_t kChecksum = 0x0123456789abcdef;

std::unique_ptr<SaveMarks> prepared(const OwnFolder& folder, int32_t rank) {
  auto marks = std::make_unique<SaveMarks>(folder.path(), rank);
  marks->prepare();
  return marks;
}

std::string file_of(const OwnFolder& folder, int32_t rank) {
  return folder / ("rank-0000" + std::to_string(rank) + ".mark");
}
std::string bytes_at(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
// In place, so that a lock on it stays.
void put_bytes(const std::string& path, const std::string& bytes) {
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << bytes;
}

void what_a_rank_says_is_what_another_reads(void**) {
  const OwnFolder folder;
  const SaveMarks reader(folder.path(), 0);
  const auto speaker = prepared(folder, 1);
  SaveMark heard;
  assert_true(reader.read(1, &heard) == State::kSilent);
  SaveMark mark;
  mark.table_checksum = kChecksum;
  assert_true(speaker->put(mark));
  assert_true(reader.read(1, &heard) == State::kSaid);
  assert_true(heard.table_checksum == kChecksum);
  assert_false(heard.error.has_value());
  mark.error = Error(ZERO_ERR_NO_SPACE, "no room,\nsays the disk", 3, 28, "kernel");
  assert_true(speaker->put(mark));
  assert_true(reader.read(1, &heard) == State::kSaid);
  assert_true(heard.error.has_value());
  assert_int_equal(heard.error->status(), ZERO_ERR_NO_SPACE);
  assert_int_equal(heard.error->rank(), 3);
  assert_int_equal(heard.error->native_code(), 28);
  assert_string_equal(heard.error->message().c_str(), "no room,\nsays the disk");
  speaker->withdraw();
  assert_true(reader.read(1, &heard) == State::kWithdrawn);
}

// Another machine may see a mark half written.
void a_torn_mark_says_nothing(void**) {
  const OwnFolder folder;
  const SaveMarks reader(folder.path(), 0);
  const auto speaker = prepared(folder, 1);
  const std::string path = file_of(folder, 1), silent = bytes_at(path);
  SaveMark mark, heard;
  mark.table_checksum = kChecksum;
  assert_true(speaker->put(mark));
  const std::string said = bytes_at(path);
  assert_int_equal(said.size(), silent.size());
  for (size_t cut = 0; cut <= 64; ++cut) {
    put_bytes(path, said.substr(0, cut) + silent.substr(cut));
    const bool whole = said.substr(0, cut) + silent.substr(cut) == said;
    assert_true(reader.read(1, &heard) == (whole ? State::kSaid : State::kSilent));
  }
  for (size_t at = 0; at < 64; ++at) {
    std::string other = said;
    other[at] ^= 1;
    put_bytes(path, other);
    assert_true(reader.read(1, &heard) == State::kSilent);
  }
  put_bytes(path, said);
  assert_true(reader.read(1, &heard) == State::kSaid);
}

void who_ends_without_a_word_is_found_by_its_lock(void**) {
  const OwnFolder folder;
  const auto reader = prepared(folder, 0);
  auto speaker = prepared(folder, 1);
  reader->look_for_locks(1);
  SaveMark heard;
  assert_true(reader->read(1, &heard) == State::kSilent);
  speaker.reset();
  assert_true(reader->read(1, &heard) == State::kEnded);
}

// On a file system that keeps its locks to one machine nothing follows from a lock that is free.
void without_locks_of_others_silence_is_silence(void**) {
  const OwnFolder folder;
  const auto reader = prepared(folder, 0);
  faults::WatchedFiles files;
  files.judge = [](const faults::Call& call) {
    return call.kind == Kind::kLock ? Action::kIoError : Action::kPass;
  };
  zero::set_file_system(&files);
  auto unlocked = prepared(folder, 1);
  zero::set_file_system(nullptr);
  auto locked = prepared(folder, 2);
  reader->look_for_locks(1);
  SaveMark heard;
  unlocked.reset();
  locked.reset();
  assert_true(reader->read(1, &heard) == State::kSilent);
  assert_true(reader->read(2, &heard) == State::kSilent);
  reader->look_for_locks(7); // whose mark is not there
  assert_true(reader->read(2, &heard) == State::kSilent);
}

// It spoke after it was found silent, and ended before its lock was asked for.
void a_last_word_is_heard_before_an_end_is(void**) {
  const OwnFolder folder;
  const auto reader = prepared(folder, 0);
  auto speaker = prepared(folder, 1);
  reader->look_for_locks(1);
  const std::string path = file_of(folder, 1), silent = bytes_at(path);
  SaveMark mark, heard;
  mark.table_checksum = kChecksum;
  assert_true(speaker->put(mark));
  const std::string said = bytes_at(path);
  put_bytes(path, silent);
  speaker.reset();
  faults::WatchedFiles files;
  files.judge = [&](const faults::Call& call) {
    if (call.kind == Kind::kLock) put_bytes(path, said);
    return Action::kPass;
  };
  zero::set_file_system(&files);
  const State state = reader->read(1, &heard);
  zero::set_file_system(nullptr);
  assert_true(state == State::kSaid);
  assert_true(heard.table_checksum == kChecksum);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_a_rank_says_is_what_another_reads),
      cmocka_unit_test(a_torn_mark_says_nothing),
      cmocka_unit_test(who_ends_without_a_word_is_found_by_its_lock),
      cmocka_unit_test(without_locks_of_others_silence_is_silence),
      cmocka_unit_test(a_last_word_is_heard_before_an_end_is),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

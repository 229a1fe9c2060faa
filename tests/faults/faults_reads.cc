// How much of a checkpoint is read.
// SPDX-License-Identifier: BSD-3-Clause
#include "fault_help.h"
#include "training.h"

using faults::Kind;
using faults::OwnFolder;

namespace {

constexpr uint64_t kElements = 1500001;
constexpr uint64_t kBytes = kElements * 12; // a master and two moments of fp32

uint64_t read_by_ranks(int32_t ranks, const std::string& path) {
  training::ModelSpec model(1);
  model[0].name = "w";
  model[0].shape = {static_cast<int64_t>(kElements)};
  training::RunSpec spec;
  spec.stage = 2;
  spec.steps = 1;
  spec.ranks = ranks;
  const bool exists = std::filesystem::exists(path);
  (exists ? spec.load : spec.save) = path;
  spec.save_after = 1;
  uint64_t bytes = 0;
  faults::WatchedFiles files;
  files.note = [&](const faults::Call& call) {
    if (call.kind == Kind::kRead && call.path.find("piece-") != std::string::npos) {
      bytes += static_cast<uint64_t>(call.result);
    }
  };
  zero::set_file_system(&files);
  training::run_with_threads(model, spec);
  zero::set_file_system(nullptr);
  return bytes;
}

// A rank's share is cut out of what others wrote: at each of its edges there is at most a section
// of 128 KiB too much.  Three ranks take three parts each, one of them from two pieces.
void ranks_of_another_number_read_little_beside_what_they_need(void**) {
  const OwnFolder folder;
  const std::string path = folder / "ckpt";
  assert_true(read_by_ranks(2, path) == 0);
  constexpr uint64_t kSection = uint64_t{128} << 10;
  constexpr uint64_t kRanges = 3 * (1 + 2 + 1);
  constexpr uint64_t kHeadersAndTables = uint64_t{64} << 10;
  for (const int32_t ranks : {1, 2, 3}) {
    const uint64_t bytes = read_by_ranks(ranks, path);
    assert_in_range(bytes, kBytes, kBytes + kRanges * 2 * kSection + kHeadersAndTables);
  }
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_of_another_number_read_little_beside_what_they_need),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

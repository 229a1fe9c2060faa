// Why a communicator ended: one record, in memory that all ranks see; the first writer wins.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace zero::comm {

// All zero is "no failure": the record may lie in fresh shared memory.
struct FailureRecord {
  static constexpr uint32_t kTextBytes = 2000;
  std::atomic<uint32_t> state; // 0 none; kWriting + the writer's rank; kWritten
  std::atomic<int32_t> status;
  std::atomic<int32_t> rank; // at fault, -1 where nobody is
  std::atomic<int32_t> native_code;
  char text[kTextBytes]; // ordered by state
  char origin[32];
};

struct Failure {
  zero_status status = ZERO_OK;
  int32_t rank = -1;
  int32_t native_code = 0;
  std::string text;
  std::string origin = "libzero";
};

// False where another failure was there first.  Longer texts are cut.
bool post_failure(FailureRecord& record, int32_t writer, const Failure& failure) noexcept;

inline bool has_failure(const FailureRecord& record) {
  return record.state.load(std::memory_order_acquire) != 0;
}
// pre: has_failure.  A writer that died half-way is itself the rank at fault.
Failure read_failure(const FailureRecord& record);

// Throws the failure, with what this rank was doing behind it where that is not empty.
[[noreturn]] void throw_failure(const FailureRecord& record, const std::string& doing);

} // namespace zero::comm

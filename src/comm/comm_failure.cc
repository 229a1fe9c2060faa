// SPDX-License-Identifier: BSD-3-Clause
#include "comm/comm_failure.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace zero::comm {
namespace {

constexpr uint32_t kWritten = 1;
constexpr uint32_t kWriting = 2; // plus the writer's rank

void copy_text(char* dst, size_t capacity, const std::string& src) {
  const size_t length = std::min(capacity - 1, src.size());
  std::memcpy(dst, src.data(), length);
  dst[length] = '\0';
}

} // namespace

bool post_failure(FailureRecord& record, int32_t writer, const Failure& failure) noexcept {
  uint32_t none = 0;
  if (!record.state.compare_exchange_strong(none, kWriting + static_cast<uint32_t>(writer),
                                            std::memory_order_acq_rel)) {
    return false;
  }
  record.status.store(failure.status, std::memory_order_relaxed);
  record.rank.store(failure.rank, std::memory_order_relaxed);
  record.native_code.store(failure.native_code, std::memory_order_relaxed);
  copy_text(record.text, sizeof(record.text), failure.text);
  copy_text(record.origin, sizeof(record.origin), failure.origin);
  record.state.store(kWritten, std::memory_order_release);
  return true;
}

Failure read_failure(const FailureRecord& record) {
  uint32_t state = record.state.load(std::memory_order_acquire);
  // A writer needs microseconds; half a second without a result means it was killed in between.
  for (int tries = 0; state != kWritten && tries < 500; ++tries) {
    const timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, nullptr);
    state = record.state.load(std::memory_order_acquire);
  }
  Failure failure;
  if (state == kWritten) {
    failure.status = record.status.load(std::memory_order_relaxed);
    failure.rank = record.rank.load(std::memory_order_relaxed);
    failure.native_code = record.native_code.load(std::memory_order_relaxed);
    failure.text = record.text;
    failure.origin = record.origin;
  } else {
    failure.status = ZERO_ERR_COMM;
    failure.rank = static_cast<int32_t>(state - kWriting);
    failure.text = format("rank %d died while it reported a failure", failure.rank);
  }
  return failure;
}

void throw_failure(const FailureRecord& record, const std::string& doing) {
  Failure failure = read_failure(record);
  if (!doing.empty()) failure.text += "; " + doing;
  throw Error(failure.status, std::move(failure.text), failure.rank, failure.native_code,
              std::move(failure.origin));
}

} // namespace zero::comm

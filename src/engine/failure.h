// The error that ended a runtime: recorded once, by whichever thread met it first.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/error.h"

namespace zero::engine {

class Failure {
 public:
  // The first one wins.  Any thread.
  void record(const Error& error) noexcept;
  // The caller hears of it from the call in hand: later ones get FAILED.
  void record_told(const Error& error) noexcept;
  void mark_told() noexcept;
  // The same for a call that ended where the heap did.
  void record_no_memory() noexcept;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Throws the error itself the first time, afterwards FAILED with its text.
  void check();
  // OK, or the status of the error.  Any thread.
  zero_status status() const;
  std::string text() const;

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  zero_status status_ = ZERO_OK;
  std::unique_ptr<Error> error_; // null where there was no memory for it
  bool told_ = false;
};

} // namespace zero::engine

// SPDX-License-Identifier: BSD-3-Clause
#include "engine/failure.h"

namespace zero::engine {
namespace {

constexpr const char* kNoMemory = "no memory for libzero's own tables in the middle of a call";

} // namespace

void Failure::record(const Error& error) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_ != ZERO_OK) return;
  status_ = error.status();
  try {
    error_ = std::make_unique<Error>(error);
  } catch (const std::bad_alloc&) {
    // The status has to do.
  }
  failed_.store(true, std::memory_order_release);
}

void Failure::record_no_memory() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_ == ZERO_OK) status_ = ZERO_ERR_OUT_OF_MEMORY;
  failed_.store(true, std::memory_order_release);
}

void Failure::record_told(const Error& error) noexcept {
  record(error);
  mark_told();
}

void Failure::mark_told() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  told_ = true;
}

void Failure::check() {
  if (!failed()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Error error = error_ ? *error_ : Error(status_, kNoMemory);
  if (!told_) {
    told_ = true;
    throw error;
  }
  throw Error(ZERO_ERR_FAILED,
              "this runtime was ended by an earlier error; only status, texts and destroy work: " +
                  error.message(),
              error.rank(), error.native_code(), error.origin());
}

zero_status Failure::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

std::string Failure::text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) return error_->message();
  return status_ == ZERO_OK ? std::string() : std::string(kNoMemory);
}

} // namespace zero::engine

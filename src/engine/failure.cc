// SPDX-License-Identifier: BSD-3-Clause
#include "engine/failure.h"

namespace zero::engine {

void Failure::record(const Error& error) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) return;
  error_ = std::make_unique<Error>(error);
  failed_.store(true, std::memory_order_release);
}

void Failure::record_told(const Error& error) noexcept {
  record(error);
  const std::lock_guard<std::mutex> lock(mutex_);
  told_ = true;
}

void Failure::check() {
  if (!failed()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!told_) {
    told_ = true;
    throw *error_;
  }
  throw Error(ZERO_ERR_FAILED,
              "this runtime was ended by an earlier error; only status, texts and destroy work: " +
                  error_->message(),
              error_->rank(), error_->native_code(), error_->origin());
}

zero_status Failure::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_ ? error_->status() : ZERO_OK;
}

std::string Failure::text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_ ? error_->message() : std::string();
}

} // namespace zero::engine

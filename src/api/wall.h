// The exception wall: every C function is guard([&]{ ... }), and nothing but a status leaves it.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <new>
#include <string>

#include "base/error.h"

namespace zero::api {

// The thread's last error.
void set_last_error(const Error& error) noexcept;
// The same where there is no memory even for a sentence.
void set_out_of_memory() noexcept;
void set_bug(const char* what) noexcept;
// What a callback said by zero_set_last_error on this thread and nobody took yet, or "".
std::string take_callback_message();

template <typename Function>
zero_status guard(Function&& function) noexcept {
  try {
    function();
    return ZERO_OK;
  } catch (const Error& error) {
    set_last_error(error);
    return error.status();
  } catch (const std::bad_alloc&) {
    set_out_of_memory();
    return ZERO_ERR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    set_bug(error.what());
    return ZERO_ERR_INTERNAL;
  } catch (...) {
    set_bug("an unknown exception");
    return ZERO_ERR_INTERNAL;
  }
}

inline void require(const void* pointer, const char* name) {
  if (pointer == nullptr) fail(ZERO_ERR_INVALID_ARGUMENT, "%s is NULL", name);
}

// Text out, as zero.h says.
inline void write_text(const std::string& text, char* buffer, uint64_t capacity, uint64_t* length) {
  require(length, "length");
  if (buffer == nullptr && capacity != 0) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "buffer is NULL and capacity %llu, expected a buffer or 0",
         static_cast<unsigned long long>(capacity));
  }
  *length = text.size();
  if (capacity <= text.size()) {
    fail(ZERO_ERR_BUFFER_TOO_SMALL, "capacity is %llu, expected at least %zu",
         static_cast<unsigned long long>(capacity), text.size() + 1);
  }
  text.copy(buffer, text.size());
  buffer[text.size()] = '\0';
}

} // namespace zero::api

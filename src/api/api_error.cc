// zero.h, sections 1 and 2: version, features, status, errors.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "api/growing.h"
#include "api/version_tag.h"
#include "api/wall.h"
#include "comm/communicator.h"

namespace zero::api {
namespace {

struct LastError {
  zero_status status = ZERO_OK;
  int32_t rank = -1;
  int32_t native_code = 0;
  std::string origin;
  std::string message;
  bool lost = false; // there was no memory for the texts
  const std::string& text() const { return lost ? no_memory() : message; }

  static const std::string& no_memory() {
    static const std::string text = "no memory left"; // short: on no heap
    return text;
  }
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

void put(char* out, size_t capacity, const std::string& text) {
  const size_t length = std::min(capacity - 1, text.size());
  std::memcpy(out, text.data(), length);
  std::memset(out + length, 0, capacity - length);
}

} // namespace

void set_last_error(const Error& error) noexcept {
  LastError& last = last_error();
  last.status = error.status();
  last.rank = error.rank();
  last.native_code = error.native_code();
  last.lost = false;
  try {
    last.origin = error.origin();
    last.message = error.message();
  } catch (...) {
    last.lost = true;
  }
}

void set_out_of_memory() noexcept {
  try {
    set_last_error(Error(ZERO_ERR_OUT_OF_MEMORY, "no memory for libzero's own tables"));
  } catch (...) {
    LastError& last = last_error();
    last.status = ZERO_ERR_OUT_OF_MEMORY;
    last.rank = -1;
    last.native_code = 0;
    last.origin = "libzero";
    last.lost = true;
  }
}

void set_bug(const char* what) noexcept {
  try {
    set_last_error(Error(ZERO_ERR_INTERNAL, std::string("a bug in libzero: ") + what));
  } catch (...) {
    set_out_of_memory();
    last_error().status = ZERO_ERR_INTERNAL;
  }
}

std::string take_callback_message() {
  LastError& last = last_error();
  return last.origin == "callback" ? std::exchange(last.message, std::string()) : std::string();
}

} // namespace zero::api

using namespace zero::api; // the C functions below are outside of any namespace

int32_t zero_version_number(void) {
  return ZERO_VERSION_MAJOR * 10000 + ZERO_VERSION_MINOR * 100 + ZERO_VERSION_PATCH;
}

const char* zero_version_string(void) {
  static const auto text = [] {
    std::array<char, 200> made{};
    std::snprintf(made.data(), made.size(), "%d.%d.%d+%s", ZERO_VERSION_MAJOR, ZERO_VERSION_MINOR,
                  ZERO_VERSION_PATCH, kVersionTag);
    return made;
  }();
  return text.data();
}

int32_t zero_has_feature(zero_feature feature) {
  return feature == ZERO_FEATURE_LOCAL ? 1 : 0;
}

zero_status zero_feature_text(zero_feature feature, char* buffer, uint64_t capacity,
                              uint64_t* length) {
  return guard([&] {
    switch (feature) {
      case ZERO_FEATURE_LOCAL:
        return write_text("local: shared memory of this machine (memfd, futex)", buffer, capacity,
                          length);
      case ZERO_FEATURE_CUDA:
        return write_text("cuda: not in this build", buffer, capacity, length);
      case ZERO_FEATURE_NCCL:
        return write_text("nccl: not in this build", buffer, capacity, length);
      case ZERO_FEATURE_GLOO:
        return write_text("gloo: not in this build", buffer, capacity, length);
      default:
        zero::fail(ZERO_ERR_INVALID_ARGUMENT, "feature is %d, expected 1 to 4", feature);
    }
  });
}

const char* zero_status_name(zero_status status) {
  switch (status) {
#define ZERO_STATUS_CASE(name) \
  case name:                   \
    return #name;
    ZERO_STATUS_CASE(ZERO_OK)
    ZERO_STATUS_CASE(ZERO_ERR_INVALID_ARGUMENT)
    ZERO_STATUS_CASE(ZERO_ERR_INVALID_STATE)
    ZERO_STATUS_CASE(ZERO_ERR_UNSUPPORTED)
    ZERO_STATUS_CASE(ZERO_ERR_NOT_FOUND)
    ZERO_STATUS_CASE(ZERO_ERR_BUFFER_TOO_SMALL)
    ZERO_STATUS_CASE(ZERO_ERR_FAILED)
    ZERO_STATUS_CASE(ZERO_ERR_OVERFLOW)
    ZERO_STATUS_CASE(ZERO_ERR_NO_OPEN_BUCKET)
    ZERO_STATUS_CASE(ZERO_ERR_CONFIG_SYNTAX)
    ZERO_STATUS_CASE(ZERO_ERR_CONFIG_UNKNOWN_KEY)
    ZERO_STATUS_CASE(ZERO_ERR_CONFIG_VALUE)
    ZERO_STATUS_CASE(ZERO_ERR_CONFIG_CONFLICT)
    ZERO_STATUS_CASE(ZERO_ERR_OUT_OF_MEMORY)
    ZERO_STATUS_CASE(ZERO_ERR_OUT_OF_DEVICE_MEMORY)
    ZERO_STATUS_CASE(ZERO_ERR_IO)
    ZERO_STATUS_CASE(ZERO_ERR_NO_SPACE)
    ZERO_STATUS_CASE(ZERO_ERR_COMM)
    ZERO_STATUS_CASE(ZERO_ERR_COMM_TIMEOUT)
    ZERO_STATUS_CASE(ZERO_ERR_COMM_ABORTED)
    ZERO_STATUS_CASE(ZERO_ERR_COMM_MISMATCH)
    ZERO_STATUS_CASE(ZERO_ERR_DEVICE)
    ZERO_STATUS_CASE(ZERO_ERR_DEVICE_LOST)
    ZERO_STATUS_CASE(ZERO_ERR_FILE_FORMAT)
    ZERO_STATUS_CASE(ZERO_ERR_FILE_VERSION)
    ZERO_STATUS_CASE(ZERO_ERR_FILE_CORRUPT)
    ZERO_STATUS_CASE(ZERO_ERR_FILE_INCOMPLETE)
    ZERO_STATUS_CASE(ZERO_ERR_FILE_MISMATCH)
    ZERO_STATUS_CASE(ZERO_ERR_USER)
    ZERO_STATUS_CASE(ZERO_ERR_INTERNAL)
#undef ZERO_STATUS_CASE
    default:
      return "ZERO_ERR_?";
  }
}

void zero_error_info_init(zero_error_info* info, uint32_t struct_size) {
  zero_error_info defaults{};
  defaults.rank = -1;
  init_struct(info, struct_size, defaults);
}

// Not guarded: asking for the last error must not replace it.
zero_status zero_last_error(zero_error_info* info) {
  if (info == nullptr || info->struct_size < sizeof(uint32_t)) return ZERO_ERR_INVALID_ARGUMENT;
  const LastError& last = last_error();
  zero_error_info out{};
  out.status = last.status;
  out.rank = last.rank;
  out.native_code = last.native_code;
  put(out.origin, sizeof(out.origin), last.origin);
  put(out.message, sizeof(out.message), last.text());
  write_struct(info, out);
  return ZERO_OK;
}

zero_status zero_last_error_text(char* buffer, uint64_t capacity, uint64_t* length) {
  const std::string& text = last_error().text();
  if (length == nullptr || (buffer == nullptr && capacity != 0)) return ZERO_ERR_INVALID_ARGUMENT;
  *length = text.size();
  if (capacity <= text.size()) return ZERO_ERR_BUFFER_TOO_SMALL;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return ZERO_OK;
}

void zero_set_last_error(zero_status status, const char* message) {
  try {
    set_last_error(zero::Error(status, message == nullptr ? "" : message, -1, 0, "callback"));
  } catch (...) {
    set_out_of_memory();
  }
}

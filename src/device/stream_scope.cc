// The current stream of each thread, and what a device without CUDA answers.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "device/device.h"

namespace zero::device {
namespace {

thread_local void* current = nullptr;

} // namespace

void* current_stream() {
  return current;
}

StreamScope::StreamScope(void* stream) : before_(current) {
  current = stream;
}

StreamScope::~StreamScope() {
  current = before_;
}

void Device::check_launch(int32_t error, const char* what) const {
  if (error != 0) fail(ZERO_ERR_INTERNAL, "%s was launched on a device without CUDA", what);
}

zero_place Device::place_of(const void*, int32_t* device) const {
  *device = -1;
  return ZERO_PLACE_HOST;
}

} // namespace zero::device

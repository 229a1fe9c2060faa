// The CUDA device of a build without its CUDA part: a refusal that says so.
// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "device/device.h"

namespace zero::device {

std::unique_ptr<Device> make_cuda_device(int32_t device) {
  fail(ZERO_ERR_UNSUPPORTED,
       "CUDA device %d was asked for, but this build of libzero has no CUDA part: expected device "
       "\"host\"",
       static_cast<int>(device));
}

} // namespace zero::device

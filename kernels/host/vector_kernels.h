// The vector targets that were compiled, best first; host_kernels.cc picks what the machine can
// run. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace zero::kernels {

// The index-th compiled target that this machine can run, or null behind the last.
const KernelTable* vector_kernels(int32_t index);

} // namespace zero::kernels

// Which kernels this machine runs: the tables of its vector targets, the best of them, and the
// name that the environment may force.
// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/kernels.h"

namespace zero::kernels {

const KernelTable& host_kernels() {
  return scalar_kernels();
}

int32_t host_kernel_table_count() {
  return 1;
}

const KernelTable& host_kernel_table(int32_t) {
  return scalar_kernels();
}

} // namespace zero::kernels

// Which kernels this machine runs: the best of its vector targets, the scalar ones where it has
// none, or what the environment names.
// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/host/vector_kernels.h"
#include "kernels/kernels.h"

namespace zero::kernels {

namespace {

const KernelTable& choose() {
  const char* const wanted = std::getenv("LIBZERO_KERNELS");
  if (wanted == nullptr || *wanted == '\0') {
    const KernelTable* const best = vector_kernels(0);
    return best != nullptr ? *best : scalar_kernels();
  }
  std::string known;
  for (int32_t i = 0; i < host_kernel_table_count(); i++) {
    const KernelTable& table = host_kernel_table(i);
    if (std::strcmp(table.name, wanted) == 0) return table;
    known += (i == 0 ? "" : ", ") + std::string(table.name);
  }
  fail(ZERO_ERR_INVALID_ARGUMENT, "LIBZERO_KERNELS is \"%s\", expected one of %s", wanted,
       known.c_str());
}

} // namespace

const KernelTable& host_kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

int32_t host_kernel_table_count() {
  int32_t vectors = 0;
  while (vector_kernels(vectors) != nullptr) vectors++;
  return 1 + vectors;
}

const KernelTable& host_kernel_table(int32_t index) {
  if (index == 0) return scalar_kernels();
  const KernelTable* const table = index > 0 ? vector_kernels(index - 1) : nullptr;
  if (table == nullptr) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "kernel table %d, expected 0 to %d", static_cast<int>(index),
         static_cast<int>(host_kernel_table_count() - 1));
  }
  return *table;
}

} // namespace zero::kernels

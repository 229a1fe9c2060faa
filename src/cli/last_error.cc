// SPDX-License-Identifier: BSD-3-Clause
#include "cli/last_error.h"

namespace zero::cli {

std::string last_error_text() {
  uint64_t length = 0;
  zero_last_error_text(nullptr, 0, &length);
  std::string text(length + 1, '\0');
  zero_last_error_text(text.data(), text.size(), &length);
  text.resize(length);
  return text;
}

} // namespace zero::cli

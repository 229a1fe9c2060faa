// Bytes done, as the host program's zero_progress wants to hear of them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include "api/wall.h"
#include "checkpoint/piece_writer.h"

namespace zero::api {

// What the callback returns other than ZERO_OK comes back as it is.
inline checkpoint::Progress progress_of(const zero_progress& progress, uint64_t total) {
  if (progress.report == nullptr) return {};
  return [progress, total, done = uint64_t{0}](uint64_t bytes) mutable {
    done += bytes;
    const zero_status status = progress.report(progress.user_data, done, total);
    if (status == ZERO_OK) return;
    const std::string said = take_callback_message();
    throw Error(status, said.empty() ? "the progress callback ended the call" : said, -1, 0,
                "callback");
  };
}

} // namespace zero::api

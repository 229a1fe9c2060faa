// When to give up on a peer: a dead one is somebody else's business (local_peers); a live one has
// the whole time-out from the last sign of progress.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace zero::comm {

constexpr int64_t kDefaultTimeoutNs = INT64_C(600) * 1000 * 1000 * 1000;

class ProgressWatch {
 public:
  ProgressWatch(int64_t timeout_ns, uint64_t progress, int64_t now_ns)
      : timeout_ns_(timeout_ns), seen_(progress), since_ns_(now_ns) {}

  // progress: any number that changes when the peer does something.
  bool expired(uint64_t progress, int64_t now_ns) {
    if (progress != seen_) {
      seen_ = progress;
      since_ns_ = now_ns;
    }
    return now_ns - since_ns_ >= timeout_ns_;
  }

 private:
  int64_t timeout_ns_;
  uint64_t seen_;
  int64_t since_ns_;
};

} // namespace zero::comm

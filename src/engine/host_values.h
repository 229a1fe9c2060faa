// The host's copy of what an offloaded optimizer updates (ClassMemory::host_params): this rank's
// shard of the values, beside the one on the device.  Between two calls both are the same, so
// whoever changes one of them says so here.  Nothing happens where nothing is offloaded.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "engine/context.h"

namespace zero::engine {

// Elements [begin, end) of a bucket, as far as this rank owns them, after the device's changed:
// blocks until the host has them.
void fetch_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end);
// The same after the host's changed: on the current stream.
void return_values(Context& context, int32_t bucket, uint64_t begin, uint64_t end);

// Buckets that go back to the device while the host updates those after them.
class ValueReturn {
 public:
  ValueReturn(Context& context, bool overlap);
  void send(int32_t bucket); // what the host has written so far
  // What comes after on the current stream finds it on the device.
  void wait(int32_t bucket);
  void wait_for_all();

 private:
  static void run(void* context, uint64_t bucket, uint64_t);
  Context& context_;
  std::unique_ptr<device::Stream> stream_; // null where nothing goes back
  std::vector<uint64_t> tickets_;
};

} // namespace zero::engine

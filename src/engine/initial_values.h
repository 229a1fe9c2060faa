// The first values: rank 0's (or another's) sent round, each rank's own, or checked to be equal.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "engine/bucket_transfer.h"
#include "engine/context.h"

namespace zero::engine {

// [collective] Reads the caller's data once and fills what the plan keeps of it.
void set_initial_values(Context& context);

// [collective] root's values of every parameter and buffer to all ranks (stages 0 to 2).
// transfer: on the control channel.
void broadcast_values(Context& context, BucketTransfer& transfer, int32_t root);

} // namespace zero::engine

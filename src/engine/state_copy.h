// Copies this rank's state to the staging memory of a save in the background.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoint/manifest.h"
#include "engine/context.h"

namespace zero::engine {

// The data of this rank's piece as it will lie there, from its first byte behind the header; blobs
// are left out.  Training waits for this: all threads copy, past the caches.
void copy_state(Context& context, const checkpoint::Manifest& manifest);

} // namespace zero::engine

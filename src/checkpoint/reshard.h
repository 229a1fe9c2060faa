// How many ranks share a state when no run is there to say it: which range of each parameter goes
// to which piece.  Pure. SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoint/manifest.h"

namespace zero::checkpoint {

// Lays the state out for world_size ranks: all elements behind one another, cut into equal shares
// at multiples of 32 of each parameter; blobs go to the piece of their rank (modulo world_size).
// Ranges, positions and pieces that were there are replaced.  pre: parameters with their parts
// (kind, index, dtype).
void lay_out_for(Manifest* manifest, int32_t world_size);

} // namespace zero::checkpoint

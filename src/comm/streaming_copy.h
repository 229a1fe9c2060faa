// Copies of whole shards and segments, past the cache: a store that first reads the line it
// replaces moves three streams where two would do.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace zero::comm {

// memcpy; for long copies of what is not soon read again.  pre: the two do not overlap.
void copy_streaming(void* dst, const void* src, uint64_t bytes);

} // namespace zero::comm

// Writes a whole checkpoint from one process: for resharding and for imports, where no run is.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "checkpoint/manifest.h"
#include "checkpoint/piece_writer.h"

namespace zero::checkpoint {

// manifest: parameters with their parts (kind, index, dtype), groups, blobs (key, rank, bytes),
// scalars; ids, layout, pieces are filled here.  path must not exist; it is whole or absent
// afterwards.  progress is told the bytes written.
void write_checkpoint(const std::string& path, Manifest manifest, int32_t world_size,
                      const Source& source, const Progress& progress = {});
// What progress will have been told in the end.
uint64_t checkpoint_bytes(const Manifest& manifest, int32_t world_size);

} // namespace zero::checkpoint

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_writer.h"

#include "base/checked.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/reshard.h"

namespace zero::checkpoint {

void write_checkpoint(const std::string& path, Manifest manifest, int32_t world_size,
                      const Source& source, const Progress& progress) {
  manifest.format_version = kFormatVersion;
  manifest.id = random_id();
  if (manifest.run == 0) manifest.run = random_id();
  if (manifest.groups.empty()) manifest.groups.push_back({"default"});
  lay_out_for(&manifest, world_size);
  const Staging staging(path, manifest.id);
  staging.create(/*replace=*/false, manifest.run);
  try {
    for (int32_t piece = 0; piece < world_size; ++piece) {
      const PieceSummary written =
          write_piece(staging.piece(piece), manifest, piece, source, progress);
      manifest.pieces[static_cast<size_t>(piece)].table_checksum = written.table_checksum;
    }
    staging.commit(manifest, /*replace=*/false);
  } catch (...) {
    staging.remove();
    throw;
  }
  staging.remove();
}

uint64_t checkpoint_bytes(const Manifest& manifest, int32_t world_size) {
  Manifest copy = manifest;
  lay_out_for(&copy, world_size);
  uint64_t bytes = 0;
  for (const StoredPiece& piece : copy.pieces) bytes += piece.table_position - kPieceHeaderBytes;
  return bytes;
}

} // namespace zero::checkpoint

// The first page of a piece: whose it is.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/piece_layout.h"

namespace zero::checkpoint {

// kPieceHeaderBytes at out.
void make_piece_header(const Manifest& manifest, int32_t piece, std::byte* out);
// Throws FILE_CORRUPT; FILE_MISMATCH where it is another checkpoint's or rank's.
void check_piece_header(const Manifest& manifest, int32_t piece, const std::byte* header,
                        const std::string& path);

} // namespace zero::checkpoint

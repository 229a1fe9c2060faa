// The weights of a checkpoint as safetensors, without a run.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "checkpoint/checkpoint_reader.h"

namespace zero::checkpoint {

// dtype of trained and frozen floats; 0: each its own.  Trained ones come from their masters.
// progress is told the bytes written.
void export_checkpoint(const CheckpointReader& reader, const std::string& path, zero_dtype dtype,
                       uint64_t max_file_bytes, const Progress& progress);
// What progress will have been told in the end.
uint64_t export_bytes(const CheckpointReader& reader, zero_dtype dtype);

} // namespace zero::checkpoint

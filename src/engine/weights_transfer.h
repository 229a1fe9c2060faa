// Weights to safetensors and back: whole parameters out of the shards, piece by piece, and straight
// into them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "engine/context.h"
#include "engine/parameter_loans.h"
#include "engine/stepper.h"

namespace zero::engine {

class WeightsTransfer {
 public:
  WeightsTransfer(Context& context, GradientReducer& reducer, ParameterLoans& loans,
                  Stepper& stepper)
      : context_(context), reducer_(reducer), loans_(loans), stepper_(stepper) {}

  // [collective] Rank 0 writes.  dtype 0: each its own; another one than a parameter's own: its
  // master, rounded.
  void write(const std::string& path, zero_dtype dtype, uint64_t max_file_bytes);
  // [collective] Every rank reads what it owns, after all ranks have found that everything fits.
  void read(const std::string& path, bool allow_missing, bool allow_extra);

 private:
  void write_tensors(const checkpoint::SafetensorsLayout& layout,
                     const std::vector<zero_param_id>& roots, zero_dtype dtype,
                     std::optional<checkpoint::SafetensorsWriter>* writer,
                     std::optional<Error>* failed);
  template <typename Take>
  void for_each_piece(zero_param_id root, zero_dtype dtype, Take take);
  void own_elements(zero_param_id root, zero_dtype dtype, uint64_t begin, uint64_t count,
                    std::byte* out);

  Context& context_;
  GradientReducer& reducer_;
  ParameterLoans& loans_;
  Stepper& stepper_;
};

} // namespace zero::engine

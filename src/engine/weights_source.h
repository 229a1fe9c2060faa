// Weights from safetensors that are about to be a model's: which tensor each parameter comes from,
// checked against the model, and their elements as this rank needs them.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "engine/context.h"
#include "engine/stepper.h"

namespace zero::engine {

class WeightsSource {
 public:
  // Reads the headers.  FILE_MISMATCH lists every parameter that is missing, extra, of another
  // shape or of a type that does not convert; nothing has changed then.
  WeightsSource(const std::string& path, const plan::Plan& plan, bool allow_missing,
                bool allow_extra);

  // Which files and where in them: the same on every rank that sees the same files.
  std::vector<std::string> lines() const;

  // What this rank owns: values, masters from them, states and own steps anew.  Values of other
  // ranks' shards are stale until the stepper has gathered them.
  void read_into(Context& context, Stepper& stepper) const;

 private:
  struct From {
    zero_param_id root = -1;
    int32_t file = 0;
    uint64_t offset = 0; // bytes, in the file
    zero_dtype dtype = ZERO_DTYPE_FP32;
  };
  void read_trained(Context& context, const From& from) const;
  void read_values(Context& context, const From& from) const;
  // visit(begin, count, bytes in the file's dtype), piece by piece.
  template <typename Visit>
  void for_each_piece(const From& from, zero_span span, Visit visit) const;

  std::vector<File> files_;
  std::vector<From> tensors_; // in the order of the files
};

} // namespace zero::engine

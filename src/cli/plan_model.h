// The model and the config that `zero plan` is asked about, read through zero.h alone.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zero.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cli/check_config.h"

namespace zero::cli {

// Tied parameters count once, buffers not at all, as the people who publish sizes count.
struct ModelCounts {
  uint64_t parameters = 0;
  uint64_t trained = 0;
  uint64_t matrices = 0; // trained, of two dimensions or more
  uint64_t largest = 0; // parameter
  uint64_t largest_layer = 0; // parameters that one module holds itself: names up to their last dot
  int32_t tensors = 0;
};

struct PlannedModel {
  std::string file;
  std::string dtype; // "fp16", or "as in the file"
  ModelCounts counts;
  std::shared_ptr<zero_model> model;
};

// dtype: "config" (what fp16.enabled or bf16.enabled say, else fp32), "file", "fp32", "fp16",
// "bf16".  False where it cannot be used; *error then says why.
bool load_model(const std::string& path, const std::string& dtype, const zero_config* config,
                PlannedModel* model, std::string* error);

} // namespace zero::cli

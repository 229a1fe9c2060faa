// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/deepspeed_state.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "checkpoint/deepspeed_build.h"
#include "checkpoint/deepspeed_files.h"
#include "checkpoint/element_cast.h"

namespace zero::checkpoint {
namespace {

bool is_enabled(const PickleDocument& document, PickleRef config, const char* section) {
  const PickleRef enabled = document.find(document.find(config, section), "enabled");
  return document.is(enabled, PickleKind::kBool) && document.integer(enabled) != 0;
}

} // namespace

DeepSpeedReader::DeepSpeedReader(const std::string& folder) {
  const DeepSpeedFiles files = find_deepspeed_files(folder);
  for (const std::string& path : files.models) {
    archives_.push_back(std::make_unique<DeepSpeedArchive>(path));
  }
  for (const std::string& path : files.optimizers) {
    archives_.push_back(std::make_unique<DeepSpeedArchive>(path));
  }
  DeepSpeedBuild build{archives_, files.models.size(), state_, {}, {}};
  const DeepSpeedArchive& model = build.model(0);
  const PickleDocument& document = model.document();
  const PickleRef config = document.find(model.root(), "ds_config");
  state_.compute_dtype = is_enabled(document, config, "fp16")       ? ZERO_DTYPE_FP16
                         : is_enabled(document, config, "bf16")     ? ZERO_DTYPE_BF16
                         : is_enabled(document, config, "bfloat16") ? ZERO_DTYPE_BF16
                                                                    : ZERO_DTYPE_FP32;
  const PickleRef world = document.find(model.root(), "dp_world_size");
  state_.world_size =
      document.is(world, PickleKind::kInteger) && document.integer(world) > 0
          ? static_cast<int32_t>(std::min<int64_t>(document.integer(world), 1 << 20))
          : 1;
  PickleRef optimizer = kNoPickle;
  if (!files.optimizers.empty()) {
    const DeepSpeedArchive& first = build.optimizer(0);
    optimizer = first.document().find(first.root(), "optimizer_state_dict");
    const PickleRef stage = first.document().find(optimizer, "zero_stage");
    if (!first.document().is(stage, PickleKind::kInteger) || first.document().integer(stage) < 1 ||
        first.document().integer(stage) > 3) {
      fail(
          ZERO_ERR_UNSUPPORTED,
          "file \"%s\": expected \"zero_stage\" from 1 to 3 (BF16_Optimizer writes none and is not "
          "read)",
          first.path().c_str());
    }
    state_.stage = static_cast<int32_t>(first.document().integer(stage));
    const PickleRef partitions = first.document().find(optimizer, "partition_count");
    PickleRef count = partitions;
    if (first.document().is(partitions, PickleKind::kList)) {
      for (const PickleRef one : first.document().items(partitions)) {
        if (!first.document().is(count, PickleKind::kInteger) ||
            first.document().integer(one) > first.document().integer(count)) {
          count = one;
        }
      }
    }
    if (first.document().is(count, PickleKind::kInteger)) {
      state_.world_size =
          static_cast<int32_t>(std::clamp<int64_t>(first.document().integer(count), 1, 1 << 20));
    }
    const size_t ranks = static_cast<size_t>(state_.world_size);
    if (files.optimizers.size() != ranks) {
      throw Error(ZERO_ERR_FILE_INCOMPLETE,
                  format("folder \"%s\": %zu optimizer files, expected %zu; that of rank %zu is %s",
                         files.folder.c_str(), files.optimizers.size(), ranks,
                         std::min(files.optimizers.size(), ranks),
                         files.optimizers.size() < ranks ? "missing" : "too much"),
                  static_cast<int32_t>(std::min(files.optimizers.size(), ranks)));
    }
    if (state_.stage == 3 && files.models.size() != ranks) {
      throw Error(ZERO_ERR_FILE_INCOMPLETE,
                  format("folder \"%s\": %zu model files, expected %zu; that of rank %zu is %s",
                         files.folder.c_str(), files.models.size(), ranks,
                         std::min(files.models.size(), ranks),
                         files.models.size() < ranks ? "missing" : "too much"),
                  static_cast<int32_t>(std::min(files.models.size(), ranks)));
    }
  }
  build_deepspeed_model(&build);
  if (state_.stage == 0) {
    build_deepspeed_unsharded(&build);
  } else if (state_.stage < 3) {
    build_deepspeed_flat_groups(&build);
  } else {
    build_deepspeed_partitions(&build);
    build_deepspeed_frozen(&build);
  }
  if (!files.optimizers.empty()) build_deepspeed_scaler(&build, build.optimizer(0), optimizer);
}

void DeepSpeedReader::verify() const {
  for (const std::unique_ptr<DeepSpeedArchive>& archive : archives_) archive->verify();
}

void DeepSpeedReader::read_pieces(const DeepSpeedParameter& parameter,
                                  const std::vector<DeepSpeedPiece>& pieces, uint64_t offset,
                                  uint64_t count, zero_dtype dtype, void* out) const {
  const uint64_t end = offset + count;
  const uint64_t out_size = dtype_bytes(dtype);
  std::vector<std::byte> staging;
  for (const DeepSpeedPiece& piece : pieces) {
    const uint64_t first = std::max(offset, piece.begin);
    const uint64_t last = std::min(end, piece.begin + piece.count);
    if (first >= last) continue;
    const uint64_t size = dtype_bytes(piece.dtype);
    const uint64_t from = piece.offset + (first - piece.begin) * size;
    auto* to = static_cast<std::byte*>(out) + (first - offset) * out_size;
    if (piece.dtype == dtype) {
      archives_[piece.archive]->read(from, to, (last - first) * size);
      continue;
    }
    staging.resize((last - first) * size);
    archives_[piece.archive]->read(from, staging.data(), staging.size());
    if (!cast_elements(staging.data(), piece.dtype, to, dtype, last - first)) {
      fail(ZERO_ERR_UNSUPPORTED, "file \"%s\": param \"%s\" is %s, expected %s",
           archives_[piece.archive]->path().c_str(), parameter.name.c_str(),
           dtype_name(piece.dtype), dtype_name(dtype));
    }
  }
}

void DeepSpeedReader::read(int32_t number, zero_part part, int32_t index, uint64_t offset,
                           uint64_t count, void* out) const {
  const DeepSpeedParameter* parameter = &state_.parameters[static_cast<size_t>(number)];
  if (parameter->tied_to >= 0) {
    parameter = &state_.parameters[static_cast<size_t>(parameter->tied_to)];
  }
  if (offset > parameter->elements || count > parameter->elements - offset) {
    fail(ZERO_ERR_INVALID_ARGUMENT,
         "param \"%s\": elements %llu to %llu are asked for, it has %llu", parameter->name.c_str(),
         static_cast<unsigned long long>(offset), static_cast<unsigned long long>(offset + count),
         static_cast<unsigned long long>(parameter->elements));
  }
  if (part == ZERO_PART_VALUE) {
    read_pieces(*parameter, parameter->value.empty() ? parameter->master : parameter->value, offset,
                count, parameter->dtype, out);
  } else if (part == ZERO_PART_MASTER) {
    read_pieces(*parameter, parameter->master, offset, count, ZERO_DTYPE_FP32, out);
  } else if (static_cast<size_t>(index) < parameter->states.size()) {
    read_pieces(*parameter, parameter->states[static_cast<size_t>(index)], offset, count,
                ZERO_DTYPE_FP32, out);
  } else {
    std::memset(out, 0, count * sizeof(float)); // it never had a gradient
  }
}

} // namespace zero::checkpoint

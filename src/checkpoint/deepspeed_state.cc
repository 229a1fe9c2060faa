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

// How many ranks wrote it: one number, or one for each group.
void read_world_size(const PickleDocument& document, PickleRef partitions, DeepSpeedState* state) {
  int64_t count = 0;
  if (document.is(partitions, PickleKind::kInteger)) count = document.integer(partitions);
  if (document.is(partitions, PickleKind::kList)) {
    for (const PickleRef one : document.items(partitions)) {
      if (document.is(one, PickleKind::kInteger)) count = std::max(count, document.integer(one));
    }
  }
  if (count == 0) return;
  state->world_size = static_cast<int32_t>(std::clamp<int64_t>(count, 1, 1 << 20));
}

// BF16_Optimizer says no stage; its layout is stage 1's.
void read_stage(const DeepSpeedArchive& archive, PickleRef optimizer, bool universal,
                DeepSpeedState* state) {
  const PickleDocument& document = archive.document();
  const PickleRef stage = document.find(optimizer, "zero_stage");
  const bool flat =
      document.is(document.find(optimizer, "single_partition_of_fp32_groups"), PickleKind::kList) ||
      (universal && document.is(document.find(optimizer, "group_paddings"), PickleKind::kList));
  if (stage == kNoPickle && flat) {
    state->stage = 1;
  } else if (document.is(stage, PickleKind::kInteger) && document.integer(stage) >= 1 &&
             document.integer(stage) <= 3) {
    state->stage = static_cast<int32_t>(document.integer(stage));
  } else {
    fail(ZERO_ERR_UNSUPPORTED,
         "file \"%s\": expected \"zero_stage\" from 1 to 3, or what BF16_Optimizer writes instead",
         archive.path().c_str());
  }
  read_world_size(document, document.find(optimizer, "partition_count"), state);
}

void check_count(const std::string& folder, const char* what, size_t files, size_t ranks) {
  if (files == ranks) return;
  throw Error(
      ZERO_ERR_FILE_INCOMPLETE,
      format("folder \"%s\": %zu %s files, expected %zu; that of rank %zu is %s", folder.c_str(),
             files, what, ranks, std::min(files, ranks), files < ranks ? "missing" : "too much"),
      static_cast<int32_t>(std::min(files, ranks)));
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
    optimizer = files.universal.empty()
                    ? first.document().find(first.root(), "optimizer_state_dict")
                    : first.root();
    read_stage(first, optimizer, !files.universal.empty(), &state_);
    const size_t ranks = static_cast<size_t>(state_.world_size);
    if (files.universal.empty()) {
      check_count(files.folder, "optimizer", files.optimizers.size(), ranks);
    }
    if (state_.stage == 3) check_count(files.folder, "model", files.models.size(), ranks);
  }
  build_deepspeed_model(&build);
  if (!files.universal.empty()) {
    build_deepspeed_universal(&build, files.universal);
  } else if (state_.stage == 0) {
    build_deepspeed_unsharded(&build);
  } else if (state_.stage < 3) {
    build_deepspeed_flat_groups(&build);
  } else {
    build_deepspeed_partitions(&build);
  }
  if (state_.stage == 3) build_deepspeed_frozen(&build);
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

// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/deepspeed_import.h"

#include <json/value.h>
#include <json/writer.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/deepspeed_state.h"

namespace zero::checkpoint {
namespace {

constexpr int32_t kMostRanks = 4096;

// Which optimizer keeps such states; SGD's momentum buffer has the name that torch gives it.
std::string optimizer_family(const std::vector<std::string>& states) {
  if (states.size() == 2 && states[0] == "exp_avg") return "adam";
  if (states.size() == 1 && states[0] == "exp_avg") return "lion";
  if (states.size() == 1 && states[0] == "momentum_buffer") return "sgd";
  if (states.size() == 1 && states[0] == "sum") return "adagrad";
  return "sgd";
}

std::string counters(const DeepSpeedState& state) {
  Json::Value object(Json::objectValue);
  object["global_steps"] = Json::Int64{state.global_steps};
  object["skipped_steps"] = Json::Int64{state.skipped_steps};
  object["global_samples"] = Json::Int64{state.global_samples};
  object["scheduler_iteration"] = Json::Int64{state.scheduler_iteration};
  object["stage"] = state.stage;
  object["dp_world_size"] = state.world_size;
  object["ds_version"] = state.version;
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return Json::writeString(builder, object);
}

StoredGroup stored_group(const DeepSpeedState& state, size_t number) {
  const DeepSpeedGroup& from = state.groups[number];
  StoredGroup group;
  group.name = number == 0 ? "default" : "group" + std::to_string(number);
  // Where there is a scheduler the rate is its, and the config's again when training goes on.
  group.lr = state.scheduler_iteration >= 0 ? NAN : from.lr;
  group.weight_decay = from.weight_decay;
  group.beta1 = from.has_betas ? from.beta1 : NAN;
  group.beta2 = from.has_betas ? from.beta2 : NAN;
  group.epsilon = from.epsilon > 0 ? from.epsilon : NAN;
  group.momentum = from.has_momentum ? from.momentum : NAN;
  return group;
}

StoredPart stored_part(zero_part kind, int32_t index, zero_dtype dtype) {
  StoredPart part;
  part.kind = kind;
  part.index = index;
  part.dtype = dtype;
  return part;
}

Manifest manifest_of(const DeepSpeedState& state) {
  Manifest manifest;
  manifest.writer = "DeepSpeed " + state.version;
  manifest.step = state.global_steps - state.skipped_steps;
  manifest.skipped_total = state.skipped_steps;
  manifest.stage = state.stage;
  manifest.optimizer = optimizer_family(state.state_names);
  manifest.state_names = state.state_names;
  manifest.has_loss_scale = state.compute_dtype == ZERO_DTYPE_FP16;
  manifest.loss_scale.scale = state.scaler.scale;
  manifest.loss_scale.credits = state.scaler.hysteresis;
  manifest.loss_scale.iteration = state.scaler.iteration;
  manifest.loss_scale.last_overflow = state.scaler.last_overflow;
  manifest.config = state.config;
  for (size_t g = 0; g < state.groups.size(); ++g) {
    manifest.groups.push_back(stored_group(state, g));
  }
  for (const DeepSpeedParameter& from : state.parameters) {
    StoredParameter parameter;
    parameter.name = from.name;
    parameter.shape = from.shape;
    parameter.elements = from.elements;
    parameter.dtype = from.dtype;
    parameter.role = from.role;
    parameter.group = from.group;
    parameter.tied_to = from.tied_to;
    parameter.steps = from.step;
    const bool trained = from.role == ZERO_PARAM_TRAINED;
    if (from.tied_to < 0 && trained) {
      parameter.parts.push_back(stored_part(ZERO_PART_MASTER, 0, ZERO_DTYPE_FP32));
      for (size_t s = 0; s < state.state_names.size(); ++s) {
        parameter.parts.push_back(
            stored_part(ZERO_PART_STATE, static_cast<int32_t>(s), ZERO_DTYPE_FP32));
      }
    } else if (from.tied_to < 0) {
      parameter.parts.push_back(stored_part(ZERO_PART_VALUE, 0, from.dtype));
    }
    manifest.parameters.push_back(std::move(parameter));
  }
  return manifest;
}

} // namespace

void import_deepspeed(const std::string& folder, const std::string& path, int32_t world_size,
                      const std::function<void(uint64_t done, uint64_t total)>& progress) {
  if (world_size < 0 || world_size > kMostRanks) {
    fail(ZERO_ERR_INVALID_ARGUMENT, "world_size is %d, expected 0 to %d", world_size, kMostRanks);
  }
  const DeepSpeedReader reader(folder);
  const DeepSpeedState& state = reader.state();
  reader.verify();
  Manifest manifest = manifest_of(state);
  const std::string texts[] = {state.client_state, counters(state)};
  const char* const keys[] = {kDeepSpeedClientState, kDeepSpeedCounters};
  for (size_t b = 0; b < 2; ++b) {
    StoredBlob blob;
    blob.key = keys[b];
    blob.bytes = texts[b].size();
    manifest.blobs.push_back(blob);
  }
  const std::vector<StoredParameter> parameters = manifest.parameters;
  const Source source = [&](const PieceItem& item, uint64_t offset, uint64_t count,
                            std::byte* out) {
    if (item.parameter < 0) {
      std::memcpy(out, texts[static_cast<size_t>(item.part)].data() + offset, count);
      return;
    }
    const StoredPart& part =
        parameters[static_cast<size_t>(item.parameter)].parts[static_cast<size_t>(item.part)];
    reader.read(item.parameter, part.kind, part.index, offset, count, out);
  };
  const int32_t ranks = world_size == 0 ? state.world_size : world_size;
  const uint64_t total = checkpoint_bytes(manifest, ranks);
  uint64_t done = 0;
  write_checkpoint(path, std::move(manifest), ranks, source, [&](uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  });
}

} // namespace zero::checkpoint

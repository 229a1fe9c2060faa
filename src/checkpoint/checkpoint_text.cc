// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_text.h"

#include <cmath>

#include "base/dtype.h"
#include "base/error.h"

namespace zero::checkpoint {
namespace {

using Number = unsigned long long;

// "lr 0.1", or nothing where it is the config's.
std::string said(const char* name, double value) {
  return std::isnan(value) ? std::string() : format(", %s %.17g", name, value);
}

const char* role_name(zero_param_role role) {
  return role == ZERO_PARAM_TRAINED ? "trained" : role == ZERO_PARAM_FROZEN ? "frozen" : "buffer";
}

std::string parameter_line(const Manifest& manifest, const StoredParameter& parameter) {
  std::string shape;
  for (const int64_t size : parameter.shape) {
    shape += (shape.empty() ? "" : "x") + std::to_string(size);
  }
  std::string line = format("param \"%s\" %s %s %s", parameter.name.c_str(),
                            shape.empty() ? "scalar" : shape.c_str(), dtype_name(parameter.dtype),
                            role_name(parameter.role));
  if (parameter.tied_to >= 0) {
    const StoredParameter& target = manifest.parameters[static_cast<size_t>(parameter.tied_to)];
    return line + " is \"" + target.name + "\"";
  }
  if (parameter.role == ZERO_PARAM_TRAINED) {
    line += format(", group %d, %lld updates", parameter.group,
                   static_cast<long long>(parameter.steps));
  }
  size_t ranges = 0;
  for (const StoredPart& part : parameter.parts) {
    const char* name = part.kind == ZERO_PART_VALUE ? "value"
                       : part.kind == ZERO_PART_MASTER
                           ? "master"
                           : manifest.state_names[static_cast<size_t>(part.index)].c_str();
    line += format(", %s %s", name, dtype_name(part.dtype));
    ranges = part.ranges.size();
  }
  return line + format(", in %zu pieces", ranges);
}

} // namespace

std::string damage_text(const Damage& damage) {
  return format("damaged \"%s\" bytes [%llu, %llu): %s", damage.file.c_str(),
                static_cast<Number>(damage.begin), static_cast<Number>(damage.end),
                damage.what.c_str());
}

std::string checkpoint_text(const CheckpointReader& reader, const std::vector<Damage>& damages) {
  const Manifest& manifest = reader.manifest();
  std::string text =
      format("checkpoint \"%s\" %016llx of run %016llx, format %u, written by %s\n",
             reader.folder().c_str(), static_cast<Number>(manifest.id),
             static_cast<Number>(manifest.run), manifest.format_version, manifest.writer.c_str());
  text += format("step %lld, %lld skipped, %d ranks, stage %d, %zu parameters, %llu bytes",
                 static_cast<long long>(manifest.step),
                 static_cast<long long>(manifest.skipped_total), manifest.world_size,
                 manifest.stage, manifest.parameters.size(), static_cast<Number>(reader.bytes()));
  if (manifest.weights_only) text += ", weights only";
  if (!manifest.optimizer.empty()) text += ", optimizer " + manifest.optimizer;
  if (manifest.has_loss_scale) {
    const StoredLossScale& scale = manifest.loss_scale;
    text +=
        format(", loss scale %.17g (credits %lld, iteration %lld, last overflow %lld)", scale.scale,
               static_cast<long long>(scale.credits), static_cast<long long>(scale.iteration),
               static_cast<long long>(scale.last_overflow));
  }
  text += "\n";
  for (const StoredGroup& g : manifest.groups) {
    text += "group \"" + g.name + "\"" + (g.frozen ? " frozen" : "") + said("lr", g.lr) +
            said("lr_scale", g.lr_scale) + said("weight_decay", g.weight_decay) +
            said("beta1", g.beta1) + said("beta2", g.beta2) + said("epsilon", g.epsilon) +
            said("momentum", g.momentum) + "\n";
  }
  for (const StoredBlob& blob : manifest.blobs) {
    text += format("blob \"%s\" of rank %d, %llu bytes\n", blob.key.c_str(), blob.rank,
                   static_cast<Number>(blob.bytes));
  }
  for (const StoredParameter& parameter : manifest.parameters) {
    text += parameter_line(manifest, parameter) + "\n";
  }
  for (const Damage& damage : damages) text += damage_text(damage) + "\n";
  return text;
}

} // namespace zero::checkpoint

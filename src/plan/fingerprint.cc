// SPDX-License-Identifier: BSD-3-Clause
#include "plan/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"

namespace zero::plan {
namespace {

constexpr uint64_t kFormat = 1; // raised when what is hashed changes

// Little-endian numbers and length-prefixed texts.
class CanonicalBytes {
 public:
  void put(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  }
  void put_signed(int64_t value) { put(static_cast<uint64_t>(value)); }
  void put_text(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }
  // All NaN are one value (the config's), and so are both zeros.
  void put_number(double value) {
    uint64_t bits = 0;
    if (std::isnan(value)) {
      bits = 0x7ff8000000000000u;
    } else if (value != 0) {
      std::memcpy(&bits, &value, sizeof(bits));
    }
    put(bits);
  }
  uint64_t hash() const { return XXH3_64bits(bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

void put_group(CanonicalBytes& bytes, const Group& group) {
  const GroupValues& values = group.values;
  bytes.put_text(group.name);
  bytes.put(values.frozen ? 1 : 0);
  for (const double value : {values.lr, values.lr_scale, values.weight_decay, values.beta1,
                             values.beta2, values.epsilon, values.momentum}) {
    bytes.put_number(value);
  }
}

void put_settings(CanonicalBytes& bytes, const PlanSettings& settings) {
  bytes.put_signed(settings.stage);
  bytes.put_signed(settings.group.ranks);
  bytes.put_signed(settings.group.kind);
  bytes.put(settings.group.own_staging_bytes);
  bytes.put(settings.alignment);
  bytes.put(settings.reduce_bucket_elements);
  bytes.put(settings.prefetch_elements);
  bytes.put(settings.persistence_threshold_elements);
  bytes.put(settings.model_persistence_elements);
  bytes.put(settings.max_live_elements);
  bytes.put(settings.live_elements);
  bytes.put_signed(settings.open_buckets);
  bytes.put(settings.staging_segment_bytes);
  bytes.put_signed(settings.optimizer_states);
  bytes.put(settings.optimizer_present ? 1 : 0);
  bytes.put_signed(settings.accumulation_dtype);
  bytes.put(settings.reproducible_stage ? 1 : 0);
  bytes.put(settings.param_norms ? 1 : 0);
  bytes.put(settings.checkpoint_background ? 1 : 0);
  bytes.put(settings.own_allocator ? 1 : 0);
  bytes.put_signed(settings.place);
}

const char* role_text(const Parameter& parameter) {
  switch (parameter.role) {
    case ZERO_PARAM_TRAINED:
      return "trained";
    case ZERO_PARAM_FROZEN:
      return "frozen";
    default:
      return "buffer";
  }
}

std::string group_text(const Group& group, zero_group_id id) {
  const GroupValues& values = group.values;
  std::string text = format("group %d \"%s\"", id, group.name.c_str());
  const std::pair<const char*, double> named[] = {
      {"lr", values.lr},           {"weight_decay", values.weight_decay},
      {"beta1", values.beta1},     {"beta2", values.beta2},
      {"epsilon", values.epsilon}, {"momentum", values.momentum}};
  std::string list = values.lr_scale == 1 ? "" : format(" lr_scale %.17g", values.lr_scale);
  for (const auto& [name, value] : named) {
    if (!std::isnan(value)) list += format(" %s %.17g", name, value);
  }
  return list.empty() ? text : text + " (" + list.substr(1) + ")";
}

bool has(const ParameterTable& model, zero_param_id param) {
  return param >= 0 && static_cast<size_t>(param) < model.parameters().size();
}

} // namespace

uint64_t parameter_hash(const ParameterTable& model, zero_param_id param) {
  CanonicalBytes bytes;
  bytes.put(kFormat);
  if (!has(model, param)) return bytes.hash();
  const Parameter& parameter = model.parameters()[static_cast<size_t>(param)];
  bytes.put_text(parameter.name);
  bytes.put(parameter.shape.size());
  for (const int64_t extent : parameter.shape) bytes.put_signed(extent);
  bytes.put_signed(parameter.dtype);
  bytes.put_signed(parameter.role);
  bytes.put_signed(parameter.storage);
  bytes.put_signed(parameter.tied_to);
  bytes.put_signed(parameter.unit);
  bytes.put_signed(parameter.group);
  put_group(bytes, model.groups()[static_cast<size_t>(parameter.group)]);
  return bytes.hash();
}

std::string parameter_line(const ParameterTable& model, zero_param_id param) {
  if (!has(model, param)) {
    return format("nothing (the model has %zu parameters)", model.parameters().size());
  }
  const Parameter& parameter = model.parameters()[static_cast<size_t>(param)];
  std::string shape;
  for (const int64_t extent : parameter.shape) {
    shape += format(shape.empty() ? "%lld" : "x%lld", static_cast<long long>(extent));
  }
  std::string line =
      format("\"%s\" %s %s %s %s", parameter.name.c_str(), shape.empty() ? "scalar" : shape.c_str(),
             dtype_name(parameter.dtype), role_text(parameter),
             parameter.storage == ZERO_STORAGE_CALLER ? "in the caller's memory" : "in libzero's");
  line.append(" ").append(
      group_text(model.groups()[static_cast<size_t>(parameter.group)], parameter.group));
  if (parameter.tied_to >= 0) {
    line += format(" tied to \"%s\"",
                   model.parameters()[static_cast<size_t>(parameter.tied_to)].name.c_str());
  }
  if (parameter.unit >= 0) line += format(" unit %d", parameter.unit);
  return line;
}

std::string settings_line(const PlanSettings& settings) {
  return format(
      "stage %d, %d ranks, communicator kind %d, alignment %llu, reduce bucket %llu, prefetch %llu,"
      " persistence threshold %llu (model %llu), max live %llu, live %llu, open buckets %d,"
      " staging segment %llu, optimizer states %d, accumulation %s, reproducible %d,"
      " param norms %d, own allocator %d, place %d",
      settings.stage, settings.group.ranks, settings.group.kind,
      static_cast<unsigned long long>(settings.alignment),
      static_cast<unsigned long long>(settings.reduce_bucket_elements),
      static_cast<unsigned long long>(settings.prefetch_elements),
      static_cast<unsigned long long>(settings.persistence_threshold_elements),
      static_cast<unsigned long long>(settings.model_persistence_elements),
      static_cast<unsigned long long>(settings.max_live_elements),
      static_cast<unsigned long long>(settings.live_elements), settings.open_buckets,
      static_cast<unsigned long long>(settings.staging_segment_bytes),
      settings.optimizer_present ? settings.optimizer_states : -1,
      dtype_name(settings.accumulation_dtype), settings.reproducible_stage, settings.param_norms,
      settings.own_allocator, settings.place);
}

uint64_t plan_fingerprint(const Plan& plan) {
  CanonicalBytes bytes;
  bytes.put(kFormat);
  put_settings(bytes, plan.settings);
  bytes.put(plan.model.groups().size());
  for (const Group& group : plan.model.groups()) put_group(bytes, group);
  const size_t parameters = plan.model.parameters().size();
  bytes.put(parameters);
  for (size_t i = 0; i < parameters; ++i) {
    bytes.put(parameter_hash(plan.model, static_cast<zero_param_id>(i)));
  }
  // What was decided, the backward order with it: two versions of libzero may decide differently.
  bytes.put(plan.buckets.size());
  for (const Bucket& bucket : plan.buckets) {
    bytes.put_signed(bucket.parameter_class);
    bytes.put(bucket.elements);
    for (const BucketMember& member : bucket.members) {
      bytes.put_signed(member.param);
      bytes.put(member.offset);
    }
  }
  for (const Region& region : plan.memory.regions) bytes.put(region.bytes);
  return bytes.hash();
}

std::string first_difference(const ParameterTable& a, const ParameterTable& b) {
  const size_t count = std::max(a.parameters().size(), b.parameters().size());
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<zero_param_id>(i);
    if (has(a, id) == has(b, id) && parameter_hash(a, id) == parameter_hash(b, id)) continue;
    return format("param %zu is %s here and %s there", i, parameter_line(a, id).c_str(),
                  parameter_line(b, id).c_str());
  }
  return {};
}

} // namespace zero::plan

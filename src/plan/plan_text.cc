// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan_text.h"

#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "plan/memory_plan.h"

namespace zero::plan {
namespace {

using Number = unsigned long long;

std::string bytes_text(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return format("%llu bytes (%.2f MiB)", static_cast<Number>(bytes), mib);
}

// Of a rank on a device: ", device 100, pinned 20".
std::string places_text(const MemoryPlan& memory, zero_memory_use use) {
  std::string text;
  if (memory.place != ZERO_PLACE_DEVICE) return text;
  const std::pair<zero_place, const char*> names[] = {
      {ZERO_PLACE_DEVICE, "device"}, {ZERO_PLACE_PINNED, "pinned"}, {ZERO_PLACE_HOST, "host"}};
  for (const auto& [place, name] : names) {
    if (memory.placed[place][use] == 0) continue;
    text += format(", %s %llu", name, static_cast<Number>(memory.placed[place][use]));
  }
  return text;
}

const std::string& name_of(const Plan& plan, zero_param_id param) {
  return plan.model.parameters()[static_cast<size_t>(param)].name;
}

std::string class_line(const Plan& plan, size_t index) {
  const ParameterClass& klass = plan.classes[index];
  std::string line = format(
      "class %zu: %s, %s, %s storage, %zu parameters, %llu elements + %llu padding, %zu "
      "buckets, shard %llu",
      index, dtype_name(klass.dtype), klass.trained ? "trained" : "frozen",
      klass.storage == ZERO_STORAGE_CALLER ? "caller" : "library", klass.members.size(),
      static_cast<Number>(klass.real_elements),
      static_cast<Number>(klass.elements - klass.real_elements), klass.buckets.size(),
      static_cast<Number>(klass.shard_elements));
  const GradientPool& pool = plan.pools[index];
  if (pool.normal_slots + pool.large_slots > 0) {
    line += format(", gradient slots %d x %llu + %d x %llu", pool.normal_slots,
                   static_cast<Number>(pool.normal_elements), pool.large_slots,
                   static_cast<Number>(pool.large_elements));
  }
  return line + "\n";
}

std::string bucket_line(const Plan& plan, const Bucket& bucket) {
  uint64_t real = 0;
  for (const BucketMember& member : bucket.members) real += member.count;
  std::string line = format("bucket %d: class %d, %llu elements + %llu padding, shard %llu",
                            bucket.number, bucket.parameter_class, static_cast<Number>(real),
                            static_cast<Number>(bucket.elements - real),
                            static_cast<Number>(bucket.shard_elements));
  if (bucket.unit >= 0) {
    line += format(", unit %d", bucket.unit);
    if (plan.units[static_cast<size_t>(bucket.unit)].persistent) line += " (kept whole)";
  }
  if (bucket.large) line += ", large";
  const std::string& first = name_of(plan, bucket.members.front().param);
  const std::string& last = name_of(plan, bucket.members.back().param);
  line += format(", %zu parameter%s: %s", bucket.members.size(),
                 bucket.members.size() == 1 ? "" : "s", first.c_str());
  if (bucket.members.size() > 1) line += " .. " + last;
  return line + "\n";
}

} // namespace

const char* memory_use_name(zero_memory_use use) {
  switch (use) {
    case ZERO_MEMORY_TOTAL:
      return "total";
    case ZERO_MEMORY_PARAMS:
      return "params";
    case ZERO_MEMORY_GRADS:
      return "grads";
    case ZERO_MEMORY_MASTER:
      return "master";
    case ZERO_MEMORY_OPTIMIZER:
      return "optimizer";
    case ZERO_MEMORY_GATHERED:
      return "gathered";
    case ZERO_MEMORY_BUCKETS:
      return "buckets";
    case ZERO_MEMORY_STAGING:
      return "staging";
    case ZERO_MEMORY_TABLES:
      return "tables (at most)";
    default:
      return "?";
  }
}

std::string plan_text(const Plan& plan) {
  std::string text =
      format("stage %d, %d rank%s, %zu parameters, %zu buckets (%d trained), fingerprint %016llx\n",
             plan.settings.stage, plan.settings.group.ranks,
             plan.settings.group.ranks == 1 ? "" : "s", plan.model.parameters().size(),
             plan.buckets.size(), plan.trained_buckets, static_cast<Number>(plan.fingerprint));
  for (size_t c = 0; c < plan.classes.size(); ++c) text += class_line(plan, c);
  for (const Bucket& bucket : plan.buckets) text += bucket_line(plan, bucket);
  if (plan.placement.parameters_sharded) {
    const LoanSlots& loans = plan.loans;
    text += format(
        "loans: %zu units, live %llu elements; slots %d x %llu + %d x %llu bytes, kept "
        "whole %llu bytes\n",
        plan.units.size(), static_cast<Number>(plan.live_elements), loans.normal_slots,
        static_cast<Number>(loans.normal_bytes), loans.large_slots,
        static_cast<Number>(loans.large_bytes), static_cast<Number>(loans.persistent_bytes));
  }
  text += "memory of each rank:\n";
  for (int32_t use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; ++use) {
    text += format("  %s: %s%s\n", memory_use_name(use), bytes_text(plan.memory.bytes[use]).c_str(),
                   places_text(plan.memory, use).c_str());
  }
  text += format("  total: %s%s\n", bytes_text(plan.memory.bytes[ZERO_MEMORY_TOTAL]).c_str(),
                 places_text(plan.memory, ZERO_MEMORY_TOTAL).c_str());
  text += format("a load of a checkpoint takes up to %s more, and gives them back\n",
                 bytes_text(loading_bytes(plan)).c_str());
  return text;
}

std::string Plan::text() const {
  return plan_text(*this);
}

} // namespace zero::plan

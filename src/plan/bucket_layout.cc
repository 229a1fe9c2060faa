// SPDX-License-Identifier: BSD-3-Clause
#include "plan/bucket_layout.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace zero::plan {
namespace {

constexpr uint64_t kLeastLimit = uint64_t{1} << 18;
constexpr uint64_t kBucketsAClass = 64;
constexpr uint64_t kLargeFactor = 4;

// Fills one class.  A large parameter goes past the bucket being filled without closing it.
class ClassFiller {
 public:
  ClassFiller(const PlanSettings& settings, const ParameterTable& model,
              const std::vector<int32_t>& unit_of, const ParameterClass& klass, int32_t index,
              std::vector<Bucket>& out)
      : settings_(settings),
        model_(model),
        unit_of_(unit_of),
        limit_(bucket_limit(settings, klass.real_elements)),
        large_limit_(large_limit(settings, klass.real_elements)),
        ranks_(static_cast<uint64_t>(klass.group.ranks)),
        index_(index),
        out_(out) {}

  void add(zero_param_id id) {
    const uint64_t count = model_.parameters()[static_cast<size_t>(id)].elements;
    const int32_t unit = unit_of_.empty() ? -1 : unit_of_[static_cast<size_t>(id)];
    if (unit != open_.unit) close();
    if (count > large_limit_) {
      Bucket alone = started(unit);
      alone.large = true;
      append(alone, id, count);
      finish(std::move(alone));
      return;
    }
    if (!open_.members.empty()) {
      const uint64_t start = round_up(open_.elements, settings_.alignment);
      if (limit_ == 0 || checked_add(start, count, "elements of a bucket") > limit_) close();
    }
    if (open_.members.empty()) open_ = started(unit);
    append(open_, id, count);
  }

  void close() {
    if (!open_.members.empty()) finish(std::move(open_));
    open_ = Bucket();
  }

 private:
  Bucket started(int32_t unit) const {
    Bucket bucket;
    bucket.parameter_class = index_;
    bucket.unit = unit;
    return bucket;
  }

  void append(Bucket& bucket, zero_param_id id, uint64_t count) const {
    const uint64_t offset = round_up(bucket.elements, settings_.alignment);
    bucket.members.push_back(BucketMember{id, offset, count});
    bucket.elements = checked_add(offset, count, "elements of a bucket");
  }

  void finish(Bucket&& bucket) {
    const uint64_t grain = checked_multiply(ranks_, settings_.alignment, "ranks x alignment");
    bucket.elements = round_up(bucket.elements, grain);
    bucket.shard_elements = bucket.elements / ranks_;
    out_.push_back(std::move(bucket));
  }

  const PlanSettings& settings_;
  const ParameterTable& model_;
  const std::vector<int32_t>& unit_of_;
  const uint64_t limit_, large_limit_, ranks_;
  const int32_t index_;
  std::vector<Bucket>& out_;
  Bucket open_;
};

} // namespace

uint64_t bucket_limit(const PlanSettings& settings, uint64_t class_elements) {
  return std::min(settings.reduce_bucket_elements,
                  std::max(kLeastLimit, class_elements / kBucketsAClass));
}

uint64_t large_limit(const PlanSettings& settings, uint64_t class_elements) {
  return kLargeFactor * std::max(kLeastLimit, bucket_limit(settings, class_elements));
}

std::vector<Bucket> make_buckets(const PlanSettings& settings, const ParameterTable& model,
                                 const std::vector<zero_param_id>& order,
                                 const std::vector<int32_t>& unit_of,
                                 std::vector<ParameterClass>& classes) {
  std::vector<Bucket> buckets;
  for (size_t c = 0; c < classes.size(); ++c) {
    ClassFiller filler(settings, model, unit_of, classes[c], static_cast<int32_t>(c), buckets);
    for (const zero_param_id id : classes[c].members) filler.add(id);
    filler.close();
  }

  // Numbers: by the place of the last member, over all classes; no two buckets share one.
  std::vector<size_t> place(model.parameters().size());
  for (size_t i = 0; i < order.size(); ++i) place[static_cast<size_t>(order[i])] = i;
  const auto last = [&](const Bucket& bucket) {
    const bool trained = classes[static_cast<size_t>(bucket.parameter_class)].trained;
    return std::pair(!trained, place[static_cast<size_t>(bucket.members.back().param)]);
  };
  std::sort(buckets.begin(), buckets.end(),
            [&](const Bucket& a, const Bucket& b) { return last(a) < last(b); });

  for (size_t i = 0; i < buckets.size(); ++i) {
    Bucket& bucket = buckets[i];
    ParameterClass& klass = classes[static_cast<size_t>(bucket.parameter_class)];
    bucket.number = static_cast<int32_t>(i);
    bucket.class_offset = klass.elements;
    bucket.shard_offset = klass.shard_elements;
    klass.buckets.push_back(bucket.number);
    klass.elements = checked_add(klass.elements, bucket.elements, "elements of a class");
    klass.shard_elements += bucket.shard_elements;
  }
  return buckets;
}

} // namespace zero::plan

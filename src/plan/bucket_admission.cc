// SPDX-License-Identifier: BSD-3-Clause
#include "plan/bucket_admission.h"

namespace zero::plan {

BucketAdmission::BucketAdmission(const Plan& plan)
    : plan_(plan),
      rule_(plan.placement.parameters_sharded ? IssueRule::kAtPoints : IssueRule::kInOrder),
      pooled_(plan.placement.gradients_sharded),
      entries_(static_cast<size_t>(plan.trained_buckets)),
      slots_(plan.classes.size()) {
  for (size_t c = 0; c < slots_.size() && c < plan.pools.size(); ++c) {
    const GradientPool& pool = plan.pools[c];
    slots_[c].normal = pool.normal_slots;
    slots_[c].owner.assign(static_cast<size_t>(pool.normal_slots + pool.large_slots), -1);
  }
}

void BucketAdmission::begin(const std::vector<int32_t>& names_in_bucket) {
  for (size_t b = 0; b < entries_.size(); ++b) {
    entries_[b].state = State::kIdle;
    entries_[b].remaining = names_in_bucket[b];
  }
  next_ = 0;
  scan_from_ = 0;
  unissued_ = 0;
  for (const Entry& entry : entries_) unissued_ += entry.remaining == 0 ? 1 : 0;
}

Admission BucketAdmission::open(int32_t bucket) {
  Entry& entry = at(bucket);
  if (!pooled_ || entry.slot >= 0) return Admission::kAdmit;
  const Bucket& layout = plan_.buckets[static_cast<size_t>(bucket)];
  Slots& slots = slots_[static_cast<size_t>(layout.parameter_class)];
  const int32_t total = static_cast<int32_t>(slots.owner.size());
  const int32_t begin = layout.large ? slots.normal : 0;
  const int32_t end = layout.large ? total : slots.normal;
  int32_t in_flight = -1, held = 0;
  for (int32_t s = begin; s < end; ++s) {
    const int32_t owner = slots.owner[static_cast<size_t>(s)];
    if (owner < 0) {
      slots.owner[static_cast<size_t>(s)] = bucket;
      entry.slot = s;
      return Admission::kAdmit;
    }
    if (at(owner).state == State::kIssued) {
      // The one issued first ends first.
      if (in_flight < 0 || owner < in_flight) in_flight = owner;
    } else {
      blocking_ = owner;
      ++held;
    }
  }
  if (in_flight >= 0) {
    wait_for_ = in_flight;
    return Admission::kWait;
  }
  needed_ = held + 1;
  return Admission::kRefuse;
}

bool BucketAdmission::name_done(int32_t bucket) {
  Entry& entry = at(bucket);
  if (--entry.remaining != 0) return false;
  ++unissued_;
  if (bucket < scan_from_) scan_from_ = bucket;
  return true;
}

void BucketAdmission::close(int32_t bucket) {
  Entry& entry = at(bucket);
  if (entry.remaining == 0) return;
  entry.remaining = 1;
  name_done(bucket);
}

int32_t BucketAdmission::next_to_issue(bool at_point) {
  const int32_t count = static_cast<int32_t>(entries_.size());
  if (rule_ == IssueRule::kInOrder) {
    if (next_ >= count || at(next_).remaining != 0) return -1;
    at(next_).state = State::kIssued;
    --unissued_;
    return next_++;
  }
  if (!at_point || unissued_ == 0) return -1;
  for (int32_t b = scan_from_; b < count; ++b) {
    Entry& entry = at(b);
    if (entry.state != State::kIdle || entry.remaining != 0) continue;
    entry.state = State::kIssued;
    --unissued_;
    scan_from_ = b + 1;
    return b;
  }
  return -1;
}

void BucketAdmission::reduced(int32_t bucket) {
  Entry& entry = at(bucket);
  entry.state = State::kReduced;
  if (entry.slot < 0) return;
  const Bucket& layout = plan_.buckets[static_cast<size_t>(bucket)];
  slots_[static_cast<size_t>(layout.parameter_class)].owner[static_cast<size_t>(entry.slot)] = -1;
  entry.slot = -1;
}

} // namespace zero::plan

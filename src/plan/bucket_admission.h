// Which bucket may be written, waits, or is refused, and which is issued next.  A pure machine: the
// rules of architecture section 4, without threads or memory.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace zero::plan {

enum class Admission { kAdmit, kWait, kRefuse };

// When complete buckets are issued.
enum class IssueRule {
  kInOrder, // stages 0 to 2: in plan order, each as soon as all before it are
  kAtPoints, // stage 3: at a point of the sequence, all complete ones in plan order
};

// pre: one thread at a time.  No call but the constructor allocates.
class BucketAdmission {
 public:
  explicit BucketAdmission(const Plan& plan);

  // A micro-batch begins: every bucket is idle again.  pre: all issued ones are reduced or are
  // still reducing; those keep their slot until reduced().
  void begin(const std::vector<int32_t>& names_in_bucket);

  // A gradient of bucket is about to be written.  kAdmit: slot(bucket) is valid.  kWait: not before
  // wait_for() is reduced.  kRefuse: every slot is held by a bucket that is not issued; nothing
  // changed.
  Admission open(int32_t bucket);
  int32_t wait_for() const { return wait_for_; }

  // One more name of bucket is ready, or will not come; true when it was the last.
  bool name_done(int32_t bucket);
  void close(int32_t bucket); // all its names are done
  bool complete(int32_t bucket) const { return at(bucket).remaining == 0; }
  bool issued(int32_t bucket) const { return at(bucket).state == State::kIssued; }
  bool is_reduced(int32_t bucket) const { return at(bucket).state == State::kReduced; }

  // The next bucket to issue, now marked issued; -1: none.  at_point: we stand at a point.
  int32_t next_to_issue(bool at_point);
  void reduced(int32_t bucket); // its slot is free

  // -1: none, contributes nothing.  Slots of a class: normal ones first, then large ones.
  int32_t slot(int32_t bucket) const { return at(bucket).slot; }
  // Of the last refusal: a bucket that holds a slot, and how many would have been enough so far.
  int32_t blocking_bucket() const { return blocking_; }
  int32_t slots_needed() const { return needed_; }

 private:
  enum class State { kIdle, kIssued, kReduced };
  struct Entry {
    State state = State::kReduced;
    int32_t remaining = 0;
    int32_t slot = -1;
  };
  struct Slots {
    std::vector<int32_t> owner; // bucket of each slot, -1: free
    int32_t normal = 0; // the first so many are normal
  };
  const Entry& at(int32_t bucket) const { return entries_[static_cast<size_t>(bucket)]; }
  Entry& at(int32_t bucket) { return entries_[static_cast<size_t>(bucket)]; }

  const Plan& plan_;
  IssueRule rule_;
  bool pooled_;
  std::vector<Entry> entries_;
  std::vector<Slots> slots_; // by class
  int32_t next_ = 0; // kInOrder
  int32_t unissued_ = 0; // complete, not issued (kAtPoints)
  int32_t scan_from_ = 0;
  int32_t wait_for_ = -1;
  int32_t blocking_ = -1;
  int32_t needed_ = 0;
};

} // namespace zero::plan

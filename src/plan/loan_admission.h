// Which units are whole at the moment, in which slot, and which one has to go.  A pure machine: its
// answers depend on the order of calls alone, so all ranks decide alike.
// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace zero::plan {

// pre: one thread at a time.  No call but the constructor allocates.
class LoanAdmission {
 public:
  explicit LoanAdmission(const Plan& plan);

  enum class Answer { kResident, kGather, kRefuse };
  // One more loan of unit.  kGather: it has a slot and must be gathered into it.  kRefuse: every
  // slot that would do is on loan; nothing changed.
  Answer acquire(int32_t unit);
  // Takes back an acquire that this call made, in reverse order.
  void undo(int32_t unit, Answer answer);
  // As acquire without a loan; never takes the place of a loan or of another prefetch, and keeps
  // what is gathered ahead within prefetch_elements (units kept whole do not count).
  Answer prefetch(int32_t unit);
  void release(int32_t unit);
  // Values have changed: what is not on loan is no longer valid.
  void forget_all();

  int32_t loans(int32_t unit) const { return units_[static_cast<size_t>(unit)].loans; }
  int32_t open_loans() const { return open_loans_; }
  bool resident(int32_t unit) const { return units_[static_cast<size_t>(unit)].resident; }
  // Bytes from the start of the loan region (persistent units: of theirs).
  uint64_t offset_bytes(int32_t unit) const;
  // A value of live_parameters with which `unit` could be lent beside all that is on loan now.
  uint64_t elements_needed(int32_t unit) const;

 private:
  struct UnitState {
    int32_t loans = 0;
    int32_t slot = -1;
    bool resident = false; // gathered, or being gathered
    bool prefetched = false; // and not acquired since
    uint64_t last_use = 0;
  };
  uint64_t elements_ahead() const; // prefetched, not acquired since
  int32_t find_slot(int32_t unit, bool may_take_prefetched);

  const Plan& plan_;
  std::vector<UnitState> units_;
  std::vector<int32_t> owner_; // unit of each slot, normal ones first; -1: free
  int32_t open_loans_ = 0;
  uint64_t clock_ = 0;
};

} // namespace zero::plan

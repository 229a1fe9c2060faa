// SPDX-License-Identifier: BSD-3-Clause
#include "plan/loan_admission.h"

#include "plan/loan_slots.h"

namespace zero::plan {

LoanAdmission::LoanAdmission(const Plan& plan)
    : plan_(plan),
      units_(plan.units.size()),
      owner_(static_cast<size_t>(plan.loans.normal_slots + plan.loans.large_slots), -1) {}

uint64_t LoanAdmission::offset_bytes(int32_t unit) const {
  const GatherUnit& layout = plan_.units[static_cast<size_t>(unit)];
  if (layout.persistent) return layout.persistent_offset_bytes;
  const int32_t slot = units_[static_cast<size_t>(unit)].slot;
  const LoanSlots& slots = plan_.loans;
  if (slot < slots.normal_slots) return static_cast<uint64_t>(slot) * slots.normal_bytes;
  return static_cast<uint64_t>(slots.normal_slots) * slots.normal_bytes +
         static_cast<uint64_t>(slot - slots.normal_slots) * slots.large_bytes;
}

// A free slot, else the one whose unit was used longest ago and is not on loan; -1: none.
int32_t LoanAdmission::find_slot(int32_t unit, bool may_take_prefetched) {
  const bool large = plan_.units[static_cast<size_t>(unit)].large;
  const int32_t begin = large ? plan_.loans.normal_slots : 0;
  const int32_t end = large ? static_cast<int32_t>(owner_.size()) : plan_.loans.normal_slots;
  int32_t best = -1;
  bool best_prefetched = false;
  uint64_t best_use = 0;
  for (int32_t s = begin; s < end; ++s) {
    const int32_t owner = owner_[static_cast<size_t>(s)];
    if (owner < 0) return s;
    const UnitState& state = units_[static_cast<size_t>(owner)];
    if (state.loans > 0 || (state.prefetched && !may_take_prefetched)) continue;
    const bool better = best < 0 || (best_prefetched && !state.prefetched) ||
                        (best_prefetched == state.prefetched && state.last_use < best_use);
    if (better) {
      best = s;
      best_prefetched = state.prefetched;
      best_use = state.last_use;
    }
  }
  return best;
}

LoanAdmission::Answer LoanAdmission::acquire(int32_t unit) {
  UnitState& state = units_[static_cast<size_t>(unit)];
  Answer answer = Answer::kResident;
  if (!state.resident) {
    if (!plan_.units[static_cast<size_t>(unit)].persistent) {
      const int32_t slot = find_slot(unit, /*may_take_prefetched=*/true);
      if (slot < 0) return Answer::kRefuse;
      const int32_t owner = owner_[static_cast<size_t>(slot)];
      if (owner >= 0) units_[static_cast<size_t>(owner)] = UnitState{};
      owner_[static_cast<size_t>(slot)] = unit;
      state.slot = slot;
    }
    state.resident = true;
    answer = Answer::kGather;
  }
  state.prefetched = false;
  state.last_use = ++clock_;
  ++state.loans;
  ++open_loans_;
  return answer;
}

void LoanAdmission::undo(int32_t unit, Answer answer) {
  UnitState& state = units_[static_cast<size_t>(unit)];
  --state.loans;
  --open_loans_;
  if (answer != Answer::kGather) return;
  state.resident = false;
  if (state.slot >= 0) owner_[static_cast<size_t>(state.slot)] = -1;
  state.slot = -1;
}

uint64_t LoanAdmission::elements_ahead() const {
  uint64_t elements = 0;
  for (const int32_t owner : owner_) {
    if (owner < 0 || !units_[static_cast<size_t>(owner)].prefetched) continue;
    elements += plan_.units[static_cast<size_t>(owner)].elements;
  }
  return elements;
}

LoanAdmission::Answer LoanAdmission::prefetch(int32_t unit) {
  UnitState& state = units_[static_cast<size_t>(unit)];
  if (state.resident) return Answer::kResident;
  const GatherUnit& layout = plan_.units[static_cast<size_t>(unit)];
  if (!layout.persistent) {
    if (elements_ahead() + layout.elements > plan_.settings.prefetch_elements) {
      return Answer::kRefuse;
    }
    const int32_t slot = find_slot(unit, /*may_take_prefetched=*/false);
    if (slot < 0) return Answer::kRefuse;
    const int32_t owner = owner_[static_cast<size_t>(slot)];
    if (owner >= 0) units_[static_cast<size_t>(owner)] = UnitState{};
    owner_[static_cast<size_t>(slot)] = unit;
    state.slot = slot;
  }
  state.resident = true;
  state.prefetched = true;
  state.last_use = ++clock_;
  return Answer::kGather;
}

void LoanAdmission::release(int32_t unit) {
  UnitState& state = units_[static_cast<size_t>(unit)];
  --state.loans;
  --open_loans_;
}

void LoanAdmission::forget_all() {
  for (size_t u = 0; u < units_.size(); ++u) {
    UnitState& state = units_[u];
    if (state.loans > 0) continue;
    if (state.slot >= 0) owner_[static_cast<size_t>(state.slot)] = -1;
    state = UnitState{};
  }
}

uint64_t LoanAdmission::elements_needed(int32_t unit) const {
  int32_t wanted[2] = {0, 0}; // slots, normal and large
  for (size_t u = 0; u < units_.size(); ++u) {
    const bool held = units_[u].loans > 0 || u == static_cast<size_t>(unit);
    if (held && !plan_.units[u].persistent) ++wanted[plan_.units[u].large ? 1 : 0];
  }
  return live_elements_for(plan_.settings, plan_.units, wanted[0], wanted[1]);
}

} // namespace zero::plan

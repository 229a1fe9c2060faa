// SPDX-License-Identifier: BSD-3-Clause
#include "plan/loan_slots.h"

#include <algorithm>

#include "base/checked.h"

namespace zero::plan {
namespace {

// What the loaned units look like, in elements of their parameters (padding apart).
struct Sizes {
  uint64_t model = 0; // all units, persistent ones too
  uint64_t largest = 0, second = 0; // of those that are lent
  uint64_t normal = 0, large = 0; // largest of each kind
  uint64_t normal_units = 0, large_units = 0;
};

Sizes measure(const std::vector<GatherUnit>& units) {
  Sizes sizes;
  for (const GatherUnit& unit : units) {
    sizes.model += unit.elements;
    if (unit.persistent) continue;
    if (unit.elements > sizes.largest) {
      sizes.second = sizes.largest;
      sizes.largest = unit.elements;
    } else {
      sizes.second = std::max(sizes.second, unit.elements);
    }
    uint64_t& slot = unit.large ? sizes.large : sizes.normal;
    slot = std::max(slot, unit.elements);
    (unit.large ? sizes.large_units : sizes.normal_units) += 1;
  }
  return sizes;
}

uint64_t minus(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

// How many slots of `size` fit into `live`; slots without size cost nothing.
uint64_t fitting(uint64_t live, uint64_t size) {
  return size == 0 ? UINT64_MAX : live / size;
}

} // namespace

uint64_t LoanSlots::bytes() const {
  uint64_t sum = checked_multiply(normal_bytes, static_cast<uint64_t>(normal_slots), "loan slots");
  sum = checked_add(sum,
                    checked_multiply(large_bytes, static_cast<uint64_t>(large_slots), "loan slots"),
                    "loan slots");
  return checked_add(sum, persistent_bytes, "loan slots");
}

// The default is the two largest units, or an eighth of the model where that is more; twice the
// largest would make a model with one huge embedding hold more than at stage 2.
LoanSlots make_loan_slots(const PlanSettings& settings, const std::vector<GatherUnit>& units,
                          uint64_t& live_elements) {
  LoanSlots slots;
  for (const GatherUnit& unit : units) {
    const uint64_t bytes = round_up(unit.bytes, 64);
    if (unit.persistent) {
      slots.persistent_bytes = unit.persistent_offset_bytes + bytes;
    } else {
      uint64_t& slot = unit.large ? slots.large_bytes : slots.normal_bytes;
      slot = std::max(slot, bytes);
    }
  }
  const Sizes sizes = measure(units);
  const bool given = settings.live_elements != 0;
  uint64_t live = settings.live_elements;
  if (!given) {
    live = std::max(sizes.largest + sizes.second, sizes.model / 8);
    live = std::min(live, settings.max_live_elements);
  }

  // Whatever live says, every unit can be lent: there is a slot of each kind that is needed.
  const uint64_t spare = minus(live, 2 * sizes.normal);
  const uint64_t large =
      std::min(sizes.large_units, std::max<uint64_t>(fitting(spare, sizes.large), 1));
  const uint64_t least = std::min<uint64_t>(sizes.normal_units, given ? 1 : 2);
  const uint64_t fit = fitting(minus(live, large * sizes.large), sizes.normal);
  const uint64_t normal = std::min(sizes.normal_units, std::max(fit, least));
  slots.large_slots = static_cast<int32_t>(large);
  slots.normal_slots = static_cast<int32_t>(normal);
  live_elements = std::max(live, large * sizes.large + normal * sizes.normal);
  return slots;
}

uint64_t live_elements_for(PlanSettings settings, const std::vector<GatherUnit>& units,
                           int32_t normal, int32_t large) {
  const Sizes sizes = measure(units);
  const uint64_t step = std::max<uint64_t>(1, sizes.normal > 0 ? sizes.normal : sizes.large);
  const uint64_t all = sizes.normal_units * sizes.normal + sizes.large_units * sizes.large;
  settings.live_elements = std::max(
      {settings.live_elements, uint64_t{1},
       static_cast<uint64_t>(normal) * sizes.normal + static_cast<uint64_t>(large) * sizes.large});
  for (;; settings.live_elements += step) { // a further large slot may take room from normal ones
    uint64_t live = 0;
    const LoanSlots slots = make_loan_slots(settings, units, live);
    if (slots.normal_slots >= normal && slots.large_slots >= large) break;
    if (settings.live_elements > all + 2 * sizes.normal) break; // every unit has a slot
  }
  return settings.live_elements;
}

} // namespace zero::plan

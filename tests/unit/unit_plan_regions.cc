// What must hold for units, slots and memory regions of any model: the random ones of
// unit_plan_properties.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "plan_cases.h"

using namespace plan_cases;

namespace {

void units_hold_their_parameters_and_no_others(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    zero_param_id first_of_last = -1;
    std::set<zero_param_id> seen;
    for (size_t u = 0; u < plan.units.size(); ++u) {
      const GatherUnit& unit = plan.units[u];
      EXPECT(unit.caller_unit >= 0 || unit.members.size() == 1);
      EXPECT(unit.members.front() > first_of_last);
      first_of_last = unit.members.front();
      uint64_t elements = 0;
      for (const zero_param_id id : unit.members) {
        const auto i = static_cast<size_t>(id);
        EXPECT(is_laid_out(made.model, i) && seen.insert(id).second);
        EXPECT_EQUAL(plan.unit_of[i], u);
        EXPECT_EQUAL(made.model.parameters()[i].unit, unit.caller_unit);
        elements += made.model.parameters()[i].elements;
        if (made.settings.stage == 3) EXPECT_EQUAL(bucket_of(plan, i).unit, u);
      }
      EXPECT_EQUAL(unit.elements, elements);
    }
    for (size_t i = 0; i < made.model.parameters().size(); ++i) {
      const bool in = seen.count(static_cast<zero_param_id>(i)) == 1;
      EXPECT(in == is_laid_out(made.model, i));
      if (made.model.parameters()[i].role == ZERO_PARAM_BUFFER) EXPECT_EQUAL(plan.unit_of[i], -1);
    }
    if (made.settings.stage == 3) return;
    for (const Bucket& bucket : plan.buckets) EXPECT_EQUAL(bucket.unit, -1);
  });
}

void slots_hold_every_bucket(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    std::vector<int64_t> normal(plan.classes.size()), large(plan.classes.size());
    EXPECT_EQUAL(plan.pools.size(), plan.classes.size());
    for (const Bucket& bucket : plan.buckets) {
      const auto c = static_cast<size_t>(bucket.parameter_class);
      const GradientPool& pool = plan.pools[c];
      if (made.settings.stage < 2 || !plan.classes[c].trained) {
        EXPECT_EQUAL(pool.elements(), 0u);
        continue;
      }
      ++(bucket.large ? large : normal)[c];
      EXPECT(bucket.elements <= (bucket.large ? pool.large_elements : pool.normal_elements));
      EXPECT((bucket.large ? pool.large_slots : pool.normal_slots) >= 1);
    }
    for (size_t c = 0; c < plan.classes.size(); ++c) {
      EXPECT(plan.pools[c].normal_slots <= normal[c] && plan.pools[c].large_slots <= large[c]);
      if (made.settings.open_buckets > 0) continue;
      EXPECT(plan.pools[c].normal_slots == normal[c] && plan.pools[c].large_slots == large[c]);
    }
  });
}

struct Piece {
  uint64_t begin, end;
};

void expect_disjoint(std::vector<Piece> pieces, uint64_t limit) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t end = 0;
  for (const Piece& piece : pieces) {
    EXPECT(piece.begin >= end && piece.end >= piece.begin);
    end = piece.end;
  }
  EXPECT(end <= limit);
}

void loan_slots_hold_every_unit(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    if (made.settings.stage < 3) {
      EXPECT_EQUAL(plan.loans.bytes(), 0u);
      return;
    }
    std::vector<Piece> kept;
    uint64_t kept_elements = 0, lent_at_once = 0;
    for (const GatherUnit& unit : plan.units) {
      std::vector<Piece> pieces;
      for (size_t b = 0; b < unit.buckets.size(); ++b) {
        const Bucket& bucket = plan.buckets[static_cast<size_t>(unit.buckets[b])];
        const uint64_t begin = unit.slot_offset_bytes[b];
        EXPECT_EQUAL(begin % 64, 0u);
        pieces.push_back(
            {begin, begin + bucket.elements * dtype_bytes(class_of(plan, bucket).dtype)});
      }
      expect_disjoint(pieces, unit.bytes);
      const bool small = std::all_of(unit.members.begin(), unit.members.end(), [&](auto id) {
        return made.model.parameters()[static_cast<size_t>(id)].elements <=
               made.settings.persistence_threshold_elements;
      });
      if (unit.persistent) {
        EXPECT(small && unit.persistent_offset_bytes % 64 == 0);
        kept.push_back({unit.persistent_offset_bytes, unit.persistent_offset_bytes + unit.bytes});
        kept_elements += unit.elements;
      } else {
        EXPECT(unit.bytes <= (unit.large ? plan.loans.large_bytes : plan.loans.normal_bytes));
        EXPECT((unit.large ? plan.loans.large_slots : plan.loans.normal_slots) >= 1);
        lent_at_once = std::max(lent_at_once, unit.elements);
      }
    }
    expect_disjoint(kept, plan.loans.persistent_bytes);
    EXPECT(kept_elements <= made.settings.model_persistence_elements);
    EXPECT(plan.live_elements >= lent_at_once);
  });
}

void regions_are_disjoint_and_inside_their_allocation(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    const MemoryPlan& memory = plan.memory;
    std::map<std::pair<zero_place, zero_memory_use>, std::vector<Piece>> pieces;
    std::set<std::tuple<int, int32_t, int32_t>> seen;
    for (const Region& region : memory.regions) {
      EXPECT_EQUAL(region.offset % 64, 0u);
      pieces[{region.place, region.use}].push_back({region.offset, region.offset + region.bytes});
      EXPECT(seen.insert({static_cast<int>(region.kind), region.parameter_class, region.state})
                 .second);
      EXPECT(plan.find_region(region.kind, region.parameter_class, region.state) == &region);
    }
    uint64_t total = 0;
    for (const zero_place place : kPlacesHeld) {
      uint64_t at_place = 0;
      for (int32_t use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; ++use) {
        at_place += memory.placed[place][use];
        if (use == ZERO_MEMORY_TABLES) continue;
        const bool apart = use == ZERO_MEMORY_STAGING && place == memory.place;
        EXPECT_EQUAL(
            memory.allocation_bytes(place, use) + (apart ? memory.communicator_staging_bytes : 0),
            memory.placed[place][use]);
        expect_disjoint(pieces[{place, use}], memory.allocation_bytes(place, use));
      }
      EXPECT_EQUAL(memory.placed[place][ZERO_MEMORY_TOTAL], at_place);
      total += at_place;
    }
    EXPECT_EQUAL(memory.bytes[ZERO_MEMORY_TOTAL], total);
    EXPECT_EQUAL(memory.bytes[ZERO_MEMORY_TABLES],
                 memory.placed[ZERO_PLACE_HOST][ZERO_MEMORY_TABLES]);
    if (made.settings.group.ranks == 1) EXPECT_EQUAL(memory.bytes[ZERO_MEMORY_STAGING], 0u);
  });
}

void buffers_lie_whole_and_apart(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < made.model.parameters().size(); ++i) {
      const Parameter& parameter = made.model.parameters()[i];
      if (parameter.role != ZERO_PARAM_BUFFER) continue;
      EXPECT_EQUAL(plan.places[i].bucket, -1);
      if (parameter.storage != ZERO_STORAGE_LIBRARY) continue;
      if (parameter.root != static_cast<zero_param_id>(i)) continue;
      const uint64_t begin = plan.places[i].offset;
      EXPECT_EQUAL(begin % 64, 0u);
      pieces.push_back({begin, begin + parameter.elements * dtype_bytes(parameter.dtype)});
    }
    const Region* region = plan.find_region(RegionKind::kBufferParams);
    expect_disjoint(pieces, region == nullptr ? 0 : region->bytes);
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(units_hold_their_parameters_and_no_others),
      cmocka_unit_test(slots_hold_every_bucket),
      cmocka_unit_test(loan_slots_hold_every_unit),
      cmocka_unit_test(regions_are_disjoint_and_inside_their_allocation),
      cmocka_unit_test(buffers_lie_whole_and_apart),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

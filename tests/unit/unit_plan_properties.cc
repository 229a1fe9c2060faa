// What must hold for the plan of any model: thousands of random ones, from fixed seeds.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <set>

#include "plan_cases.h"

using namespace plan_cases;

namespace {

constexpr uint64_t kCases = 4000;

using Check = void (*)(const RandomCase&, const Plan&);

void for_random_models(Check check) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const int32_t ranks = seed % 100 == 0 ? 4096 : static_cast<int32_t>(1 + seed % 64);
    const RandomCase made = random_case(seed, ranks);
    check(made, *Plan::make(made.settings, made.model));
  }
}

bool is_laid_out(const ParameterTable& model, size_t i) {
  const Parameter& parameter = model.parameters()[i];
  return parameter.root == static_cast<zero_param_id>(i) && parameter.role != ZERO_PARAM_BUFFER;
}

const Bucket& bucket_of(const Plan& plan, size_t i) {
  return plan.buckets[static_cast<size_t>(plan.places[i].bucket)];
}

const ParameterClass& class_of(const Plan& plan, const Bucket& bucket) {
  return plan.classes[static_cast<size_t>(bucket.parameter_class)];
}

uint64_t last_end(const Bucket& bucket) {
  return bucket.members.back().offset + bucket.members.back().count;
}

// ---- who owns what ---------------------------------------------------------------------------

void spans_tile_each_parameter(const RandomCase& made, const Plan& plan) {
  for (size_t i = 0; i < made.model.parameters().size(); ++i) {
    const auto id = static_cast<zero_param_id>(i);
    const Parameter& parameter = made.model.parameters()[i];
    uint64_t next = 0;
    for (int32_t rank = 0; rank < made.settings.group.ranks; ++rank) {
      const zero_span span = plan.shard_span(id, rank);
      const zero_span owned = plan.owned_span(id, rank);
      if (parameter.role == ZERO_PARAM_BUFFER || made.settings.stage == 0) {
        EXPECT(owned.offset == 0 && owned.count == parameter.elements);
      } else {
        EXPECT(owned.offset == span.offset && owned.count == span.count);
      }
      if (parameter.role == ZERO_PARAM_BUFFER) continue;
      if (span.count == 0) continue;
      EXPECT_EQUAL(span.offset, next);
      next += span.count;
    }
    if (parameter.role != ZERO_PARAM_BUFFER) EXPECT_EQUAL(next, parameter.elements);
  }
}

// The runs of all ranks, one after the other, are the members of the bucket.
void runs_are_the_members(const RandomCase& made, const Plan& plan) {
  std::vector<uint64_t> seen(made.model.parameters().size());
  for (const Bucket& bucket : plan.buckets) {
    uint64_t end_of_last = 0;
    for (int32_t rank = 0; rank < made.settings.group.ranks; ++rank) {
      const uint64_t begin = bucket.shard_elements * static_cast<uint64_t>(rank);
      for (const Run& run : plan.runs(bucket.number, rank)) {
        const auto i = static_cast<size_t>(run.param);
        EXPECT(run.count > 0);
        EXPECT(run.bucket_offset >= end_of_last);
        end_of_last = run.bucket_offset + run.count;
        EXPECT(run.bucket_offset >= begin && end_of_last <= begin + bucket.shard_elements);
        EXPECT_EQUAL(run.bucket_offset, plan.places[i].offset + run.param_offset);
        EXPECT_EQUAL(run.param_offset, seen[i]);
        seen[i] += run.count;
        const zero_span span = plan.shard_span(run.param, rank);
        EXPECT(span.offset == run.param_offset && span.count == run.count);
      }
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (is_laid_out(made.model, i)) EXPECT_EQUAL(seen[i], made.model.parameters()[i].elements);
  }
}

void each_is_in_one_bucket_of_its_class(const RandomCase& made, const Plan& plan) {
  std::vector<int> times(made.model.parameters().size());
  for (const Bucket& bucket : plan.buckets) {
    const ParameterClass& klass = class_of(plan, bucket);
    EXPECT(!bucket.members.empty());
    for (const BucketMember& member : bucket.members) {
      const auto i = static_cast<size_t>(member.param);
      const Parameter& parameter = made.model.parameters()[i];
      ++times[i];
      EXPECT_EQUAL(member.count, parameter.elements);
      EXPECT_EQUAL(plan.places[i].bucket, bucket.number);
      EXPECT_EQUAL(plan.places[i].offset, member.offset);
      EXPECT(klass.dtype == parameter.dtype && klass.storage == parameter.storage);
      EXPECT(klass.trained == (parameter.role == ZERO_PARAM_TRAINED));
    }
  }
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQUAL(times[i], is_laid_out(made.model, i) ? 1 : 0);
    const auto root = static_cast<size_t>(made.model.parameters()[i].root);
    EXPECT(plan.places[i].bucket == plan.places[root].bucket &&
           plan.places[i].offset == plan.places[root].offset);
    EXPECT_EQUAL(plan.unit_of[i], plan.unit_of[root]);
  }
}

void every_element_is_owned_exactly_once(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    each_is_in_one_bucket_of_its_class(made, plan);
    if (made.settings.group.ranks > 64 && plan.buckets.size() > 8)
      return; // long; the next test has such worlds
    spans_tile_each_parameter(made, plan);
    runs_are_the_members(made, plan);
  });
}

void awkward_sizes_at_1_to_64_and_4096_ranks(void**) {
  std::vector<int32_t> worlds = {4096};
  for (int32_t ranks = 1; ranks <= 64; ++ranks) worlds.push_back(ranks);
  for (const int32_t ranks : worlds) {
    for (const int32_t stage : {0, 1, 2, 3}) {
      RandomCase made;
      made.settings = settings_of(stage, ranks);
      made.model = model_of({{0},
                             {1},
                             {ranks - 1},
                             {ranks},
                             {ranks + 1},
                             {},
                             {104729},
                             {31, 1},
                             {2147483647},
                             {2147483648},
                             {3218569051},
                             {7, 0}});
      const auto plan = Plan::make(made.settings, made.model);
      each_is_in_one_bucket_of_its_class(made, *plan);
      spans_tile_each_parameter(made, *plan);
      runs_are_the_members(made, *plan);
    }
  }
}

void a_parameter_of_more_than_2_31_elements_is_laid_out(void**) {
  const uint64_t elements = 3218569051;
  for (const int32_t ranks : {1, 2, 7, 4096}) {
    const auto plan =
        Plan::make(settings_of(1, ranks), model_of({{5}, {static_cast<int64_t>(elements)}}));
    const auto n = static_cast<uint64_t>(ranks);
    uint64_t total = 0, most = 0;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const uint64_t count = plan->shard_span(1, rank).count;
      total += count;
      most = std::max(most, count);
    }
    EXPECT_EQUAL(total, elements);
    // An equal share, up to where it is cut: the alignment, and what else is in the bucket.
    EXPECT(most >= elements / n && most <= elements / n + 32 + 32);
  }
}

// ---- padding -----------------------------------------------------------------------------------

void padding_is_only_at_ends_of_parameters_and_buckets(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    const uint64_t alignment = made.settings.alignment;
    const auto ranks = static_cast<uint64_t>(made.settings.group.ranks);
    for (const Bucket& bucket : plan.buckets) {
      uint64_t end = 0;
      for (const BucketMember& member : bucket.members) {
        EXPECT_EQUAL(member.offset % alignment, 0u);
        EXPECT(member.offset >= end && member.offset - end < alignment);
        end = member.offset + member.count;
      }
      EXPECT(bucket.elements >= end && bucket.elements - end < ranks * alignment);
      EXPECT_EQUAL(bucket.elements, bucket.shard_elements * ranks);
      EXPECT_EQUAL(bucket.shard_elements % alignment, 0u);
    }
  });
}

void buckets_of_a_class_lie_one_behind_the_other(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    size_t buckets = 0;
    for (size_t c = 0; c < plan.classes.size(); ++c) {
      const ParameterClass& klass = plan.classes[c];
      uint64_t offset = 0, shard_offset = 0, real = 0;
      for (const int32_t number : klass.buckets) {
        const Bucket& bucket = plan.buckets[static_cast<size_t>(number)];
        EXPECT_EQUAL(bucket.parameter_class, c);
        EXPECT_EQUAL(bucket.class_offset, offset);
        EXPECT_EQUAL(bucket.shard_offset, shard_offset);
        offset += bucket.elements;
        shard_offset += bucket.shard_elements;
      }
      for (const zero_param_id id : klass.members) {
        real += made.model.parameters()[static_cast<size_t>(id)].elements;
      }
      EXPECT(klass.elements == offset && klass.shard_elements == shard_offset);
      EXPECT_EQUAL(klass.real_elements, real);
      buckets += klass.buckets.size();
    }
    EXPECT_EQUAL(buckets, plan.buckets.size());
  });
}

// ---- order and closing -------------------------------------------------------------------------

void buckets_are_numbered_by_their_last_parameter(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    const std::vector<zero_param_id> order = made.model.backward_order();
    std::map<zero_param_id, size_t> place;
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    size_t last = 0;
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      const Bucket& bucket = plan.buckets[b];
      EXPECT_EQUAL(bucket.number, b);
      const bool trained = b < static_cast<size_t>(plan.trained_buckets);
      EXPECT(class_of(plan, bucket).trained == trained);
      if (b == static_cast<size_t>(plan.trained_buckets)) last = 0;
      for (size_t m = 1; m < bucket.members.size(); ++m) {
        EXPECT(place[bucket.members[m - 1].param] < place[bucket.members[m].param]);
      }
      const size_t mine = place[bucket.members.back().param] + 1;
      EXPECT(mine > last);
      last = mine;
    }
  });
}

// The rules in the words of the page: a 64th of the class, at least 2^18, DeepSpeed's as ceiling.
void buckets_close_at_their_limit_and_not_before(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    const PlanSettings& settings = made.settings;
    for (const ParameterClass& klass : plan.classes) {
      const uint64_t least = 262144;
      const uint64_t limit =
          std::min(settings.reduce_bucket_elements, std::max(least, klass.real_elements / 64));
      const Bucket* previous = nullptr;
      for (const int32_t number : klass.buckets) {
        const Bucket& bucket = plan.buckets[static_cast<size_t>(number)];
        uint64_t largest = 0;
        for (const BucketMember& member : bucket.members) largest = std::max(largest, member.count);
        EXPECT(bucket.large == (largest > 4 * std::max(limit, least)));
        if (bucket.members.size() > 1) EXPECT(!bucket.large && last_end(bucket) <= limit);
        if (bucket.large) { // passes by, unless another unit begins with it
          if (previous != nullptr && previous->unit != bucket.unit) previous = nullptr;
          continue;
        }
        if (previous != nullptr && previous->unit == bucket.unit) {
          const uint64_t a = settings.alignment;
          const uint64_t start = (last_end(*previous) + a - 1) / a * a;
          EXPECT(limit == 0 || start + bucket.members.front().count > limit);
        }
        previous = &bucket;
      }
    }
  });
}

// ---- units, slots, regions
// -----------------------------------------------------------------------

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
    std::map<zero_memory_use, std::vector<Piece>> pieces;
    std::set<std::tuple<int, int32_t, int32_t>> seen;
    for (const Region& region : memory.regions) {
      EXPECT_EQUAL(region.offset % 64, 0u);
      pieces[region.use].push_back({region.offset, region.offset + region.bytes});
      EXPECT(seen.insert({static_cast<int>(region.kind), region.parameter_class, region.state})
                 .second);
      EXPECT(plan.find_region(region.kind, region.parameter_class, region.state) == &region);
    }
    uint64_t total = 0;
    for (int32_t use = ZERO_MEMORY_PARAMS; use <= ZERO_MEMORY_TABLES; ++use) {
      total += memory.bytes[use];
      if (use == ZERO_MEMORY_TABLES) continue;
      const uint64_t apart = use == ZERO_MEMORY_STAGING ? memory.communicator_staging_bytes : 0;
      EXPECT_EQUAL(memory.allocation_bytes(use) + apart, memory.bytes[use]);
      expect_disjoint(pieces[use], memory.allocation_bytes(use));
    }
    EXPECT_EQUAL(memory.bytes[ZERO_MEMORY_TOTAL], total);
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

// ---- a function of its inputs
// ----------------------------------------------------------------------

// Another rank registers the same model with its data elsewhere, and gets the same plan.
void all_ranks_agree(void**) {
  for_random_models([](const RandomCase& made, const Plan& plan) {
    static char elsewhere;
    ParameterTable theirs;
    for (size_t g = 1; g < made.model.groups().size(); ++g) {
      theirs.add_group(made.model.groups()[g].name, made.model.groups()[g].values);
    }
    for (Parameter parameter : made.model.parameters()) {
      if (parameter.data != nullptr) parameter.data = &elsewhere;
      theirs.add(parameter);
    }
    theirs.set_backward_order(made.model.backward_order());
    const auto other = Plan::make(made.settings, theirs);
    EXPECT(other->fingerprint == plan.fingerprint);
    EXPECT(other->text() == plan.text());
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      const Bucket& x = plan.buckets[b];
      const Bucket& y = other->buckets[b];
      EXPECT(x.class_offset == y.class_offset && x.shard_offset == y.shard_offset);
      for (size_t m = 0; m < x.members.size(); ++m) {
        EXPECT(x.members[m].param == y.members[m].param &&
               x.members[m].offset == y.members[m].offset);
      }
    }
  });
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_element_is_owned_exactly_once),
      cmocka_unit_test(awkward_sizes_at_1_to_64_and_4096_ranks),
      cmocka_unit_test(a_parameter_of_more_than_2_31_elements_is_laid_out),
      cmocka_unit_test(padding_is_only_at_ends_of_parameters_and_buckets),
      cmocka_unit_test(buckets_of_a_class_lie_one_behind_the_other),
      cmocka_unit_test(buckets_are_numbered_by_their_last_parameter),
      cmocka_unit_test(buckets_close_at_their_limit_and_not_before),
      cmocka_unit_test(units_hold_their_parameters_and_no_others),
      cmocka_unit_test(slots_hold_every_bucket),
      cmocka_unit_test(loan_slots_hold_every_unit),
      cmocka_unit_test(regions_are_disjoint_and_inside_their_allocation),
      cmocka_unit_test(buffers_lie_whole_and_apart),
      cmocka_unit_test(all_ranks_agree),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// What must hold for the plan of any model: thousands of random ones, from fixed seeds.
// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <set>

#include "plan_cases.h"

using namespace plan_cases;

namespace {

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

// ---- a function of its inputs -------------------------------------------------------------------

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
      cmocka_unit_test(all_ranks_agree),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// What a step tells the other ranks, made on the device: which value is the first that is not
// finite, looked for here one by one, and the step record, laid out here word by word.
// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstring>
#include <limits>

#include "cuda_cases.h"

namespace {

using namespace cuda_cases;

constexpr uint64_t kCount = 1000;
constexpr uint64_t kStart = 640; // of the values, within the bucket
constexpr int kRanks = 3;

float bad_value(Random& random) {
  switch (random.below(3)) {
    case 0:
      return std::numeric_limits<float>::infinity();
    case 1:
      return -std::numeric_limits<float>::infinity();
    default:
      return std::nanf("");
  }
}

// Parameters of the bucket at multiples of 32, padding between them; order is not by offset.
std::vector<CudaMember> members_of(Random& random) {
  std::vector<CudaMember> members;
  for (uint64_t at = 0; at < kStart + kCount;) {
    CudaMember member;
    member.offset = at;
    member.count = 1 + random.below(150);
    member.order = static_cast<int64_t>((members.size() * 7 + 3) % 97);
    member.param = static_cast<int64_t>(1000 + members.size());
    at = (at + member.count + 31) / 32 * 32 + 32 * random.below(2);
    members.push_back(member);
  }
  return members;
}

struct Case {
  std::vector<CudaMember> members;
  std::vector<std::vector<float>> contributions; // by rank
  std::vector<float> sum;
  std::vector<int64_t> found; // before
  int32_t overwritten = -1;
};

// What the device must say, from the definition in cuda_kernels.h.
std::vector<int64_t> wanted_of(const Case& c, uint64_t chunk, const std::vector<int32_t>& ranks) {
  for (uint64_t i = chunk * kChunk; i < kCount && i < (chunk + 1) * kChunk; i++) {
    if (std::isfinite(c.sum[i])) continue;
    for (const CudaMember& member : c.members) {
      const uint64_t element = kStart + i;
      if (element < member.offset || element >= member.offset + member.count) continue;
      const int64_t order = member.order + 1;
      const auto place = static_cast<int64_t>(element - member.offset);
      if (c.found[0] != 0 && (c.found[0] < order || (c.found[0] == order && c.found[2] <= place))) {
        return c.found;
      }
      int64_t by = -1;
      bool gone = false;
      for (const int32_t rank : ranks) { // in the order of the pointers
        if (rank == c.overwritten) {
          gone = true;
        } else if (by < 0 && !std::isfinite(c.contributions[static_cast<size_t>(rank)][i])) {
          by = rank;
        }
      }
      return {order, member.param, place, by >= 0 ? by : gone ? c.overwritten : -1};
    }
  }
  return c.found;
}

void the_first_value_that_is_not_finite_is_named(void**) {
  Random random(11);
  int named = 0, kept = 0, in_padding = 0;
  for (int round = 0; round < 60; round++) {
    Case c;
    c.members = members_of(random);
    c.sum.assign(kCount, 1.0f);
    c.contributions.assign(kRanks, c.sum);
    for (uint64_t bad = random.below(4); bad > 0; bad--) {
      const uint64_t at = random.below(kCount);
      const uint64_t rank = random.below(kRanks + 1); // or a sum of finite ones
      c.sum[at] = bad_value(random);
      if (rank < kRanks) c.contributions[rank][at] = c.sum[at];
    }
    c.found = {0, -1, -1, -1};
    if (random.below(3) == 0) {
      c.found = {static_cast<int64_t>(random.below(97)) + 1, 4, 5, 6};
    }
    c.overwritten = static_cast<int32_t>(random.below(kRanks + 1)) - 1;
    uint64_t chunk = kNone;
    for (uint64_t i = kCount; i-- > 0;) {
      if (!std::isfinite(c.sum[i])) chunk = i / kChunk;
    }
    std::vector<int32_t> ranks{0, 1, 2};
    const DeviceValues<float> sum(c.sum), a(c.contributions[0]), b(c.contributions[1]),
        d(c.contributions[2]);
    const DeviceValues<const void*> pointers(std::vector<const void*>{
        a.data(), b.data(), d.data(), reinterpret_cast<const void*>(uintptr_t{0}),
        reinterpret_cast<const void*>(uintptr_t{1}), reinterpret_cast<const void*>(uintptr_t{2})});
    const DeviceValues<CudaMember> members(c.members);
    const DeviceValues<uint64_t> first_bad(chunk);
    const DeviceValues<int64_t> found(c.found);
    CudaNote note;
    note.first_bad = first_bad.data();
    note.found = found.data();
    note.values = sum.data();
    note.members = members.data();
    note.member_count = static_cast<int32_t>(c.members.size());
    note.start = kStart;
    note.count = kCount;
    note.contributions = pointers.data();
    note.ranks = kRanks;
    note.ranks_in_all = kRanks;
    note.overwritten = c.overwritten;
    succeeded(table().note(&note, nullptr));
    const std::vector<int64_t> got = found.back();
    const std::vector<int64_t> wanted = chunk == kNone ? c.found : wanted_of(c, chunk, ranks);
    for (size_t k = 0; k < wanted.size(); k++) assert_int_equal(got[k], wanted[k]);
    assert_true(first_bad.back()[0] == kNone);
    named += got != c.found;
    kept += chunk != kNone && got == c.found && c.found[0] != 0;
    in_padding += chunk != kNone && got == c.found && c.found[0] == 0;
  }
  // All three kinds came.
  assert_true(named > 5);
  assert_true(kept > 2);
  assert_true(in_padding >= 1);
}

void alone_the_rank_is_known(void**) {
  std::vector<float> values(64, 2.0f);
  values[40] = std::nanf("");
  const DeviceValues<float> device(values);
  const DeviceValues<CudaMember> member(CudaMember{0, 64, 2, 7});
  const DeviceValues<uint64_t> first_bad(uint64_t{1});
  const DeviceValues<int64_t> found(std::vector<int64_t>{0, 0, 0, 0});
  CudaNote note;
  note.first_bad = first_bad.data();
  note.found = found.data();
  note.values = device.data();
  note.members = member.data();
  note.member_count = 1;
  note.count = 64;
  note.ranks_in_all = 1;
  succeeded(table().note(&note, nullptr));
  const std::vector<int64_t> got = found.back();
  assert_int_equal(got[0], 3);
  assert_int_equal(got[1], 7);
  assert_int_equal(got[2], 40);
  assert_int_equal(got[3], 0);
}

void put_normalised(const ExactSum& sum, int64_t* to) {
  ExactSum copy = sum;
  exact_sum_normalise(&copy);
  std::memcpy(to, copy.limb, sizeof copy.limb);
}

void the_step_record_is_laid_out_word_by_word(void**) {
  Random random(12);
  for (const uint64_t params : {uint64_t{0}, uint64_t{1}, uint64_t{300}}) {
    for (const int32_t ranks : {1, 4, 70}) {
      const ExactSum sum = random_sum(random);
      std::vector<ExactSum> sums;
      for (uint64_t p = 0; p < params; p++) sums.push_back(random_sum(random));
      std::vector<int64_t> came(1 + params / 4), found{5, 6, 7, 8};
      for (int64_t& word : came) word = static_cast<int64_t>(random.below(1 << 20));
      const auto words = static_cast<size_t>(ranks) * kCudaRecordWords;
      std::vector<int64_t> wanted(kLimbs + came.size() + words + params * kLimbs, 0);
      const int32_t rank = ranks / 2;
      put_normalised(sum, wanted.data());
      std::memcpy(wanted.data() + kLimbs, came.data(), came.size() * 8);
      int64_t* const own =
          wanted.data() + kLimbs + came.size() + static_cast<size_t>(rank) * kCudaRecordWords;
      for (size_t k = 0; k < found.size(); k++) own[k] = found[k];
      own[4] = -123456789012345;
      for (uint64_t p = 0; p < params; p++) {
        put_normalised(sums[p], wanted.data() + kLimbs + came.size() + words + p * kLimbs);
      }
      const DeviceValues<int64_t> record(std::vector<int64_t>(wanted.size(), -1));
      const DeviceValues<int64_t> device_came(came), device_found(found);
      const DeviceValues<ExactSum> device_sum(sum);
      sums.push_back(sum); // never empty
      const DeviceValues<ExactSum> device_sums(sums);
      CudaRecord r;
      r.record = record.data();
      r.sum = device_sum.data();
      r.found = device_found.data();
      r.hash = -123456789012345;
      r.came = device_came.data();
      r.came_words = came.size();
      r.param_sums = device_sums.data();
      r.param_count = params;
      r.rank = rank;
      r.ranks = ranks;
      succeeded(table().record(&r, nullptr));
      const std::vector<int64_t> got = record.back();
      for (size_t k = 0; k < wanted.size(); k++) {
        if (got[k] != wanted[k]) fail_msg("word %zu of %zu", k, wanted.size());
      }
    }
  }
}

} // namespace

int main() {
  if (!belongs_to_the_tier()) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_first_value_that_is_not_finite_is_named),
      cmocka_unit_test(alone_the_rank_is_known),
      cmocka_unit_test(the_step_record_is_laid_out_word_by_word),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

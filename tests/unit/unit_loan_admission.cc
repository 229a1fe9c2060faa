// Which units are whole at stage 3, in which slot, and which one has to go.
// SPDX-License-Identifier: BSD-3-Clause
#include "plan/loan_admission.h"
#include "plan_cases.h"

namespace {

using namespace zero::plan;
using namespace plan_cases;
using Answer = LoanAdmission::Answer;

// Four units of 3,200 elements; persistence off; room for `slots` of them.
std::shared_ptr<const Plan> four_units(uint64_t slots, uint64_t prefetch = 1000000) {
  PlanSettings settings = settings_of(3, 2);
  settings.persistence_threshold_elements = 0;
  settings.live_elements = slots * 3200;
  settings.prefetch_elements = prefetch;
  return Plan::make(settings, model_of({{3200}, {3200}, {3200}, {3200}}));
}

void a_released_unit_stays_until_its_slot_is_wanted(void**) {
  const auto plan = four_units(2);
  LoanAdmission loans(*plan);
  EXPECT(loans.acquire(0) == Answer::kGather);
  loans.release(0);
  EXPECT(loans.acquire(0) == Answer::kResident);
  loans.release(0);
  EXPECT(loans.acquire(1) == Answer::kGather);
  loans.release(1);
  // Both slots are taken by released units: the one used longest ago goes.
  EXPECT(loans.acquire(2) == Answer::kGather);
  EXPECT(!loans.resident(0) && loans.resident(1) && loans.resident(2));
}

void what_is_on_loan_is_never_taken_and_the_refusal_changes_nothing(void**) {
  const auto plan = four_units(2);
  LoanAdmission loans(*plan);
  EXPECT(loans.acquire(0) == Answer::kGather && loans.acquire(1) == Answer::kGather);
  EXPECT(loans.acquire(0) == Answer::kResident);
  EXPECT(loans.acquire(2) == Answer::kRefuse);
  EXPECT_EQUAL(loans.open_loans(), 3);
  EXPECT_EQUAL(loans.elements_needed(2), 9600u);
  EXPECT(loans.resident(0) && loans.resident(1) && !loans.resident(2));
  EXPECT(loans.offset_bytes(0) != loans.offset_bytes(1));
  loans.release(0);
  EXPECT(loans.acquire(2) == Answer::kRefuse); // acquired twice, released once
  loans.release(0);
  EXPECT(loans.acquire(2) == Answer::kGather);
}

void what_the_refusal_says_would_do_does(void**) {
  // Slots of a kind are as large as the largest unit of it: 3 Mi and 2 Mi need 6 Mi, not 5.
  const auto model = model_of({{3 << 20}, {1000}, {1000}, {2 << 20}, {1000}});
  PlanSettings settings = settings_of(3, 2);
  settings.persistence_threshold_elements = 0;
  for (const uint64_t live : {uint64_t{1}, uint64_t{5} << 20, (uint64_t{11} << 20) / 2}) {
    settings.live_elements = live;
    const auto tight = Plan::make(settings, model);
    LoanAdmission refused(*tight);
    int32_t unit = 0;
    while (refused.acquire(unit) == Answer::kGather) ++unit;
    EXPECT(unit < 5);
    const uint64_t would_do = refused.elements_needed(unit);
    EXPECT(would_do > live);
    settings.live_elements = would_do;
    const auto wide = Plan::make(settings, model);
    LoanAdmission granted(*wide);
    for (int32_t u = 0; u <= unit; ++u) EXPECT(granted.acquire(u) == Answer::kGather);
  }
}

void a_prefetch_takes_neither_a_loan_nor_another_prefetch(void**) {
  const auto plan = four_units(2);
  LoanAdmission loans(*plan);
  EXPECT(loans.acquire(0) == Answer::kGather);
  EXPECT(loans.prefetch(1) == Answer::kGather);
  EXPECT(loans.prefetch(2) == Answer::kRefuse);
  EXPECT(loans.acquire(1) == Answer::kResident);
  loans.release(0);
  EXPECT(loans.prefetch(2) == Answer::kGather); // in place of the released one
  EXPECT(!loans.resident(0));
}

void no_more_is_gathered_ahead_than_the_file_allows(void**) {
  const auto plan = four_units(4, 6400);
  LoanAdmission loans(*plan);
  EXPECT(loans.prefetch(0) == Answer::kGather && loans.prefetch(1) == Answer::kGather);
  EXPECT(loans.prefetch(2) == Answer::kRefuse);
  EXPECT(loans.acquire(0) == Answer::kResident); // no longer ahead
  EXPECT(loans.prefetch(2) == Answer::kGather);
  const auto none = four_units(4, 0);
  LoanAdmission never(*none);
  EXPECT(never.prefetch(0) == Answer::kRefuse && never.acquire(0) == Answer::kGather);
}

void changed_values_are_forgotten_but_not_what_is_on_loan(void**) {
  const auto plan = four_units(2);
  LoanAdmission loans(*plan);
  EXPECT(loans.acquire(0) == Answer::kGather && loans.acquire(1) == Answer::kGather);
  loans.release(1);
  loans.forget_all();
  EXPECT(loans.resident(0) && !loans.resident(1));
  EXPECT(loans.acquire(1) == Answer::kGather);
}

} // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_released_unit_stays_until_its_slot_is_wanted),
      cmocka_unit_test(what_is_on_loan_is_never_taken_and_the_refusal_changes_nothing),
      cmocka_unit_test(what_the_refusal_says_would_do_does),
      cmocka_unit_test(a_prefetch_takes_neither_a_loan_nor_another_prefetch),
      cmocka_unit_test(no_more_is_gathered_ahead_than_the_file_allows),
      cmocka_unit_test(changed_values_are_forgotten_but_not_what_is_on_loan),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

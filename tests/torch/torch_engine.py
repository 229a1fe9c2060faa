#!/usr/bin/env python3
"""The engine on two ranks: each test here is a case of torch_cases.py, torch_more_cases.py or torch_loan_cases.py."""
# SPDX-License-Identifier: BSD-3-Clause
import re
import sys
import tempfile

from torch_help import HERE, Skip, expect, languages, package, ranks

from harness import run_tests


@languages.once
def said():
    """What all cases said, on one start of both ranks."""
    with tempfile.TemporaryDirectory() as folder:
        return ranks("torch_cases.py", folder, seconds=570, check=False)


def passed(name):
    text = said()
    for rank in range(2):
        expect("CASE %d OK %s" % (rank, name) in text.split("zero run: the last lines")[0], text)


def test_every_case_is_a_test():
    names = {name for file in ("torch_cases.py", "torch_more_cases.py", "torch_loan_cases.py")
             for name in re.findall(r"^def case_(\w+)", (HERE / file).read_text(encoding="utf-8"), re.M)}
    tests = {name[5:] for name in globals() if name.startswith("test_")} - {"every_case_is_a_test"}
    expect(names == tests, names ^ tests)


def test_fifty_steps_with_prescribed_gradients_are_torchs_at_every_stage():
    passed("fifty_steps_with_prescribed_gradients_are_torchs_at_every_stage")


def test_adam_with_l2_and_sgd_with_momentum_are_torchs_too():
    passed("adam_with_l2_and_sgd_with_momentum_are_torchs_too")


def test_a_transformer_trains_as_in_torch_and_bit_for_bit_alike_at_every_stage():
    passed("a_transformer_trains_as_in_torch_and_bit_for_bit_alike_at_every_stage")


def test_recomputation_changes_nothing_at_stage_3():
    passed("recomputation_changes_nothing_at_stage_3")


def test_bf16_is_bit_for_bit_alike_at_every_stage_and_near_fp32():
    passed("bf16_is_bit_for_bit_alike_at_every_stage_and_near_fp32")


def test_other_optimizers_are_refused_by_name():
    passed("other_optimizers_are_refused_by_name")


def test_two_losses_before_a_step_are_summed_at_every_stage():
    passed("two_losses_before_a_step_are_summed_at_every_stage")


def test_a_backward_without_the_engine_counts_too():
    passed("a_backward_without_the_engine_counts_too")


def test_calls_at_the_wrong_moment_are_errors():
    passed("calls_at_the_wrong_moment_are_errors")


def test_accumulation_the_boundary_and_counters_are_deepspeeds():
    passed("accumulation_the_boundary_and_counters_are_deepspeeds")


def test_rates_written_into_groups_are_live():
    passed("rates_written_into_groups_are_live")


def test_the_configs_schedule_gives_deepspeeds_rates():
    passed("the_configs_schedule_gives_deepspeeds_rates")


def test_the_configs_own_optimizers_make_their_first_step():
    passed("the_configs_own_optimizers_make_their_first_step")


def test_an_overflow_skips_the_step_and_the_schedule():
    passed("an_overflow_skips_the_step_and_the_schedule")


def test_checkpoints_are_deepspeeds_folders_and_go_from_stage_to_stage():
    passed("checkpoints_are_deepspeeds_folders_and_go_from_stage_to_stage")


def test_values_and_buffers_begin_as_rank_0s_and_buffers_are_saved():
    passed("values_and_buffers_begin_as_rank_0s_and_buffers_are_saved")


def test_stage_3_parameters_are_honest_between_loans():
    passed("stage_3_parameters_are_honest_between_loans")


def test_stage_3_serves_modules_that_look_at_each_others_parameters():
    passed("stage_3_serves_modules_that_look_at_each_others_parameters")


def test_a_tied_parameter_is_trained_once_and_saved_under_both_names():
    passed("a_tied_parameter_is_trained_once_and_saved_under_both_names")


def test_an_unused_parameter_of_one_rank_gets_the_others_gradient():
    passed("an_unused_parameter_of_one_rank_gets_the_others_gradient")


def test_after_an_exception_in_backward_training_goes_on():
    passed("after_an_exception_in_backward_training_goes_on")


def test_a_recomputation_of_the_scripts_own_changes_nothing_or_is_refused():
    passed("a_recomputation_of_the_scripts_own_changes_nothing_or_is_refused")


def test_reports_go_to_logging_and_memory_errors_are_explained():
    passed("reports_go_to_logging_and_memory_errors_are_explained")


def test_init_and_the_arguments_are_there():
    passed("init_and_the_arguments_are_there")


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    sys.exit(run_tests(sys.modules[__name__]))

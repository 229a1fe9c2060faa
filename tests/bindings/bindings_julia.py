#!/usr/bin/env python3
"""The Julia package: its own tests, and two ranks."""
# SPDX-License-Identifier: BSD-3-Clause
import re
import sys

from languages import BINDINGS, PROGRAM, SOURCE, expect, julia, julia_environment, must, once, run

from harness import Skip, run_tests  # noqa: E402


@once
def outcome():
    """name -> OK or FAILED, of every test of the package."""
    code, said = run([*julia(), BINDINGS / "julia/LibZero/test/runtests.jl"], **julia_environment())
    found = {name: word.strip() for word, name in re.findall(r"^\[( *OK|  FAILED  ) \] (\w+)$", said, re.M)}
    found.update({name: "FAILED" for name in re.findall(r"^\[  FAILED  \] (\w+)$", said, re.M)})
    expect(found, code, said)
    return code, found, said


def passed(*names):
    _, found, said = outcome()
    for name in names:
        expect(found.get(name) == "OK", name, said)


def test_floors_configs_and_plans():
    passed("the_raw_floor_returns_statuses_and_the_checked_floor_throws", "a_config_is_read_set_and_explained",
           "a_plan_needs_no_rank", "the_library_is_found_by_preference")


def test_arrays_are_kept_in_place_column_by_column():
    passed("columns_stay_columns_and_the_shape_is_reversed", "views_are_read_in_logical_order",
           "the_callers_array_is_kept_up_to_date_and_a_view_is_refused", "an_array_over_library_memory_outlives_the_runtime",
           "a_gradient_is_written_where_it_belongs", "a_device_pointer_is_device_memory_with_its_stream")


def test_moments_survive_a_clamped_parameter():
    passed("moments_survive_a_clamped_parameter")


def test_trees_and_loans():
    passed("trees_of_arrays_are_sharded_and_updated", "a_tree_of_many_arrays_is_updated_at_every_stage",
           "loans_are_blocks_that_end_with_an_exception_too")


def test_a_wrong_dtype_is_an_error():
    passed("a_wrong_dtype_is_an_error")


def test_a_wrong_size_is_an_error():
    passed("a_wrong_size_is_an_error")


def test_a_read_only_array_is_an_error_where_it_would_be_written():
    passed("a_read_only_array_is_an_error_where_it_would_be_written")


def test_a_freed_handle_is_an_error():
    passed("a_freed_handle_is_an_error")


def test_an_exception_in_a_callback_is_the_cause_of_the_error():
    passed("an_exception_in_a_callback_is_the_cause_of_the_error")


def test_a_runtime_used_by_two_threads_is_an_error():
    passed("a_runtime_used_by_two_threads_is_an_error")


def test_a_gradient_collected_right_after_submit_was_read():
    passed("a_gradient_collected_right_after_submit_was_read")


def test_handles_are_collected_in_any_order():
    passed("handles_are_collected_in_any_order")


def test_the_log_goes_to_julias_log():
    passed("what_libzero_has_to_say_goes_to_the_log")
    code, found, said = outcome()
    expect(code == 0 and len(found) >= 20, said)


def test_reduced_values_reach_the_callers_array_on_two_ranks():
    said = must([PROGRAM, "run", "-n", 2, "--", *julia(), SOURCE / "tests/bindings/julia_ranks.jl"], **julia_environment())
    expect("rank 0 is right" in said and "rank 1 is right" in said, said)


def test_an_interpreter_that_ends_with_a_live_runtime_ends():
    code, said = run([*julia(), "-e", 'using LibZero; model = Model(); add!(model, "w", ones(Float32, 9)); '
                      'runtime = Runtime(Config(text="""{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}}"""), '
                      'model; comm=Comm()); array = param(runtime, "w"); submit!(runtime, "w", ones(Float32, 9)); exit(5)'],
                     **julia_environment())
    expect(code == 5 and "signal" not in said, code, said)


if __name__ == "__main__":
    try:
        julia()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    sys.exit(run_tests(sys.modules[__name__]))

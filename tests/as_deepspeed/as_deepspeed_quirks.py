#!/usr/bin/env python3
"""Where DeepSpeed loses gradients or writes, or breaks (section 2.2 of the reference page), and what libzero does there."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "torch"))
from torch_help import PROGRAM, WORK, Skip, environment, expect, finish, languages, package  # noqa: E402

from harness import run_tests  # noqa: E402


@languages.once
def said():
    """case -> OK or FAILED, and all that was said."""
    python, kept = environment()
    folder = tempfile.mkdtemp(dir=WORK)
    try:
        text = finish([PROGRAM, "run", "-n", "2", "--as-deepspeed", "--", python, HERE / "quirk_cases.py", folder],
                      dict(kept, PYTHONUNBUFFERED="1"), 280, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return dict(line.split("\t")[1:] for line in text.splitlines() if "PROGRAM\t" in line), text


def case(name):
    found, text = said()
    expect(found.get(name) == "OK", "%s: %s" % (name, found.get(name, "not reached")), text)


def test_two_backwards_before_a_step_are_summed_at_every_stage():
    case("two_backwards")


def test_a_step_without_a_backward_says_so_and_the_engine_goes_on():
    case("step_alone")


def test_a_backward_without_the_engine_counts_at_every_stage():
    case("backward_alone")


def test_what_is_written_into_parameters_after_initialize_stays():
    case("writes")


def test_no_sync_is_there_at_stages_0_and_1_and_refused_above():
    case("unsynchronised")


def test_a_boundary_set_by_hand_stays_and_the_division_goes_on():
    case("manual_boundary")


def test_an_overflow_moves_neither_weights_nor_rate_at_any_stage():
    case("overflow")


def test_a_load_right_after_a_save_gives_the_saved_weights_at_every_stage():
    case("load_after_save")


def test_names_that_are_not_the_engines_are_the_modules_and_it_cannot_be_pickled():
    case("the_modules")


def test_the_norm_is_a_float_at_every_stage_and_torchs():
    case("norms")


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    os.makedirs(WORK, exist_ok=True)
    sys.exit(run_tests(sys.modules[__name__]))

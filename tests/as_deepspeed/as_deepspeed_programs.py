#!/usr/bin/env python3
"""Ten public programs' call patterns under the name deepspeed (section 6 of the reference page), re-made in our own words:
each makes those calls in that order on two ranks; what it trains is what plain torch trains."""
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
    """program -> OK or FAILED, and all that was said."""
    python, kept = environment()
    found, text = {}, ""
    for script in ("program_cases.py", "more_program_cases.py"):
        folder = tempfile.mkdtemp(dir=WORK)
        try:
            text += finish([PROGRAM, "run", "-n", "2", "--as-deepspeed", "--", python, HERE / script, folder],
                           dict(kept, PYTHONUNBUFFERED="1"), 280, check=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    for line in text.splitlines():
        if "PROGRAM\t" in line:
            _, name, how = line.split("\t")
            found[name] = how
    return found, text


def program(name):
    found, text = said()
    expect(found.get(name) == "OK", "%s: %s" % (name, found.get(name, "not reached")), text)


def test_there_are_ten():
    expect(len(said()[0]) == 10, said()[0], said()[1])


def test_hello_deepspeed_resumes_from_the_step_it_saved():
    program("hello")


def test_cifar_trains_by_the_engines_loader_each_sample_once():
    program("cifar")


def test_bing_bert_reads_its_settings_back_and_writes_the_rate_before_the_step():
    program("bing_bert")


def test_a_gan_of_two_engines_loses_no_gradient_and_gains_none_from_the_other():
    program("gan")


def test_rlhf_has_five_engines_an_average_and_additions_added_in():
    program("rlhf")


def test_beit_divides_twice_and_sets_counters_rates_and_decay():
    program("beit")


def test_wenet_gets_its_own_scheduler_back_and_consolidates():
    program("wenet")


def test_megatron_is_born_sharded_and_its_batch_grows_and_pipelines_are_refused():
    program("megatron")


def test_open_instruct_sets_each_boundary_and_undoes_the_mean():
    program("open_instruct")


def test_llava_saves_parameter_by_parameter_what_the_whole_is():
    program("llava")


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    os.makedirs(WORK, exist_ok=True)
    sys.exit(run_tests(sys.modules[__name__]))

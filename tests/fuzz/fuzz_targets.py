#!/usr/bin/env python3
"""Every fuzz target runs without a finding, two targets at a time.

Quick: always the same inputs, as many as take well under 30 seconds.  Full: 10 minutes each, from
another seed every time.
"""
# SPDX-License-Identifier: BSD-3-Clause
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RUN_FUZZ = ROOT / "tests" / "fuzz" / "run_fuzz.sh"
sys.path.insert(0, str(ROOT / "tests"))
from harness import Skip, expect, run_tests  # noqa: E402

FULL = os.environ.get("LIBZERO_TEST_TIER") == "full"
FULL_SECONDS = 600
QUICK_RUNS = {"config": 20000}  # of the others, 100,000
AT_ONCE = 2
TARGETS = subprocess.run([RUN_FUZZ, "--list"], check=True, text=True,
                         stdout=subprocess.PIPE).stdout.split()


def fuzz(target):
    """The finished run: its exit code, its lines and how many inputs it had to try."""
    runs = QUICK_RUNS.get(target, 100000)
    # The quick tier ends by its number of runs; the time is for a machine that is very slow.
    options = [str(FULL_SECONDS)] if FULL else ["120", "-seed=1", "-runs=%d" % runs]
    done = subprocess.run([RUN_FUZZ, target, *options], text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.splitlines()


def begun():
    """What each target's run will come to; all of them begin with the first that is asked for."""
    if not begun.runs:
        # One after the other installs what is missing, and only then two at a time.
        if shutil.which("clang++") is None:
            if os.geteuid() != 0:
                raise Skip("no clang++, and nobody here may install it")
            subprocess.run([ROOT / "tests" / "need.sh", "clang++=clang"], check=True)
        pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        begun.runs = {target: pool.submit(fuzz, target) for target in TARGETS}
    return begun.runs


begun.runs = {}


def expect_no_finding(target):
    code, lines = begun()[target].result()
    expect(code == 0, *lines[-40:])
    executed = [line for line in lines if line.startswith("stat::number_of_executed_units")]
    corpus = len(list((ROOT / "tests" / "fuzz" / (target + "_corpus")).iterdir()))
    expect(executed and int(executed[0].split()[-1]) > 10 * corpus, "hardly anything was tried",
           *lines[-10:])


def test_the_config_reader_has_no_finding():
    expect_no_finding("config")


def test_the_safetensors_header_has_no_finding():
    expect_no_finding("safetensors_header")


def test_the_manifest_of_a_checkpoint_has_no_finding():
    expect_no_finding("manifest")


def test_the_pieces_of_a_checkpoint_have_no_finding():
    expect_no_finding("piece")


def test_pickles_and_zip_archives_have_no_finding():
    expect_no_finding("pickle")


def test_every_target_of_run_fuzz_is_run_here():
    here = pathlib.Path(__file__).read_text(encoding="utf-8")
    for target in TARGETS:
        expect("\n    expect_no_finding(\"%s\")\n" % target in here, target)
        for part in (target + ".dict", target + "_corpus", "fuzz_%s.cc" % target):
            expect((ROOT / "tests" / "fuzz" / part).exists(), part)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

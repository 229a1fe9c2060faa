#!/usr/bin/env python3
"""ThreadSanitizer reports a missing wait, and nothing where every wait is there."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import expect, run_tests  # noqa: E402

REPORTED = 66


def run(seed):
    """Exit code and reports of the program with this mistake in it."""
    options = "exitcode=%d:halt_on_error=0:report_signal_unsafe=0" % REPORTED
    done = subprocess.run([os.environ["LIBZERO_SEEDED_RACE"], seed], text=True, timeout=100,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "TSAN_OPTIONS": options})
    return done.returncode, done.stdout


def test_without_a_mistake_nothing_is_reported():
    code, output = run("none")
    expect(code == 0 and "WARNING" not in output, code, output)


def test_a_missing_barrier_is_reported():
    code, output = run("gradient")
    expect(code == REPORTED and "data race" in output, code, output)
    expect("BucketReduction" in output, output)


def test_a_loan_read_after_its_release_is_reported():
    code, output = run("loan")
    expect(code == REPORTED and "data race" in output, code, output)
    expect("BucketTransfer" in output, output)


sys.exit(run_tests(sys.modules[__name__]))

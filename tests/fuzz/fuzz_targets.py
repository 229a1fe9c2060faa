#!/usr/bin/env python3
"""Every fuzz target runs for 30 seconds (quick) or 10 minutes (full) from its corpus, without a finding."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness import Skip, expect, run_tests  # noqa: E402

SECONDS = 600 if os.environ.get("LIBZERO_TEST_TIER") == "full" else 30


def fuzz(target):
    if shutil.which("clang++") is None and os.geteuid() != 0:
        raise Skip("no clang++, and nobody here may install it")
    done = subprocess.run([ROOT / "tests" / "fuzz" / "run_fuzz.sh", target, str(SECONDS)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS + 300)
    lines = done.stdout.splitlines()
    expect(done.returncode == 0, *lines[-40:])
    executed = [line for line in lines if line.startswith("stat::number_of_executed_units")]
    expect(executed and int(executed[0].split()[-1]) > 1000, "hardly anything was tried", *lines[-10:])


def test_the_config_reader_has_no_finding():
    fuzz("config")


def test_the_safetensors_header_has_no_finding():
    fuzz("safetensors_header")


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

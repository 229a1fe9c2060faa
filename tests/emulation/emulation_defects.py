#!/usr/bin/env python3
"""Every mistake in defects.h is reported by the emulation, and nothing where there is none."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import expect, run_tests  # noqa: E402

REPORTED = 66
RIGHT = "finished, total 768"  # two sums of 256 ones, the second one twice


def run(kind, kernel, order="fwd"):
    """Exit code and output of one kernel; kind is a program of meson.build."""
    programs = dict(pair.split("=", 1) for pair in os.environ["LIBZERO_DEFECTS"].split(";"))
    done = subprocess.run([programs[kind], kernel], text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "CUEMU_ORDER": order,
                               "TSAN_OPTIONS": "exitcode=%d" % REPORTED,
                               "ASAN_OPTIONS": "detect_leaks=0"})
    return done.returncode, done.stdout


def stopped(kernel, sentence, order="fwd"):
    """The plain emulation stops this kernel with the sentence."""
    code, output = run("plain", kernel, order)
    expect(code != 0 and "cuemu: " + sentence in output and "finished" not in output, code, output)


def test_a_barrier_that_not_all_threads_reach_is_reported():
    stopped("divergent_barrier", "divergent __syncthreads")


def test_a_barrier_after_threads_have_left_is_reported():
    stopped("early_exit", "a thread exited while others wait at __syncthreads", "fwd")
    stopped("early_exit", "__syncthreads after some threads of the block have exited", "rev")


def test_a_lane_outside_its_own_mask_is_reported():
    stopped("caller_not_in_mask", "warp intrinsic: calling lane is not in its own mask")


def test_lanes_that_part_in_a_shuffle_are_reported():
    code, output = run("plain", "divergent_shuffle")
    expect(code != 0 and "cuemu: " in output and "finished" not in output, code, output)


def test_a_lane_that_is_not_in_the_mask_gives_poison():
    code, output = run("plain", "lane_not_in_mask")
    expect("finished with NaN" in output, code, output)


def test_shared_memory_that_was_not_set_is_poison():
    code, output = run("plain", "unset_shared")
    expect("finished with NaN" in output, code, output)


def test_accesses_outside_are_reported_by_the_sanitizers():
    code, output = run("address", "outside_global")
    expect(code != 0 and "AddressSanitizer: heap-buffer-overflow" in output, code, output)
    code, output = run("address", "outside_shared")
    expect(code != 0 and "out of bounds" in output, code, output)


def test_a_misaligned_access_of_16_bytes_is_reported():
    code, output = run("address", "misaligned")
    expect(code != 0 and "misaligned address" in output, code, output)


def test_a_race_in_device_memory_is_reported_by_thread_sanitizer():
    code, output = run("thread", "race_global")
    expect(code == REPORTED and "data race" in output, code, output)


def test_without_a_mistake_nothing_is_reported_in_any_order():
    for kind in ("plain", "address", "thread"):
        for order in ("fwd", "rev", "rand:1"):
            code, output = run(kind, "two_sums", order)
            expect(code == 0 and RIGHT in output, kind, order, code, output)


def test_missing_barriers_and_a_missing_fence_are_reported_by_thread_sanitizer():
    for defect in ("barrier", "barrier_before", "fence"):
        code, output = run("thread_" + defect, "two_sums")
        expect(code == REPORTED and "data race" in output, defect, code, output)


sys.exit(run_tests(sys.modules[__name__]))

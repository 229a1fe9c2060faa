#!/usr/bin/env python3
"""tests/run.py counts what programs say and do, not what it hopes."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
from harness import expect, run_tests  # noqa: E402

CLAIMS = TESTS.parent / ".ci" / "check_claims.py"


def run_suite(scripts, options=(), built="yes", **environment):
    """Exit code and output of the runner over shell scripts that stand for test programs."""
    with tempfile.TemporaryDirectory() as folder:
        tests = [{"name": name, "suite": ["libzero:" + name.split("_")[0]], "workdir": None,
                  "timeout": 2, "env": {}, "cmd": ["sh", "-c", script]}
                 for name, script in scripts.items()]
        # A stand-in for meson, which only has to list the tests.
        pathlib.Path(folder, "tests.json").write_text(json.dumps(tests))
        meson = pathlib.Path(folder, "meson")
        meson.write_text("#!/bin/sh\ncat %s/tests.json\n" % folder)
        meson.chmod(0o755)
        bare = {key: value for key, value in os.environ.items() if not key.startswith("LIBZERO_")}
        done = subprocess.run(
            [sys.executable, TESTS / "run.py", "--build", folder, "--built", built, *options],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
            env={**bare, "PATH": folder + ":" + os.environ["PATH"], **environment})
    return done.returncode, done.stdout


def closing(scripts, **more):
    code, output = run_suite(scripts, **more)
    last = output.splitlines()[-1]
    expect((code == 0) == (" 0 failed" in last), code, output)
    return last


def lines(*outcomes):
    """A shell script that prints what cmocka prints for tests with these outcomes."""
    tags = {"ok": "[       OK ]", "failed": "[  FAILED  ]", "skipped": "[  SKIPPED ]"}
    return "".join("echo '[ RUN      ] t%d'; echo '%s t%d';" % (i, tags[outcome], i)
                   for i, outcome in enumerate(outcomes))


def test_the_closing_line_counts_what_passed_failed_and_was_skipped():
    expect(closing({"a": lines("ok", "ok")}) == "2 passed, 0 failed")
    expect(closing({"a": lines("ok", "failed", "skipped") + "exit 1", "b": lines("ok")})
           == "2 passed, 1 failed, 1 skipped")


def test_a_real_summary_is_not_counted_twice():
    script = lines("ok", "failed") + ("echo '[==========] 2 test(s) run.'; echo '[  PASSED  ] 1 test(s).';"
                                      "echo '[  FAILED  ] 1 test(s), listed below:';"
                                      "echo '[  FAILED  ] t1'; echo ' 1 FAILED TEST(S)'; exit 1")
    expect(closing({"a": script}) == "1 passed, 1 failed")


def test_a_program_that_prints_no_test_counts_as_one():
    expect(closing({"a": "echo fine"}) == "1 passed, 0 failed")
    expect(closing({"a": "exit 3"}) == "0 passed, 1 failed")


def test_a_program_that_dies_in_a_test_has_failed_it():
    expect(closing({"a": lines("ok") + "echo '[ RUN      ] last'; kill -9 $$"})
           == "1 passed, 1 failed")


def test_a_failing_exit_code_is_a_failure_though_all_its_tests_passed():
    expect(closing({"a": lines("ok") + "exit 66"}) == "1 passed, 1 failed")


def test_a_test_that_began_and_did_not_end_has_failed_whatever_the_exit_code():
    expect(closing({"a": lines("ok") + "echo '[ RUN      ] last'"}) == "1 passed, 1 failed")


def test_exit_code_77_without_results_is_a_skip():
    expect(closing({"a": "exit 77", "b": "true"}) == "1 passed, 0 failed, 1 skipped")


def test_a_hanging_program_is_cut_off_and_has_failed():
    code, output = run_suite({"a": lines("ok") + "echo '[ RUN      ] hangs'; sleep 600"})
    expect(code == 1 and output.splitlines()[-1] == "1 passed, 1 failed", output)
    expect("hangs (timed out)" in output, output)


def test_what_a_program_leaves_behind_does_not_hold_the_runner():
    expect(closing({"a": "sleep 600 & true"}) == "1 passed, 0 failed")


def test_nothing_run_is_a_failure():
    expect(closing({"a": "true"}, options=["--filter", "nosuch"]) == "0 passed, 1 failed")
    expect(closing({"a": "true"}, options=["nosuch"]) == "0 passed, 1 failed")


def test_a_build_that_failed_is_a_failure():
    expect(closing({"a": "true"}, built="no") == "1 passed, 1 failed")


def test_only_the_named_suites_run():
    expect(closing({"a_x": "true", "b_x": "false"}, options=["a"]) == "1 passed, 0 failed")


def test_each_suite_says_how_long_it_took():
    _, output = run_suite({"a": "true"})
    expect("suite a: 1 passed, 0 failed in " in output, output)


def test_a_claim_without_its_test_is_found():
    bad = ["3\tclaim\tunit/nosuch:test\tquick", "3\tclaim\tcli/runner:nosuch\tquick",
           "3\tclaim\tnosuch/script.sh\tquick", "3\tclaim\tcli/runner:nothing_run_is_a_failure\tslow",
           "3\tclaim\twords\tquick", "3\tclaim\tquick"]
    good = ["3\tclaim\tcli/runner:nothing_run_is_a_failure\tquick", "3\tclaim\ttests/run.sh\tfull",
            "3\tclaim\tTODO:unit/x:y\tquick"]
    for rows, options, expected in (*(([row], [], 1) for row in bad), (good, [], 0),
                                    (good, ["--strict"], 1), ([], [], 1)):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder, "claims.tsv")
            table.write_text("\n".join(rows) + "\n")
            done = subprocess.run([CLAIMS, *options, table], text=True, stdout=subprocess.PIPE)
        expect(done.returncode == expected, rows, options, done.stdout)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules["__main__"]))

"""Tests written in Python print the lines that cmocka prints, so that tests/run.py counts them."""
# SPDX-License-Identifier: BSD-3-Clause
import sys
import traceback


class Skip(Exception):
    """Raised by a test that cannot be run here; its text says why."""


def run_tests(module):
    """Runs each function of the module whose name starts with `test_`; returns the exit code."""
    failed = 0
    for name, function in list(vars(module).items()):
        if not name.startswith("test_") or not callable(function):
            continue
        name = name[len("test_"):]
        print("[ RUN      ] " + name, flush=True)
        try:
            function()
        except Skip as reason:
            print(reason)
            print("[  SKIPPED ] " + name, flush=True)
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc(file=sys.stdout)
            print("[  FAILED  ] " + name, flush=True)
            failed += 1
        else:
            print("[       OK ] " + name, flush=True)
    return 1 if failed else 0


def expect(condition, *facts):
    """As assert, which python -O would drop; facts are shown when it fails."""
    if not condition:
        raise AssertionError("\n".join(str(fact) for fact in facts))

#!/usr/bin/env python3
"""The engine on two ranks: each case of torch_cases.py and torch_more_cases.py is one test here."""
# SPDX-License-Identifier: BSD-3-Clause
import re
import sys
import tempfile

from torch_help import HERE, Skip, expect, languages, package, ranks

from harness import run_tests

NAMES = [name for file in ("torch_cases.py", "torch_more_cases.py")
         for name in re.findall(r"^def case_(\w+)", (HERE / file).read_text(encoding="utf-8"), re.M)]


@languages.once
def said():
    """What all cases said, on one start of both ranks."""
    with tempfile.TemporaryDirectory() as folder:
        return ranks("torch_cases.py", folder, seconds=570, check=False)


def test_of(name):
    def test():
        text = said()
        for rank in range(2):
            expect("CASE %d OK %s" % (rank, name) in text, text)
    return test


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    globals().update({"test_" + name: test_of(name) for name in NAMES})
    sys.exit(run_tests(sys.modules[__name__]))

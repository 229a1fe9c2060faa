#!/usr/bin/env python3
"""The engine's cases with Debian's torch (1.13), where /usr/bin/python3 has it: other hooks, the same bits."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import re
import sys
import tempfile

os.environ["LIBZERO_PEERS_PYTHON"] = "/usr/bin/python3"
from torch_help import HERE, TIER, Skip, expect, languages, package, ranks  # noqa: E402

from harness import run_tests  # noqa: E402


@languages.once
def said():
    """What all cases said, on one start of both ranks."""
    with tempfile.TemporaryDirectory() as folder:
        return ranks("torch_cases.py", folder, seconds=570, check=False).split("zero run: the last lines")[0]


def test_every_case_passes_with_debians_torch():
    names = {name for file in ("torch_cases.py", "torch_more_cases.py", "torch_loan_cases.py")
             for name in re.findall(r"^def case_(\w+)", (HERE / file).read_text(encoding="utf-8"), re.M)}
    for rank in range(2):
        passed = set(re.findall(r"CASE %d OK (\w+)" % rank, said()))
        expect(passed == names, "rank %d lacks %s" % (rank, ", ".join(sorted(names - passed))), said())


if __name__ == "__main__":
    try:
        if TIER != "full":
            raise Skip("Debian's torch: skipped, for the full tier")
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    sys.exit(run_tests(sys.modules[__name__]))

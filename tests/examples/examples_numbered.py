#!/usr/bin/env python3
"""The numbered examples: each checks itself and says so by its exit code."""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from harness import expect, run_tests  # noqa: E402
from trainer import BUILD, SOURCE, run  # noqa: E402

SOURCES = sorted((SOURCE / "examples").glob("[0-9][0-9]_*.c"))


def test_each_example_runs():
    expect(len(SOURCES) >= 7, SOURCES)
    for source in SOURCES:
        program = BUILD / "examples" / source.stem
        arguments = [SOURCE / "examples/models/gpt2-124m.tsv"] if "plan" in source.stem else []
        code, text, said = run([program] + arguments, seconds=30)
        expect(code == 0 and text and not said, source.name, "exit code %d" % code, text, said)


def test_each_example_is_under_80_lines():
    for source in SOURCES:
        lines = source.read_text(encoding="utf-8").count("\n")
        expect(lines < 80, source.name, lines)


def test_the_numbers_are_those_of_the_first_lines():
    for number, source in enumerate(SOURCES, 1):
        expect(source.name.startswith("%02d_" % number), source.name)
        first = source.read_text(encoding="utf-8").splitlines()[0]
        expect(re.match("// %02d  [A-Z]" % number, first), source.name, first)


def test_an_example_whose_check_fails_exits_with_an_error():
    # A model whose states do not halve at two ranks: too small for the shards to be equal.
    tiny = BUILD / "examples/one_element.tsv"
    tiny.write_text("name\tshape\tdtype\tnumel\ttrainable\ttied_to\tkind\n"
                    "w\t1\tfp32\t1\t1\t\tparam\n", encoding="utf-8")
    code, _, _ = run([BUILD / "examples/07_plan_before_run", tiny], seconds=30)
    tiny.unlink()
    expect(code == 1, code)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

#!/usr/bin/env python3
"""The starts of docs/bindings.md run as they are written there."""
# SPDX-License-Identifier: BSD-3-Clause
import re
import sys

from languages import (BINDINGS, CC, PROGRAM, PYTHON, SOURCE, WORK, expect, julia, julia_environment, must,
                       python_package, run_cargo)

from harness import run_tests  # noqa: E402

PAGE = (SOURCE / "docs/bindings.md").read_text(encoding="utf-8")
START = PAGE[PAGE.index("## A start in fifteen lines"):PAGE.index("## Where the library comes from")]


def block(language):
    found = re.findall(r"```%s\n(.*?)```" % language, START, re.S)
    expect(len(found) == 1, language, found)
    return found[0]


def folder(language):
    made = WORK / ("start_" + language)
    made.mkdir(parents=True, exist_ok=True)
    (made / "ds.json").write_text(block("json"))
    return made


def two_ranks(command, where, **more):
    return must([PROGRAM, "run", "-n", 2, "--", *command], cwd=where, **more)


def test_each_start_has_fifteen_lines():
    for language in ("python", "julia", "rust", "c"):
        lines = [line for line in block(language).splitlines() if line.strip()]
        expect(len(lines) <= 15, language, len(lines))


def test_the_python_start_runs():
    where = folder("python")
    (where / "start.py").write_text(block("python"))
    said = two_ranks([PYTHON, "start.py"], where, PYTHONPATH=str(python_package()))
    expect(len(re.findall(r"3 \[-0\.\d+ +-0\.\d+ +-0\.\d+\]", said)) == 2, said)


def test_the_julia_start_runs():
    where = folder("julia")
    (where / "start.jl").write_text(block("julia"))
    said = two_ranks([*julia(), "start.jl"], where, **julia_environment())
    expect(len(re.findall(r"3 Float32\[-0\.\d+, -0\.\d+, -0\.\d+\]", said)) == 2, said)


def test_the_rust_start_runs():
    where = folder("rust")
    example = WORK / "rust-tree/libzero/examples/start.rs"
    example.parent.mkdir(parents=True, exist_ok=True)
    example.write_text(block("rust"))
    code, said = run_cargo("build", "--offline", "-p", "libzero", "--example", "start")
    expect(code == 0 and "warning" not in said, said)
    said = two_ranks([WORK / "rust/debug/examples/start"], where)
    expect(said.count("5.196") == 6, said)  # sqrt(12) * 1.5 on both ranks, three times


def test_the_c_start_runs():
    where = folder("c")
    (where / "start.c").write_text(block("c"))
    must([*CC, "-std=c99", "-Wall", "-Wextra", "-Werror", "-I" + str(SOURCE / "include"), "-I" + str(BINDINGS / "c"),
          "start.c", "-o", "start", "-ldl"], cwd=where)
    expect("stage 2" in must(["./start"], cwd=where))


def test_the_migration_page_names_calls_that_exist():
    migration = PAGE[PAGE.index("## From what you have"):]
    added = {first: re.findall(r"^\+(.*)$", re.search(first + r".*?```diff\n(.*?)```", migration, re.S).group(1), re.M)
             for first in ("From an all-reduce loop", "From DeepSpeed", "From Lux or Flux", "From a Rust trainer")}
    expect(all(1 <= len(lines) <= 5 for lines in added.values()), added)
    python = "\n".join(added["From an all-reduce loop"] + added["From DeepSpeed"])
    names = sorted(set(re.findall(r"\bruntime\.(\w+)\(", python)))
    expect(names == ["step", "submit"] and "libzero.Runtime(" in python, python)
    must([PYTHON, "-c", "import libzero\nfor n in %r: getattr(libzero.Runtime, n)\nlibzero.Model.add" % names],
         PYTHONPATH=str(python_package()))
    exports = (BINDINGS / "julia/LibZero/src/LibZero.jl").read_text()
    for name in re.findall(r"\b(\w+!)\(", "\n".join(added["From Lux or Flux"])):
        expect(re.search(r"export .*%s" % name, exports), name)
    rust = "".join(path.read_text() for path in (BINDINGS / "rust/libzero/src").glob("*.rs"))
    for name in re.findall(r"(?:runtime|model)\.(\w+)\(", "\n".join(added["From a Rust trainer"])):
        expect("pub fn %s" % name in rust, name)


def test_the_page_names_files_that_exist():
    for path in re.findall(r"`((?:bindings|include|docs|examples)/[\w./-]+)`", PAGE):
        expect((SOURCE / path).exists(), path)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

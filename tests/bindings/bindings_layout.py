#!/usr/bin/env python3
"""Sizes and offsets of every struct are the same in C, Python, Julia and Rust."""
# SPDX-License-Identifier: BSD-3-Clause
import sys

from languages import (PYTHON, SOURCE, WORK, expect, julia, julia_environment, must, python_package, run_cargo)

from harness import run_tests  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests/abi"))
import header  # noqa: E402


def layout_of_c():
    """Rows: struct, field or "", offset or size, size of the field."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", "#include <zero.h>", "int main(void) {"]
    for name, fields in header.structs().items():
        lines.append('printf("%s\\t\\t%%zu\\t0\\n", sizeof(%s));' % (name, name))
        lines += ['printf("%s\\t%s\\t%%zu\\t%%zu\\n", offsetof(%s, %s), sizeof(((%s*)0)->%s));' % (
            name, field, name, field, name, field) for field in fields]
    return sorted(header.run_program("\n".join(lines + ["return 0; }"])).splitlines())


def same(rows):
    expected = layout_of_c()
    expect(len(expected) > 100 and sorted(rows) == expected, "only there: %s" % (set(rows) - set(expected)),
           "only in C: %s" % (set(expected) - set(rows)))


PYTHON_ROWS = """
import ctypes
from libzero import layout
for s in layout.STRUCTS:
    print(s.__name__, "", ctypes.sizeof(s), 0, sep="\\t")
    for name, kind in s._fields_:
        f = getattr(s, name)
        print(s.__name__, name, f.offset, f.size, sep="\\t")
"""
# What SWIG's setters write is found where ctypes looks for it.
PYTHON_SETTERS = """
import ctypes
from libzero import layout, raw
seen = 0
for s in layout.STRUCTS:
    made = getattr(raw, s.__name__)()
    mirror = s.from_address(int(made.this))
    for name, kind in s._fields_:
        if kind not in (ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double):
            continue
        setattr(made, name, 0)
        assert getattr(mirror, name) == 0, (s, name)
        setattr(made, name, 77)
        assert getattr(mirror, name) == 77, (s, name)
        setattr(made, name, 0)
        seen += 1
print(seen)
"""


def test_python_has_the_layout_of_c():
    same(must([PYTHON, "-c", PYTHON_ROWS], PYTHONPATH=str(python_package())).splitlines())


def test_what_swig_writes_lies_where_ctypes_reads():
    said = must([PYTHON, "-c", PYTHON_SETTERS], PYTHONPATH=str(python_package()))
    expect(int(said.split()[-1]) > 60, said)


def test_julia_has_the_layout_of_c():
    script = WORK / "layout.jl"
    WORK.mkdir(parents=True, exist_ok=True)
    script.write_text("""using LibZero
for T in LibZero.Raw.STRUCTS
    name = nameof(T)
    println(name, "\\t\\t", sizeof(T), "\\t0")
    for i in 1:fieldcount(T)
        println(name, "\\t", rstrip(String(fieldname(T, i)), '_'), "\\t", fieldoffset(T, i), "\\t", sizeof(fieldtype(T, i)))
    end
end
""")
    same(must([*julia(), script], **julia_environment()).splitlines())


def test_rust_has_the_layout_of_c():
    code, said = run_cargo("run", "--quiet", "--offline", "--example", "layout", "-p", "libzero-sys")
    expect(code == 0, said)
    same([line for line in said.splitlines() if line.startswith("zero_")])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

#!/usr/bin/env python3
"""The header alone: it parses as C99 and C++20, and nothing in it has moved.

layout.tsv holds the size and the offsets of every struct and the value of every enumerator on a
64-bit machine.  `abi_header.py --write` writes it anew, for a change that is meant: fields are
only ever appended, enumerators never renumbered.
"""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import re
import shutil
import sys
import tempfile

import header

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import Skip, expect, run_tests  # noqa: E402

LAYOUT = pathlib.Path(__file__).resolve().parent / "layout.tsv"


def parse_alone(compiler, standard, suffix):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "alone" + suffix)
        source.write_text("#include <zero.h>\n#include <zero.h>\nint zero_h_alone;\n")
        header.run([*compiler, "-std=" + standard, "-Wall", "-Wextra", "-pedantic", "-Werror",
                    "-I", header.ROOT / "include", "-c", source, "-o", source.with_suffix(".o")])


def test_the_header_alone_is_c99():
    parse_alone(header.CC, "c99", ".c")


def test_the_header_alone_is_cpp20():
    parse_alone(header.CXX, "c++20", ".cc")


def test_the_header_alone_is_c99_and_cpp20_for_clang():
    if not shutil.which("clang"):
        raise Skip("there is no clang here")
    parse_alone(["clang"], "c99", ".c")
    parse_alone(["clang++"], "c++20", ".cc")


def layout(language):
    """Rows of (name, field or "", value), as the compiler of the language sees them."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", "#include <zero.h>", "int main(void) {"]
    for name, fields in header.structs().items():
        lines.append('printf("%s\\t\\t%%zu\\n", sizeof(%s));' % (name, name))
        lines += ['printf("%s\\t%s\\t%%zu\\n", offsetof(%s, %s));' % (name, field, name, field)
                  for field in fields]
    lines += ['printf("%s\\t\\t%%d\\n", (int)%s);' % (name, name) for name in header.enumerators()]
    return header.run_program("\n".join(lines + ["return 0; }"]), language)


def test_structs_and_enumerators_are_where_they_were():
    recorded = LAYOUT.read_text().splitlines()
    now = layout("c").splitlines()
    gone = [row for row in recorded if row not in now]
    new = [row for row in now if row not in recorded]
    expect(not gone, "recorded but not so now:", *gone)
    expect(not new, "not recorded; if it is meant, run tests/abi/abi_header.py --write:", *new)


def test_c_and_cpp_see_the_same_layout():
    expect(layout("c") == layout("c++"))


def test_the_header_is_read_as_the_compiler_reads_it():
    # What the regular expressions of header.py find is all there is.
    text = header.text()
    handles = re.findall(r"typedef struct (\w+) \1;", text)
    expect(len(header.structs()) == text.count("typedef struct") - len(handles))
    expect(len(header.functions()) == text.count("ZERO_API"), text.count("ZERO_API"))
    expect(len(set(header.functions())) == len(header.functions()))


def test_a_growing_struct_begins_with_its_size_and_has_an_init_function():
    functions = header.functions()
    frozen = {"zero_buffer", "zero_span"}
    for name, fields in header.structs().items():
        if name in frozen:
            expect("struct_size" not in fields, name)
        else:
            expect(fields[0] == "struct_size", name, fields)
            expect(name + "_init" in functions, name)


def test_no_two_enumerators_of_one_kind_have_one_number():
    values = dict(row.split("\t\t") for row in layout("c").splitlines() if "\t\t" in row)
    for body in re.findall(r"enum \w+ \{(.*?)\}", header.text(), flags=re.S):
        names = re.findall(r"\b(ZERO_\w+)\s*=", body)
        expect(len({values[name] for name in names}) == len(names) > 0, body)


def test_every_function_is_called_by_a_contract_or_distributed_test():
    tests = "".join(path.read_text() for folder in ("contract", "distributed")
                    for path in (header.ROOT / "tests" / folder).glob("*.[ch]*"))
    unused = [name for name in header.functions() if not re.search(r"\b%s\b" % name, tests)]
    expect(not unused, "declared, but no contract or distributed test calls:", *unused)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        LAYOUT.write_text(layout("c"))
        sys.exit(0)
    sys.exit(run_tests(sys.modules["__main__"]))

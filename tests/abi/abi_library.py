#!/usr/bin/env python3
"""The built library: it exports what the header declares and nothing else, and needs nothing that
prints or ends the process."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import re
import sys
import tempfile

import header

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import expect, run_tests  # noqa: E402

LIBRARY = pathlib.Path(os.environ["LIBZERO_LIBRARY"]).resolve()

# abort is not here: the C++ run time's own headers call it for what cannot happen.
FORBIDDEN = {"exit", "_exit", "_Exit", "quick_exit", "printf", "vprintf", "puts", "putchar",
             "perror", "stdout", "_ZSt4cout", "_ZSt4cerr", "_ZSt4clog", "__printf_chk",
             "__vprintf_chk", "__assert_fail", "psignal"}


def symbols(*options):
    """Names that nm gives, without versions."""
    lines = header.run(["nm", "-D", *options, LIBRARY]).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.strip()}


def test_exactly_the_declared_functions_are_exported():
    exported, declared = symbols("--defined-only"), set(header.functions())
    expect(not declared - exported, "declared, not exported:", *sorted(declared - exported))
    expect(not exported - declared, "exported, not declared:", *sorted(exported - declared))


def test_every_declared_function_links_and_has_an_address():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "all.c")
        lines = ["#include <stdio.h>", "#include <zero.h>", "typedef void (*any)(void);",
                 "static const any all[] = {"]
        lines += ["(any)%s," % name for name in header.functions()]
        lines += ["};", "int main(void) {", "unsigned long n = 0;",
                  "for (unsigned long i = 0; i < sizeof all / sizeof *all; ++i) n += all[i] != 0;",
                  'printf("%lu\\n", n);', "return 0; }"]
        source.write_text("\n".join(lines))
        program = pathlib.Path(folder, "all")
        header.run([*header.CC, "-std=c99", "-I", header.ROOT / "include", source, LIBRARY,
                    "-Wl,--no-undefined", "-o", program])
        environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARY.parent)}
        expect(int(header.run([program], env=environment)) == len(header.functions()) > 50)


def test_the_soname_is_libzero_so_0():
    dynamic = header.run(["readelf", "-d", LIBRARY])
    expect(re.search(r"SONAME.*\[libzero\.so\.0\]", dynamic), dynamic)


def test_nothing_that_prints_or_exits_is_imported():
    found = symbols("--undefined-only") & FORBIDDEN
    expect(not found, *sorted(found))


def test_no_cuda_or_nccl_library_is_needed():
    dynamic = header.run(["readelf", "-d", LIBRARY])
    expect(not re.search(r"NEEDED.*(cuda|nccl)", dynamic), dynamic)


def test_the_version_is_the_header_s():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "version.c")
        source.write_text('#include <stdio.h>\n#include <zero.h>\nint main(void) {\n'
                          'printf("%d %d %s", ZERO_VERSION_MAJOR * 10000 + ZERO_VERSION_MINOR * 100'
                          ' + ZERO_VERSION_PATCH, (int)zero_version_number(),'
                          ' zero_version_string());\nreturn 0; }\n')
        program = pathlib.Path(folder, "version")
        header.run([*header.CC, "-I", header.ROOT / "include", source, LIBRARY, "-o", program])
        environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARY.parent)}
        compiled, loaded, text = header.run([program], env=environment).split(" ", 2)
    expect(compiled == loaded, compiled, loaded)
    numbers = [int(part) for part in text.split("+")[0].split(".")]
    expect(numbers[0] * 10000 + numbers[1] * 100 + numbers[2] == int(compiled), text)
    expect(LIBRARY.name == "libzero.so." + text.split("+")[0], LIBRARY.name)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules["__main__"]))

#!/usr/bin/env python3
"""The generated files of the tree are what bindings/generate.py writes from zero.i and zero.h."""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import re
import shutil
import sys

from languages import BINDINGS, SOURCE, WORK, run, swig

from harness import expect, run_tests  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests/abi"))
import header  # noqa: E402

# A function's name in each raw floor, as it is declared there.
RAW = {"c/zero_loader.h": r'"%s"', "rust/libzero-sys/src/raw.rs": r"pub fn %s\(",
       "julia/LibZero/src/raw.jl": r"@ccall libzero\.%s\(", "python/libzero/raw.pyi": r"def %s\("}


def test_the_generated_files_are_what_the_generator_writes():
    swig()
    code, said = run([sys.executable, BINDINGS / "generate.py", "--check"])
    expect(code == 0, said)


def test_a_changed_generated_file_is_noticed():
    swig()
    copy = WORK / "changed"
    shutil.rmtree(copy, ignore_errors=True)
    # (python/subprojects holds a link to the tree itself)
    shutil.copytree(BINDINGS, copy / "bindings", symlinks=True, ignore=shutil.ignore_patterns("target", "subprojects"))
    shutil.copytree(SOURCE / "include", copy / "include", dirs_exist_ok=True)
    victim = copy / "bindings/julia/LibZero/src/raw.jl"
    victim.write_text(victim.read_text().replace("const ZERO_ERR_IO = zero_status(42)", "const ZERO_ERR_IO = zero_status(43)"))
    code, said = run([sys.executable, copy / "bindings/generate.py", "--check"])
    expect(code == 1 and "raw.jl" in said and "(42)" in said, code, said)
    code, said = run([sys.executable, copy / "bindings/generate.py"])
    expect(code == 0 and said.splitlines() == ["wrote bindings/julia/LibZero/src/raw.jl"], said)


def test_every_function_is_in_every_raw_floor():
    names = header.functions()
    expect(len(names) > 90, names)
    for file, pattern in RAW.items():
        text = pathlib.Path(BINDINGS, file).read_text()
        missing = [name for name in names if not re.search(pattern % name, text)]
        expect(not missing, file, missing)


def test_every_enumerator_has_its_number_in_every_raw_floor():
    program = "#include <stdio.h>\n#include <zero.h>\nint main(void) {\n%s return 0; }" % "".join(
        'printf("%s %%d\\n", (int)%s);\n' % (name, name) for name in header.enumerators())
    for line in header.run_program(program).splitlines():
        name, number = line.split()
        rust = pathlib.Path(BINDINGS, "rust/libzero-sys/src/raw.rs").read_text()
        expect(re.search(r"pub const %s: \w+ = %s;" % (name, number), rust), "Rust", line)
        julia = pathlib.Path(BINDINGS, "julia/LibZero/src/raw.jl").read_text()
        expect(re.search(r"const %s = \w+\(%s\)" % (name, number), julia), "Julia", line)


def test_the_documentation_of_a_function_is_in_every_language():
    sentence = "everything the steps will need"  # of zero_shard_params
    for file in ("rust/libzero-sys/src/raw.rs", "rust/libzero/src/checked.rs", "julia/LibZero/src/raw.jl",
                 "julia/LibZero/src/checked.jl", "python/libzero/checked.py"):
        expect(sentence in pathlib.Path(BINDINGS, file).read_text(), file)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

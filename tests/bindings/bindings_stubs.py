#!/usr/bin/env python3
"""What the Python package says of its types is true: mypy over the package, stubtest over raw.pyi (full
tier: mypy is installed into an environment of its own)."""
# SPDX-License-Identifier: BSD-3-Clause
import shutil
import sys

from languages import PYTHON, SOURCE, TIER, WORK, expect, must, once, python_package, run

from harness import Skip, run_tests  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests/abi"))
import header  # noqa: E402


def allowed():
    """What every class that SWIG makes of a struct has beside its fields."""
    path = WORK / "allowed.txt"
    path.write_text(r"libzero\.raw\.(%s)(\.(this|thisown|__init__|__new__))?" % "|".join(header.structs()) + "\n")
    return path


@once
def tools():
    """The folder of mypy's programs, in an environment that sees the system's numpy."""
    if TIER != "full":
        raise Skip("the stubs are checked in the full tier")
    folder = WORK / "mypy"
    if not (folder / "bin/stubtest").exists():
        shutil.rmtree(folder, ignore_errors=True)
        must([PYTHON, "-m", "venv", "--system-site-packages", folder])
        code, said = run([folder / "bin/python", "-m", "pip", "-q", "--disable-pip-version-check", "install", "mypy"],
                         seconds=400)
        if code != 0:
            shutil.rmtree(folder, ignore_errors=True)
            raise Skip("the stubs: skipped, mypy is not to be had here: " + said.strip().splitlines()[-1])
    return folder / "bin"


def stubtest(package):
    return run([tools() / "stubtest", "--allowlist", allowed(), "--ignore-unused-allowlist", "libzero.raw"],
               PYTHONPATH=str(package))


def test_the_raw_floor_has_what_its_stub_says():
    tools()  # says at once where there are none
    code, said = stubtest(python_package())
    expect(code == 0, said)


def test_a_wrong_name_in_the_stub_is_noticed():
    tools()
    copy = WORK / "stub"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(python_package(), copy)
    stub = copy / "libzero/raw.pyi"
    stub.write_text(stub.read_text().replace("def zero_step_count(", "def zero_step_counts("))
    code, said = stubtest(copy)
    expect(code == 1 and "zero_step_counts is not present at runtime" in said, said)


def test_the_package_is_typed_as_it_is_used():
    mypy = tools() / "mypy"
    code, said = run([mypy, "--ignore-missing-imports", "--exclude", "/(torch|as_deepspeed)/", "-p", "libzero"],
                     cwd=python_package())
    own = [line for line in said.splitlines() if ": error:" in line
           and not line.startswith(("libzero/torch/", "libzero/as_deepspeed/"))]
    expect(code in (0, 1) and not own, said)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

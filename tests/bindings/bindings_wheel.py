#!/usr/bin/env python3
"""`pip install ./bindings/python` in an environment of its own (full tier: it builds the library)."""
# SPDX-License-Identifier: BSD-3-Clause
import shutil
import sys

from languages import BINDINGS, TIER, WORK, expect, must, need, run

from harness import Skip, run_tests  # noqa: E402


def test_pip_installs_the_package_the_library_and_the_command():
    if TIER != "full":
        raise Skip("the wheel is built in the full tier")
    need("the wheel", "swig=swig")
    folder = WORK / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    must([sys.executable, "-m", "venv", folder])
    python = folder / "bin/python"
    code, said = run([python, "-m", "pip", "-q", "install", BINDINGS / "python"], seconds=1500)
    if code != 0 and "No matching distribution" in said:
        raise Skip("the wheel: skipped, meson-python is not to be had here")
    expect(code == 0, said)
    said = must([python, "-c", "import libzero; print(libzero.version(), libzero.__file__)"], cwd=WORK, LIBZERO_LIBRARY="")
    expect(str(folder) in said, said)
    said = must([folder / "bin/zero", "run", "-n", 2, "--", python, "-c",
                 "import libzero; print(libzero.Comm.from_config(libzero.Config()).size)"], cwd=WORK)
    expect(said.count("2") >= 2, said)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

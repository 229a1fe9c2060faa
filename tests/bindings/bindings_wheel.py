#!/usr/bin/env python3
"""`pip install ./bindings/python` in an environment of its own, and what -Dpython, -Djulia and -Drust
install.  Both build the library, which is for the full tier; what would be installed is checked in each."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import shutil
import sys
import tempfile

from languages import (BINDINGS, PYTHON, SOURCE, TIER, WORK, expect, julia, julia_environment, must, need, once, run,
                       run_cargo)

from harness import Skip, run_tests  # noqa: E402

TRAIN = """
import array
import libzero
model = libzero.Model()
model.add("w", array.array("f", [1.0] * 12))
with libzero.Runtime({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
                      "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}, model) as runtime:
    runtime.submit("w", array.array("f", [runtime.rank + 1.0] * 12))
    print(runtime.size, "ranks, norm %.3f" % runtime.step().grad_norm, libzero.__file__)
"""


def outside(command, seconds=200, **more):
    """Runs it where nothing of the tree is found."""
    with tempfile.TemporaryDirectory() as folder:
        return must(command, seconds, cwd=folder, LIBZERO_LIBRARY="", PYTHONPATH="", LD_LIBRARY_PATH="", **more)


def with_ccache():
    return {name: "ccache " + command for name, command in (("CC", "cc"), ("CXX", "c++"))
            if shutil.which("ccache") and name not in os.environ}


@once
def wheel():
    """The environment that the wheel was installed into."""
    if TIER != "full":
        raise Skip("the wheel is built in the full tier")
    need("the wheel", "swig=swig")
    folder = WORK / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    # A copy, as a clone would be: what is in the working tree, committed or not.
    tree = folder / "tree"
    shutil.copytree(SOURCE, tree, symlinks=True, ignore=lambda where, names: [
        name for name in names if name in (".git", "__pycache__", "subprojects", "target")
        or (name.startswith("build") and where == str(SOURCE))])
    must([sys.executable, "-m", "venv", folder / "venv"])
    python = folder / "venv/bin/python"
    code, said = run([python, "-m", "pip", "-q", "--disable-pip-version-check", "install", tree / "bindings/python"],
                     seconds=2400, **with_ccache())
    if code != 0 and any(word in said for word in ("No matching distribution", "Could not find a version")):
        raise Skip("the wheel: skipped, meson-python is not to be had here")
    expect(code == 0, said)
    left = [path for path in (tree / "bindings/python").iterdir() if path.name in ("subprojects", "build", "dist")]
    expect(not left, "the build left behind: %s" % left)
    return folder / "venv"


def test_pip_installs_the_package_the_library_and_the_command():
    venv = wheel()
    said = outside([venv / "bin/python", "-c", "import libzero; print(libzero.version(), libzero.__file__)"])
    expect(str(venv) in said, said)
    said = outside([venv / "bin/zero", "run", "-n", 2, "--", venv / "bin/python", "-c", TRAIN])
    expect(said.count("2 ranks, norm 5.196 %s" % venv) == 2, said)  # sqrt(12) * 1.5
    expect(outside([venv / "bin/zero", "--version"]).startswith("zero "))
    listed = must([venv / "bin/python", "-m", "pip", "--disable-pip-version-check", "show", "-f", "libzero-runtime"])
    for file in ("libzero/libzero.so.0", "libzero/_raw", "libzero/raw.pyi", "libzero/py.typed", "libzero/torch/__init__.py",
                 "bin/zero"):
        expect(file in listed, file, listed)


def test_the_wheel_has_every_file_of_the_package():
    package = next((wheel() / "lib").rglob("site-packages/libzero"))
    files = {str(path.relative_to(BINDINGS / "python/libzero")) for path in (BINDINGS / "python/libzero").rglob("*")
             if path.is_file() and "__pycache__" not in path.parts}
    found = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    expect(files <= found and len(files) > 20, files - found)


# ---- -Dpython, -Djulia, -Drust -------------------------------------------------------------------------

@once
def configured():
    """A build folder with all three asked for."""
    include = must([PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"]).strip()
    need("the bindings' installation", "swig=swig", "file:%s/Python.h=python3-dev" % include)
    folder = WORK / "with-bindings"
    shutil.rmtree(folder, ignore_errors=True)
    must(["meson", "setup", folder, SOURCE, "-Dtests=disabled", "-Dexamples=disabled", "-Dpython=enabled", "-Djulia=enabled",
          "-Drust=enabled", "--prefix", WORK / "prefix"], **with_ccache())
    return folder


def test_what_is_asked_for_would_be_installed():
    plan = json.loads(must(["meson", "introspect", configured(), "--installed"]))
    names = "\n".join(plan.values())
    for name in ("libzero/raw.py", "libzero/_raw.", "dist-packages/libzero" if "dist-packages" in names else
                 "site-packages/libzero", "julia/LibZero/library.path", "julia/LibZero", "share/libzero/rust",
                 "include/zero_loader.h"):
        expect(name in names, name, names)


@once
def prefix():
    if TIER != "full":
        raise Skip("the bindings are installed in the full tier")
    folder = configured()
    must(["ninja", "-C", folder], seconds=2400)
    shutil.rmtree(WORK / "prefix", ignore_errors=True)
    must(["meson", "install", "-C", folder, "--no-rebuild", "--quiet"])
    return WORK / "prefix"


def test_the_installed_python_module_runs():
    package = next(prefix().rglob("libzero/_raw*.so")).parent
    done = must([prefix() / "bin/zero", "run", "-n", 2, "--", PYTHON, "-c", TRAIN], LIBZERO_LIBRARY="",
                PYTHONPATH=str(package.parent), LD_LIBRARY_PATH=str(next(prefix().rglob("libzero.so")).parent))
    expect(done.count("2 ranks, norm 5.196 %s" % prefix()) == 2, done)
    said = outside([PYTHON, "-c", "import sys; sys.path.insert(0, %r); import libzero; print(libzero.version())" % str(
        package.parent)])
    expect(said.strip(), said)


def test_the_installed_julia_package_finds_the_library_it_came_with():
    package = prefix() / "share/libzero/julia/LibZero"
    command = [word for word in julia() if not str(word).startswith("--project")]
    said = outside([*command, "--project=" + str(package), "-e", "using LibZero; println(LibZero.library_path())"],
                   **julia_environment())
    expect(said.strip() == str(next(prefix().rglob("libzero.so.0"))), said)


def test_the_installed_crates_find_the_library_by_pkg_config():
    config = next(prefix().rglob("libzero.pc")).parent
    crates = prefix() / "share/libzero/rust"
    code, said = run_cargo("build", "--offline", "--manifest-path", crates / "Cargo.toml", "--examples", ZERO_LIB_DIR="",
                           PKG_CONFIG_PATH=str(config), CARGO_TARGET_DIR=str(WORK / "rust-installed"))
    expect(code == 0, said)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

"""What the suite needs of each language: found, or installed where that is allowed, or a Skip."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import Skip, expect  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("LIBZERO_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("LIBZERO_BUILD_ROOT", SOURCE / "build/bindings"))
PROGRAM = os.environ.get("LIBZERO_PROGRAM", str(BUILD / "src/cli/zero"))
LIBRARY = pathlib.Path(os.environ.get("LIBZERO_LIBRARY", BUILD / "src/libzero.so"))
CC = os.environ.get("LIBZERO_CC", "cc").split()
TIER = os.environ.get("LIBZERO_TEST_TIER", "quick")
WORK = BUILD / "bindings"
BINDINGS = SOURCE / "bindings"
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_", "PMI_", "SLURM_")


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "OPENBLAS_NUM_THREADS": "1", "LIBZERO_LIBRARY": str(LIBRARY), **more}


def run(command, seconds=200, cwd=None, **more):
    """Exit code and everything that was said."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, timeout=seconds, cwd=cwd,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                          env=environment(**more))
    return done.returncode, done.stdout


def must(command, seconds=200, **more):
    code, said = run(command, seconds, **more)
    expect(code == 0, "exit code %d of %s" % (code, " ".join(map(str, command))), said)
    return said


def need(what, *pairs):
    """Packages by tests/need.sh, else a Skip that says what is missing."""
    if os.environ.get("LIBZERO_NO_INSTALL"):
        missing = [pair.split("=")[0] for pair in pairs
                   if not (pathlib.Path(pair.split("=")[0][5:]).exists() if pair.startswith("file:")
                           else shutil.which(pair.split("=")[0]))]
        if missing:
            raise Skip("%s: skipped, without %s" % (what, ", ".join(missing)))
        return
    code, said = run([SOURCE / "tests/need.sh", *pairs], seconds=400)
    if code != 0:
        raise Skip("%s: skipped, %s" % (what, (said.strip().splitlines() or ["nothing said why"])[-1]))


_made = {}


def once(make):
    """Makes a thing once; a Skip is said again each time."""
    def made():
        if make not in _made:
            try:
                _made[make] = make(), None
            except Skip as reason:
                _made[make] = None, reason
        thing, reason = _made[make]
        if reason:
            raise reason
        return thing
    return made


@once
def swig():
    need("SWIG", "swig=swig")
    return "swig"


PYTHON = pathlib.Path("/usr/bin/python3") if pathlib.Path("/usr/bin/python3").exists() else pathlib.Path(sys.executable)


@once
def python_package():
    """The folder that holds the package libzero, its extension built against this build's library."""
    said = must([PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"])
    include = pathlib.Path(said.strip().splitlines()[-1])
    need("Python", "swig=swig", "file:%s/Python.h=python3-dev" % include)
    if run([PYTHON, "-c", "import numpy"])[0] != 0:
        if os.environ.get("LIBZERO_NO_INSTALL"):
            raise Skip("Python: skipped, without numpy")
        need("Python", "file:/usr/lib/python3/dist-packages/numpy/__init__.py=python3-numpy")
    package = WORK / "python" / "libzero"
    package.mkdir(parents=True, exist_ok=True)
    for file in package.glob("*.py*"):
        if file.is_file():
            file.unlink()
    for file in (BINDINGS / "python/libzero").iterdir():
        if file.is_file():
            shutil.copy(file, package / file.name)
        elif file.is_dir() and file.name != "__pycache__":
            shutil.copytree(file, package / file.name, dirs_exist_ok=True)
    must(["swig", "-python", "-builtin", "-threads", "-DSWIGWORDSIZE64", "-I" + str(SOURCE / "include"),
          "-I" + str(BINDINGS), "-outdir", package, "-o", WORK / "raw_wrap.c", BINDINGS / "zero.i"])
    must([*CC, "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
          "-Wno-missing-field-initializers", "-Wno-cast-function-type", "-I" + str(include), "-I" + str(SOURCE / "include"),
          WORK / "raw_wrap.c", "-o", package / "_raw.so", "-L" + str(LIBRARY.parent), "-lzero",
          "-Wl,-rpath," + str(LIBRARY.parent)])
    return package.parent


@once
def julia():
    """A command that starts Julia with the package."""
    if os.environ.get("LIBZERO_NO_INSTALL") and not shutil.which("julia") and not os.environ.get("LIBZERO_JULIA"):
        raise Skip("Julia: skipped, without julia")
    done = subprocess.run([str(SOURCE / "tests/bindings/get_julia.sh"), str(SOURCE / "build/julia")], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Skip("Julia: skipped, " + (done.stderr.strip().splitlines() or ["not to be had"])[-1])
    # Little of a test's time is spent in what it compiles.
    return [done.stdout.strip(), "-O0", "-g0", "--startup-file=no", "--project=" + str(BINDINGS / "julia/LibZero")]


def julia_environment():
    return {"JULIA_DEPOT_PATH": str(WORK / "julia"), "JULIA_LOAD_PATH": "@:@stdlib"}


@once
def cargo():
    """cargo, offline, with a folder of its own for what it makes."""
    need("Rust", "cargo=cargo", "rustc=rustc")
    return "cargo"


def cargo_environment():
    return {"CARGO_TARGET_DIR": str(WORK / "rust"), "ZERO_LIB_DIR": str(LIBRARY.parent), "CARGO_NET_OFFLINE": "true"}


def run_cargo(*words, seconds=300, **more):
    # A lock file is made beside a copy, so that the tree stays as it is.
    copy = WORK / "rust-tree"
    shutil.copytree(BINDINGS / "rust", copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
    return run([cargo(), *words], seconds, cwd=copy, **dict(cargo_environment(), **more))

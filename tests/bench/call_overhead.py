#!/usr/bin/env python3
"""What a call of the raw floor takes in C, Python, Julia and Rust: one JSON object a line, medians.

    tests/bench/run.sh calls [rounds]

The programs in calls/ run one after the other, in every round; a figure is the median of its rounds.
Python is measured as libzero is built (swig -builtin) and with SWIG's other ways of making a module.
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import platform
import shutil
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bindings"))
from languages import (BINDINGS, CC, LIBRARY, PYTHON, SOURCE, WORK, Skip, julia, julia_environment, must,  # noqa: E402
                       python_package, run_cargo)

# name -> what SWIG is told beside -python
SWIG = {"proxy classes": [], "proxy classes, -fastproxy": ["-fastproxy"]}


def c_program():
    WORK.mkdir(parents=True, exist_ok=True)
    must([*CC, "-std=gnu11", "-O2", "-I" + str(SOURCE / "include"), HERE / "calls/calls.c", "-o", WORK / "calls",
          "-L" + str(LIBRARY.parent), "-lzero", "-Wl,-rpath," + str(LIBRARY.parent)])
    return [WORK / "calls"], {}


def python_program(package):
    return [PYTHON, HERE / "calls/calls.py"], {"PYTHONPATH": str(package)}


def other_package(flags):
    """The package with its raw floor made in another way."""
    folder = WORK / "python-other" / ("_".join(flags) or "plain")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(python_package(), folder)
    package, wrapper = folder / "libzero", folder / "raw_wrap.c"
    include = must([PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"]).strip()
    must(["swig", "-python", *flags, "-threads", "-DSWIGWORDSIZE64", "-I" + str(SOURCE / "include"), "-I" + str(BINDINGS),
          "-outdir", package, "-o", wrapper, BINDINGS / "zero.i"])
    must([*CC, "-O2", "-w", "-fPIC", "-shared", "-I" + include, "-I" + str(SOURCE / "include"), wrapper, "-o",
          package / "_raw.so", "-L" + str(LIBRARY.parent), "-lzero", "-Wl,-rpath," + str(LIBRARY.parent)])
    return folder


def rust_program():
    code, said = run_cargo("build", "--release", "--offline", "-p", "libzero-sys", "--example", "calls")
    if code != 0:
        raise Skip(said)
    return [WORK / "rust/release/examples/calls"], {"LD_LIBRARY_PATH": str(LIBRARY.parent)}


def julia_program():
    # As users start it: with Julia's own optimisation level.
    command = [word for word in julia() if word not in ("-O0", "-g0")]
    return [*command, HERE / "calls/calls.jl"], julia_environment()


def programs():
    makers = {"C": c_program, "Rust": rust_program, "Julia": julia_program,
              "Python, swig -builtin": lambda: python_program(python_package())}
    for name, flags in SWIG.items():
        makers["Python, " + name] = lambda flags=flags: python_program(other_package(flags))
    made = {}
    for name, make in makers.items():
        try:
            made[name] = make()
        except Skip as reason:
            print("%s: %s" % (name, reason), file=sys.stderr)
    return made


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    return {"cpu": model, "cores": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}


def main(rounds=5):
    made, found = programs(), {}
    print(json.dumps(machine()))
    for _ in range(rounds):
        for language, (command, more) in made.items():
            for line in must(command, **more).splitlines():
                if len(line.split()) == 2:  # Julia's log speaks too
                    call, ns = line.split()
                    found.setdefault((language, call), []).append(float(ns))
    medians = {key: statistics.median(times) for key, times in found.items()}
    for (language, call), ns in medians.items():
        print(json.dumps({"language": language, "call": "zero_" + call, "ns": round(ns, 1),
                          "above_c": round(ns - medians["C", call.split("(")[0]], 1)}))
    print(json.dumps(machine()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

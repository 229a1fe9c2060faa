#!/usr/bin/env python3
"""Writes the generated floors of the bindings from zero.i and zero.h; needs SWIG.

  bindings/generate.py            writes the files
  bindings/generate.py --check    says which files differ from what would be written
"""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import difflib
import pathlib
import sys

BINDINGS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BINDINGS))

from generator import emit_c, emit_julia, emit_python, emit_rust, interface  # noqa: E402


def files():
    """path -> text."""
    found = interface.read()
    return {
        "c/zero_loader.h": emit_c.loader(found),
        "rust/libzero-sys/src/raw.rs": emit_rust.raw(found),
        "rust/libzero/src/checked.rs": emit_rust.checked(found),
        "julia/LibZero/src/raw.jl": emit_julia.raw(found),
        "julia/LibZero/src/inits.jl": emit_julia.inits(found),
        "julia/LibZero/src/checked.jl": emit_julia.checked(found),
        "threads.i": emit_python.threads(found),
        "python/libzero/layout.py": emit_python.layout(found),
        "python/libzero/checked.py": emit_python.checked(found),
        "python/libzero/raw.pyi": emit_python.stub(found),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    different = 0
    for path, text in files().items():
        target = BINDINGS / path
        old = target.read_text() if target.exists() else ""
        if old == text:
            continue
        different += 1
        if options.check:
            sys.stdout.writelines(list(difflib.unified_diff(
                old.splitlines(True), text.splitlines(True), path, path + " (generated)"))[:40])
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            print("wrote bindings/" + path)
    if options.check and different:
        print("%d generated files differ: run bindings/generate.py" % different)
    return 1 if options.check and different else 0


if __name__ == "__main__":
    sys.exit(main())

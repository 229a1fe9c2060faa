#!/usr/bin/env python3
"""Fails on an #include that the architecture has no arrow for.

The table below is the one of the architecture: which folders a folder may include besides
itself.  Paths in quotes are relative to src/ or to the root (kernels/), <zero.h> is open to all.
"""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

NEIGHBOURS = {"comm", "memory", "checkpoint", "offload", "optim", "trace", "config", "plan",
              "kernels"}
MAY_INCLUDE = {
    "src/base": set(),
    "src/plan": {"base"},
    "src/optim": {"base"},
    "kernels": {"base"},
    "kernels/cuda": {"kernels", "device", "base"}, # the plug-in's table
    "src/device": {"base"},
    "src/config": {"device", "base"},
    "src/memory": {"device", "base"},
    "src/trace": {"device", "base"},
    "src/checkpoint": {"device", "base"},
    "src/offload": {"device", "base"},
    "src/comm": {"memory", "device", "base"},
    "src/engine": NEIGHBOURS | {"device", "base"},
    "src/api": NEIGHBOURS | {"engine", "device", "base"},
    # users of <zero.h> alone
    "src/cli": set(),
    "examples": set(),
    "bindings": set(),
    "tests/abi": set(),
    "tests/bindings": set(),
    "tests/cli": set(),
    "tests/contract": set(),
    "tests/distributed": set(),
    "tests/golden": set(),
    # tests of the inside
    "tests/unit": NEIGHBOURS | {"api", "engine", "device", "base"},
    "tests/faults": NEIGHBOURS | {"api", "engine", "device", "base"},
    "tests/emulation": NEIGHBOURS | {"api", "engine", "device", "base"},
    "tests/parity": NEIGHBOURS | {"api", "engine", "device", "base"},
    "tests/fuzz": NEIGHBOURS | {"api", "engine", "device", "base"},
    "tests/bench": NEIGHBOURS | {"api", "engine", "device", "base"},
}
INNER = {key.split("/")[-1] for key in MAY_INCLUDE if key.startswith("src/") or key == "kernels"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.M)


def folder_of(path):
    parts = path.split("/")
    for depth in (2, 1):
        if "/".join(parts[:depth]) in MAY_INCLUDE:
            return "/".join(parts[:depth])
    return None


def problems(path, text):
    """Sentences about one file; path is relative to the root."""
    if path == "include/zero.h":
        for _, name in INCLUDE.findall(text):
            if name not in ("stddef.h", "stdint.h"):
                yield "%s: includes %s; the header needs only stddef.h and stdint.h" % (path, name)
        return
    folder = folder_of(path)
    if folder is None:
        yield "%s: its folder is not in the table of .ci/check_includes.py" % path
        return
    own = folder.split("/")[-1]
    for bracket, name in INCLUDE.findall(text):
        first = name.split("/")[0] if "/" in name else None
        if first not in INNER or (bracket == "<" and not (ROOT / "src" / name).exists()):
            if bracket == '"' and first is None and folder.startswith(("src", "kernels")):
                yield '%s: "%s" does not say its folder' % (path, name)
            elif ".." in name.split("/"):
                yield '%s: "%s" climbs out of its folder' % (path, name)
            continue
        if first != own and first not in MAY_INCLUDE[folder]:
            yield '%s: "%s" - %s may include %s' % (
                path, name, folder, ", ".join(sorted(MAY_INCLUDE[folder])) or "only <zero.h>")


def tracked():
    listing = subprocess.run(["git", "ls-files", "*.h", "*.c", "*.cc", "*.cu", "*.inc"], cwd=ROOT,
                             check=True, stdout=subprocess.PIPE).stdout.decode()
    return [path for path in listing.splitlines() if (ROOT / path).exists()]


def self_test():
    """A table that lets everything through would be no check."""
    bad = [("src/plan/a.h", '#include "comm/b.h"'), ("src/base/a.h", '#include "plan/b.h"'),
           ("src/comm/a.cc", '#include "engine/b.h"'), ("src/cli/a.cc", '#include "base/error.h"'),
           ("tests/contract/a.c", '#include "plan/b.h"'), ("src/plan/a.h", '#include "b.h"'),
           ("examples/gpt/a.c", '#include "../../src/base/error.h"'),
           ("include/zero.h", "#include <stdlib.h>"), ("src/new/a.cc", "")]
    good = [("src/plan/a.h", '#include "plan/b.h"\n#include "base/error.h"\n#include <zero.h>'),
            ("src/engine/a.cc", '#include "kernels/kernels.h"\n#include <sys/mman.h>'),
            ("src/cli/a.cc", '#include "cli/run.h"'), ("tests/contract/a.c", '#include "help.h"'),
            ("src/comm/a.cc", '#include "memory/ledger.h"')]
    for path, text in bad:
        if not list(problems(path, text)):
            yield "self test: %s with %s was let through" % (path, text)
    for path, text in good:
        yield from ("self test: " + problem for problem in problems(path, text))


def main():
    found = list(self_test())
    paths = tracked()
    names = {}
    for path in paths:
        found += problems(path, (ROOT / path).read_text(encoding="utf-8"))
        other = names.setdefault(pathlib.PurePath(path).name, path)
        if other != path:
            found.append("%s and %s have one name; file names are unique in the tree" % (other, path))
    for sentence in found:
        print(sentence)
    print("%d files, %d includes or names out of place" % (len(paths), len(found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

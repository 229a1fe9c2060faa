#!/usr/bin/env python3
"""Fails on a row of tests/claims.tsv whose test does not exist.

A row is: issue, claim in short, test, tier.  The test is `<suite>/<file stem>:<function>`, where
tests/<suite>/<suite>_<file stem> or tests/<suite>/<file stem> (.c, .cc, .py) holds a function of
that name (in .py: test_<function>), or a command line that begins with a script of the tree.
`TODO:` before it says that the test is still to be written: counted, and a failure with --strict.
"""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLAIMS = ROOT / "tests" / "claims.tsv"
TEST = re.compile(r"^([a-z_]+)/([a-z0-9_]+):([A-Za-z0-9_]+)$")


def problem(test):
    """Why a test does not exist, or None."""
    match = TEST.match(test)
    if match:
        suite, stem, function = match.groups()
        stem = re.sub("^%s_" % suite, "", stem)
        candidates = [ROOT / "tests" / suite / (name + suffix) for suffix in (".c", ".cc", ".py")
                      for name in ("%s_%s" % (suite, stem), stem)]
        files = [path for path in candidates if path.exists()]
        lists = ROOT / "tests" / suite / "meson.build"
        if not lists.exists() or not re.search(r"'%s'" % stem, lists.read_text()):
            return "tests/%s/meson.build does not list '%s'" % (suite, stem)
        if not files:
            return "there is no tests/%s/%s_%s" % (suite, suite, stem)
        for path in files:
            # In C a macro may make test names of its arguments; the name is then among them.
            pattern = r"def test_%s\(" if path.suffix == ".py" else r"\b%s\b"
            if re.search(pattern % function, path.read_text(encoding="utf-8")):
                return None
        return "%s has no test %s" % (files[0].relative_to(ROOT), function)
    command = test.split()[0] if test.split() else ""
    if "/" not in command:
        return "neither <suite>/<stem>:<test> nor a command of the tree"
    return None if (ROOT / command).exists() else "there is no %s" % command


def main():
    strict = "--strict" in sys.argv[1:]
    tables = [argument for argument in sys.argv[1:] if argument != "--strict"]
    claims = pathlib.Path(tables[0]) if tables else CLAIMS
    found, todo, rows = [], 0, 0
    for number, line in enumerate(claims.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        rows += 1
        columns = line.split("\t")
        where = claims.name + ":%d: " % number
        if len(columns) != 4 or not columns[0].isdigit() or columns[3] not in ("quick", "full"):
            found.append(where + "expected issue, claim, test, quick or full, separated by tabs")
            continue
        if columns[2].startswith("TODO:"):
            todo += 1
            if strict:
                found.append(where + "no test yet for: " + columns[1])
            continue
        reason = problem(columns[2])
        if reason:
            found.append("%s%s (%s)" % (where, reason, columns[1]))
    for sentence in found:
        print(sentence)
    print("%d claims, %d of them without a test yet, %d wrong rows" % (rows, todo, len(found)))
    return 1 if found or rows == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

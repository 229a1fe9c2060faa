#!/usr/bin/env python3
"""Runs the test programs that meson knows, one after the other, and counts single tests.

A cmocka program (or a script that prints cmocka's lines) counts each of its tests; any other
program counts as one.  A program that fails without naming a test counts as one failed; one
that is cut off counts the test it was in.  Exit code 77 without a result means skipped.
"""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import collections
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

LINE = re.compile(r"^\[(  FAILED  | {7}OK |  SKIPPED | RUN {6})\] (\w\S*)\s*$")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
FULL_TIER_FACTOR = 6
LAST_WORDS = 30  # lines of a failing program that are repeated at the end
ORDER = ["unit", "contract", "abi", "cli", "distributed", "faults", "examples"]

Counts = collections.namedtuple("Counts", "passed failed skipped")


def total(counts):
    return Counts(*(sum(column) for column in zip(Counts(0, 0, 0), *counts)))


def words(counts):
    text = "%d passed, %d failed" % (counts.passed, counts.failed)
    return text + (", %d skipped" % counts.skipped if counts.skipped else "")


def judge(text, code, cut_off):
    """Counts and names of what failed, from a program's output and exit code."""
    seen = collections.defaultdict(set)
    for line in text.splitlines():
        match = LINE.match(ANSI.sub("", line))
        if match:
            seen[match.group(1).strip()].add(match.group(2))
    failed = seen["FAILED"] | (seen["RUN"] - seen["OK"] - seen["SKIPPED"])
    passed = seen["OK"] - failed
    skipped = seen["SKIPPED"] - failed
    names = sorted(failed)
    if cut_off:
        names = names or ["(timed out)"]
    elif code != 0 and not failed:
        if code == 77 and not passed:
            return Counts(0, 0, max(1, len(skipped))), []
        names = ["(exit code %d)" % code if code > 0 else "(%s)" % signal.Signals(-code).name]
    elif not (passed or failed or skipped):
        return Counts(1, 0, 0), []
    return Counts(len(passed), len(names), len(skipped)), names


def run_program(command, environment, directory, timeout):
    """Output, exit code, whether it was cut off.  Output goes to a terminal, so that lines appear
    as they are written and are not lost in the buffer of a program that is killed."""
    terminal, side = pty.openpty()
    process = subprocess.Popen(command, env=environment, cwd=directory, stdin=subprocess.DEVNULL,
                               stdout=side, stderr=side, start_new_session=True)
    os.close(side)
    output, deadline, cut_off = [], time.monotonic() + timeout, False
    ended_at = None
    while True:
        readable, _, _ = select.select([terminal], [], [], 0.1)
        if readable:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # nobody holds the other side any more
                break
            if not chunk:
                break
            output.append(chunk)
            continue
        now = time.monotonic()
        if process.poll() is not None:
            ended_at = ended_at or now
            if now - ended_at > 0.3:  # someone it left behind holds the terminal
                break
        elif now > deadline:
            cut_off = True
            os.killpg(process.pid, signal.SIGKILL)
            break
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        cut_off = True
    try:
        os.killpg(process.pid, signal.SIGKILL)  # what it left behind
    except ProcessLookupError:
        pass
    os.close(terminal)
    text = b"".join(output).decode(errors="replace").replace("\r\n", "\n")
    return text, process.wait(), cut_off


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--built", default="yes")
    parser.add_argument("--filter", default="")
    parser.add_argument("suites", nargs="*")
    arguments = parser.parse_args()

    listing = subprocess.run(["meson", "introspect", "--tests", arguments.build], check=True,
                             stdout=subprocess.PIPE).stdout
    suites = collections.defaultdict(list)
    for test in json.loads(listing):
        suites[test["suite"][0].split(":")[-1]].append(test)
    wanted = arguments.suites or sorted(
        suites, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    factor = float(os.environ.get("LIBZERO_TEST_TIMEOUT_FACTOR", "1"))
    if os.environ.get("LIBZERO_TEST_TIER") == "full":
        factor *= FULL_TIER_FACTOR
    logs = os.path.join(arguments.build, "test-logs")
    os.makedirs(logs, exist_ok=True)

    everything, failures, last_words = [], [], []
    if arguments.built != "yes":
        everything.append(Counts(0, 1, 0))
        failures.append("the build (see above)")
    for suite in wanted:
        if suite not in suites:
            print("suite %s: there is none of that name" % suite)
            everything.append(Counts(0, 1, 0))
            failures.append(suite)
            continue
        print("suite %s" % suite, flush=True)
        suite_start, suite_counts = time.monotonic(), []
        for test in suites[suite]:
            if arguments.filter not in test["name"]:
                continue
            environment = dict(os.environ, LIBZERO_BUILD=os.path.abspath(arguments.build))
            environment.update(test["env"])
            start = time.monotonic()
            if os.path.isabs(test["cmd"][0]) and not os.path.exists(test["cmd"][0]):
                text, counts, names = "", Counts(0, 1, 0), ["(not built)"]
            else:
                text, code, cut_off = run_program(test["cmd"], environment, test["workdir"],
                                                  test["timeout"] * factor)
                counts, names = judge(text, code, cut_off)
                if cut_off:
                    names = [name + " (timed out)" for name in names if "(" not in name] or names
            log = os.path.join(logs, "%s-%s.txt" % (suite, test["name"].replace("/", "-")))
            with open(log, "w", encoding="utf-8") as stream:
                stream.write(text)
            print("  %-32s %s, %.1f s" % (test["name"], words(counts), time.monotonic() - start),
                  flush=True)
            if names:
                failures += ["%s/%s: %s" % (suite, test["name"], name) for name in names]
                last_words += ["  %s | %s" % (test["name"], line)
                               for line in text.splitlines()[-LAST_WORDS:]]
                print("    failed: %s" % ", ".join(names))
                for line in text.splitlines()[-40:]:
                    print("    | " + line)
                print("    whole output: %s" % log, flush=True)
            suite_counts.append(counts)
        everything += suite_counts
        print("suite %s: %s in %.1f s" % (suite, words(total(suite_counts)),
                                          time.monotonic() - suite_start), flush=True)
    if failures:
        print("what failed:")
        for failure in failures:
            print("  " + failure)
        print("\n".join(last_words[:4 * LAST_WORDS]))
    counts = total(everything)
    if not counts.passed and not counts.failed:
        print("no test was run")
        counts = Counts(0, 1, counts.skipped)
    print(words(counts))
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())

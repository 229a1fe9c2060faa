#!/usr/bin/env python3
"""Prints the results of examples/quickstart.sh as one table; exits with 1 if weights differ."""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import sys

NAMED = ("params", "grads", "optimizer", "gathered")
HEAD = ("stage", "", "parameters", "gradients", "optimizer", "gathered", "other", "peak",
        "step s", "loss", "validation", "weights")
WIDTHS = (5, 8, 10, 9, 9, 8, 6, 6, 6, 6, 10, 16)


def line(cells):
    return "  ".join(str(cell).rjust(width) for cell, width in zip(cells, WIDTHS)).rstrip()


def megabytes(uses, total):
    other = sum(size for use, size in uses.items() if use not in NAMED)
    return ["%.2f" % (size / 1e6) for size in [uses[use] for use in NAMED] + [other, total]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", help="also write the rows there")
    parser.add_argument("rows", nargs="+", help="what gpt --json wrote, one file a stage")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.rows:
        with open(name, encoding="utf-8") as stream:
            rows.append(json.load(stream))

    print("%d parameters, %d ranks, %d steps; MB a rank" %
          (rows[0]["parameters"], rows[0]["ranks"], rows[0]["steps"]))
    print(line(HEAD))
    for row in rows:
        print(line([row["stage"], "planned"] + megabytes(row["planned"], row["planned_bytes"])))
        print(line(["", "measured"] + megabytes(row["measured"], row["measured_bytes"]) +
                   ["%.3f" % row["step_seconds"], "%.4f" % row["loss"],
                    "%.4f" % row["validation_loss"], row["weights"]]))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(rows, stream, indent=1)
            stream.write("\n")
    if len({row["weights"] for row in rows}) != 1:
        print("The weights DIFFER between stages.")
        return 1
    print("The weights have the same bits at every stage.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Time from initialize to the first step, GPT-2 of 124 M parameters, two CPU ranks: libzero.torch beside DeepSpeed.

Usage: LIBZERO_BUILD_ROOT=... tests/bench/startup.py [rounds (3)] [stages, separated by commas (2,3)]
Modes take turns. One JSON object a line: value is libzero's median seconds in initialize at a stage (goal: <= 1),
baseline DeepSpeed's; first_step is what the first step took longer than the second, both together. The interpreter is
the one that LIBZERO_PEERS_PYTHON names.
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers"), str(HERE.parent), str(HERE.parent / "torch")]
os.environ.setdefault("LIBZERO_SOURCE_ROOT", str(HERE.parent.parent))
os.environ.setdefault("LIBZERO_LIBRARY", os.path.join(os.environ.get("LIBZERO_BUILD_ROOT", ""), "src/libzero.so"))
os.environ.setdefault("LIBZERO_PROGRAM", os.path.join(os.environ.get("LIBZERO_BUILD_ROOT", ""), "src/cli/zero"))

import torch_help  # noqa: E402
from peer_runs import run_ranks  # noqa: E402


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    stages = (sys.argv[2] if len(sys.argv) > 2 else "2,3").split(",")
    os.makedirs(torch_help.WORK, exist_ok=True)
    python, folder = torch_help.package()
    os.environ["PYTHONPATH"] = str(folder)
    rows = {}
    for _ in range(rounds):
        for mode in [who + stage for stage in stages for who in ("lz", "ds")]:
            row = run_ranks(str(python), "../startup_peer.py", mode, time_limit_s=300)
            if row:
                rows.setdefault(mode, []).append(row)
                print("%s: %s load %.1f" % (mode, row, os.getloadavg()[0]), file=sys.stderr, flush=True)
    for stage in stages:
        ours, theirs = rows.get("lz" + stage), rows.get("ds" + stage)
        if not ours:
            continue
        middle = lambda those, key: statistics.median(row[key] for row in those) if those else None  # noqa: E731
        value, baseline = middle(ours, "initialize_s"), middle(theirs, "initialize_s")
        print(json.dumps({"name": "startup_stage" + stage, "value": value, "unit": "s", "baseline": baseline,
                          "ratio": round(baseline / value, 2) if baseline else None, "goal": 1.0,
                          "first_step": middle(ours, "start_s"), "baseline_first_step": middle(theirs, "start_s"),
                          "cpu": middle(ours, "cpu_s"), "baseline_cpu": middle(theirs, "cpu_s")}), flush=True)


if __name__ == "__main__":
    main()

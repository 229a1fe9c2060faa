#!/usr/bin/env python3
"""How long `zero plan` takes, and what it holds, for 10^12 parameters in 10^5 tensors on 4,096
ranks: reading the list, four plans, the table.  One JSON object a line; baseline is the goal.

    plan_command.py ZERO
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "model.tsv")
        with open(model, "w", encoding="utf-8") as file:
            file.write("name\tshape\tdtype\tunit\n")
            for i in range(100000):
                file.write("model.layers.%d.weight.%d\t10000x1000\tfp32\t%d\n" % (i // 10, i,
                                                                                  i // 10))
        command = [sys.argv[1], "plan", "--model", model, "--config",
                   ROOT / "examples/configs/zero2_config_accelerate.json", "--world", "4096"]
        for _ in range(3):
            start = time.perf_counter()
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.perf_counter() - start
            if status != 0:
                return 1
            for name, value, unit, goal in (
                    ("seconds", seconds, "s", 1), ("cpu", usage.ru_utime + usage.ru_stime, "s", 1),
                    ("resident", usage.ru_maxrss * 1024 / 1e6, "MB", 500)):
                print(json.dumps({"name": "zero_plan_1e12_4096_ranks_" + name, "value": value,
                                  "unit": unit, "baseline": goal,
                                  "ratio": round(value / goal, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

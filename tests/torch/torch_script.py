#!/usr/bin/env python3
"""A DeepSpeed script with its import line changed, beside the real DeepSpeed, on two ranks of torchrun."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import shutil
import sys
import tempfile

from torch_help import HERE, TIER, WORK, Skip, expect, finish, has_deepspeed, environment, package

from harness import run_tests

LINE = "import deepspeed\n"


def script():
    """The example as a libzero user has it: one line differs."""
    text = (HERE / "torch_example.py").read_text(encoding="utf-8")
    expect(text.count(LINE) == 1)
    WORK.mkdir(parents=True, exist_ok=True)
    changed = WORK / "example_with_libzero.py"
    changed.write_text(text.replace(LINE, "import libzero.torch as deepspeed\n"), encoding="utf-8")
    return changed


def result(path, *words):
    python, kept = environment()
    text = finish([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", path, *words], kept, 280)
    return json.loads(next(line for line in text.splitlines() if line.startswith("RESULT "))[7:])


def compare(*words):
    if not has_deepspeed():
        raise Skip("DeepSpeed: skipped, this Python has none")
    mine, theirs = result(script(), *words), result(HERE / "torch_example.py", *words)
    expect(len(mine["losses"]) == len(theirs["losses"]) == 2 * mine["batches"] >= 40, mine, theirs)
    expect(max(abs(a - b) for a, b in zip(mine["losses"], theirs["losses"])) < 1e-4, mine["losses"], theirs["losses"])
    expect(mine["losses"][-1] < mine["losses"][0], mine["losses"])
    for a, b in zip(mine["norms"], theirs["norms"]):
        expect(b is None or abs(a - b) < 1e-3 * abs(b), mine["norms"], theirs["norms"])
    for key in ("steps", "samples", "groups", "batches"):
        expect(mine[key] == theirs[key], key, mine, theirs)
    expect(all(abs(a - b) < 1e-12 for a, b in zip(mine["lr"], theirs["lr"])), mine["lr"], theirs["lr"])


def test_a_script_with_only_its_import_changed_has_deepspeeds_losses_at_stage_2():
    compare("--stage=2")


def test_a_script_with_only_its_import_changed_has_deepspeeds_losses_at_stage_3():
    compare("--stage=3", "--client")


def test_a_script_with_only_its_import_changed_has_deepspeeds_losses_at_the_other_stages():
    if TIER != "full":
        raise Skip("the other stages: skipped, for the full tier")
    for words in (["--stage=0"], ["--stage=1"], ["--stage=1", "--client"], ["--stage=0", "--client"]):
        compare(*words)


def test_the_changed_script_saves_and_loads_at_every_stage():
    if TIER != "full":
        raise Skip("saving in the script: skipped, for the full tier (the engine's cases save too)")
    found = []
    for stage in range(4):
        folder = tempfile.mkdtemp(dir=WORK)
        found.append(result(script(), "--stage=%d" % stage, "--epochs=1", "--save=" + folder)["losses"])
        shutil.rmtree(folder)
    expect(all(abs(a - b) < 1e-5 for one in found for a, b in zip(one, found[0])), *found)


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    sys.exit(run_tests(sys.modules[__name__]))

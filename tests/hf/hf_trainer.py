#!/usr/bin/env python3
"""The HF Trainer, unmodified, on libzero: a small Llama trains as under DeepSpeed, resume included."""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import sys
import tempfile

import hf_help
from hf_help import HERE, STAGES, Skip, TIER, config, expect, has_deepspeed, languages, near, package, result, start

from harness import run_tests

SCRIPT = HERE / "trainer_script.py"
STEPS = 6


def weights(folder):
    """name: values, of what save_model wrote."""
    python, _ = package()
    text = languages.must([python, "-c", "import sys, json; from safetensors.torch import load_file; print(json.dumps({n: "
                           "v.double().flatten().tolist() for n, v in load_file(sys.argv[1]).items()}))",
                           pathlib.Path(folder) / "final/model.safetensors"])
    return hf_help.json.loads(text.strip().splitlines()[-1])


@languages.once
def kept():
    return tempfile.TemporaryDirectory()


_runs = {}


def whole_run(who, stage):
    """(folder, losses and norms) of six steps that save at the third."""
    if (who, stage) not in _runs:
        folder = pathlib.Path(kept().name) / ("%s-%d" % (who, stage))
        folder.mkdir()
        start(who, SCRIPT, folder, "--steps", STEPS, "--evaluate", config_file=config(kept().name, stage))
        _runs[who, stage] = folder, result(folder)
    return _runs[who, stage]


def history(row):
    return [(one["loss"], one["grad_norm"], one["learning_rate"]) for one in row["history"]]


def alike(one, other, within=1e-4):
    first, second = history(one), history(other)
    expect(len(first) == len(second), first, second)
    for number, (mine, theirs) in enumerate(zip(first, second)):
        for what, a, b in zip(("loss", "norm", "rate"), mine, theirs):
            near(a, b, within, "step %d, %s" % (number + 1, what))
    for a, b in zip(one["evaluations"], other["evaluations"]):
        near(a, b, within, "evaluation")


def alike_weights(one, other, within=1e-4):
    mine, theirs = weights(one), weights(other)
    expect(set(mine) == set(theirs), set(mine) ^ set(theirs))
    for name in mine:
        size = sum(v * v for v in theirs[name]) ** 0.5
        error = sum((a - b) ** 2 for a, b in zip(mine[name], theirs[name])) ** 0.5
        expect(len(mine[name]) == len(theirs[name]) and error <= within * max(size, 1e-6), name, error, size)


def test_losses_norms_and_saved_weights_are_the_same_bits_at_every_stage():
    rows = {stage: whole_run("libzero", stage) for stage in STAGES}
    for stage, (folder, row) in rows.items():
        expect(row["model"].startswith("libzero."), row["model"])
        expect(history(row) == history(rows[2][1]), stage, row, rows[2][1])
        expect(weights(folder) == weights(rows[2][0]), "saved weights of stage %d" % stage)


def test_losses_norms_and_saved_weights_are_deepspeeds():
    if TIER != "full":
        raise Skip("hf: DeepSpeed's own losses belong to the full tier")
    if not has_deepspeed():
        raise Skip("hf: skipped, without deepspeed there is nothing to compare with")
    for stage in (1, 2, 3):
        theirs, ours = whole_run("deepspeed", stage), whole_run("libzero", stage)
        expect(theirs[1]["model"].startswith("deepspeed."), theirs[1]["model"])
        alike(ours[1], theirs[1])
        alike_weights(ours[0], theirs[0])


def test_a_run_that_resumes_ends_where_the_whole_one_does():
    if TIER != "full":
        raise Skip("hf: the Trainer's resuming belongs to the full tier")
    for stage in STAGES:
        folder, row = whole_run("libzero", stage)
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            # The first half as it was saved; the second from it.
            hf_help.shutil.copytree(folder / "checkpoint-3", place / "checkpoint-3")
            start("libzero", SCRIPT, place, "--steps", STEPS, "--evaluate", "--resume", config_file=config(place, stage))
            resumed = result(place)
            expect(history(resumed) == history(row), resumed, row)
            expect(weights(place) == weights(folder), "weights after resuming at stage %d" % stage)


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    sys.exit(run_tests(sys.modules[__name__]))

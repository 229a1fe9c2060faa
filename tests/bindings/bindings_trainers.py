#!/usr/bin/env python3
"""A character model in each language, on two ranks: it learns, its stages have the same bits, and the C
program gets the same bits from the weights and gradients that it recorded."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import re
import shutil
import sys

from languages import (BINDINGS, BUILD, PROGRAM, PYTHON, SOURCE, TIER, WORK, expect, julia, julia_environment, must,
                       once, python_package, run, run_cargo)

from harness import Skip, run_tests  # noqa: E402

TEXT = SOURCE / "include/zero.h"
REPLAY = BUILD / "tests/bindings/bindings_replay"
if not REPLAY.exists():
    REPLAY = BUILD / "bindings_replay"


def config(stage):
    """The one JSON file, with its stage replaced."""
    made = json.loads((BINDINGS / "examples/char_mlp.json").read_text())
    made["zero_optimization"]["stage"] = stage
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / ("char_mlp_%d.json" % stage)
    path.write_text(json.dumps(made))
    return path


@once
def rust_trainer():
    code, said = run_cargo("build", "--offline", "-p", "libzero", "--example", "char_mlp")
    expect(code == 0, said)
    return [WORK / "rust/debug/examples/char_mlp"], {}


def python_trainer():
    return [PYTHON, BINDINGS / "python/examples/char_mlp.py"], {"PYTHONPATH": str(python_package())}


def julia_trainer():
    return [*julia(), BINDINGS / "julia/LibZero/examples/char_mlp.jl"], julia_environment()


def train(trainer, name, stage):
    """Trains and replays; the folder with what was recorded."""
    command, more = trainer()
    folder = WORK / ("recorded_%s_%d" % (name, stage))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    said = must([PROGRAM, "run", "-n", 2, "--", *command, config(stage), TEXT], LIBZERO_RECORD=str(folder), **more)
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", said)]
    expect(len(losses) == 4 and abs(losses[0] - 4.87) < 0.05 and losses[-1] < 3.0, said)
    said = must([PROGRAM, "run", "-n", 2, "--", REPLAY, config(stage), folder])
    expect("60 steps, the same bits" in said, said)
    return folder


def at_stages(trainer, name, *quick):
    folders = [train(trainer, name, stage) for stage in (range(4) if TIER == "full" else quick)]
    finals = {(folder / "final.bin").read_bytes() for folder in folders}
    expect(len(finals) == 1, "stages differ")
    return folders[-1]


def test_python_trains_as_c_does():
    at_stages(python_trainer, "python", 1, 3)


def test_rust_trains_as_c_does():
    at_stages(rust_trainer, "rust", 2, 3)


def test_julia_trains_as_c_does():
    at_stages(julia_trainer, "julia", 2)


def test_all_languages_start_from_the_same_weights():
    folders = [WORK / ("recorded_%s_%d" % pair) for pair in (("python", 3), ("rust", 3), ("julia", 2))]
    found = {(folder / "initial.bin").read_bytes() for folder in folders if (folder / "initial.bin").exists()}
    expect(len(found) <= 1, "they differ")


PYTHON_LOADS = """
import sys, numpy as np, libzero
sys.path.insert(0, sys.argv[1])
from char_mlp import SHAPES
model = libzero.Model()
for name, shape in SHAPES.items():
    model.add(name, shape=shape)
with libzero.Runtime(sys.argv[2], model) as runtime:
    runtime.load(sys.argv[3])
    loaded = b"".join(runtime.get(name).tobytes() for name in SHAPES)
    assert runtime.step_count == 60
    runtime.put("who", b"python")
    runtime.save(sys.argv[4])
    assert libzero.Checkpoint(sys.argv[4]).get(runtime.rank, "who") == b"python"
    print("loaded", loaded == open(sys.argv[5], "rb").read())
"""


def test_languages_read_each_others_checkpoints():
    folder = train(python_trainer, "python", 2)
    saved, again = folder / "by_c", folder / "by_python"
    code, said = run([PROGRAM, "run", "-n", 2, "--", REPLAY, config(2), folder, saved])
    if code != 0 and "UNSUPPORTED" in said:
        raise Skip("checkpoints are not in this build")
    expect(code == 0, said)
    # One rank at stage 3 loads what two ranks of C at stage 2 saved, and saves it again.
    said = must([PROGRAM, "run", "-n", 1, "--", PYTHON, "-c", PYTHON_LOADS, BINDINGS / "python/examples", config(3), saved,
                 again, folder / "final.bin"], PYTHONPATH=str(python_package()))
    expect("loaded True" in said, said)
    lists = {must([PYTHON, BINDINGS / "python/examples/list_checkpoint.py", path], PYTHONPATH=str(python_package()))
             for path in (saved, again)}
    expect(len(lists) == 1 and len(next(iter(lists)).splitlines()) == 6, lists)
    for language, command, more in checkpoint_readers():
        for path in (saved, again):
            expect(must([*command, path], **more) in lists, language, lists)


def checkpoint_readers():
    found = []
    try:
        code, said = run_cargo("build", "--offline", "-p", "libzero", "--example", "list_checkpoint")
        expect(code == 0, said)
        found.append(("Rust", [WORK / "rust/debug/examples/list_checkpoint"], {}))
    except Skip as reason:
        print(reason)
    try:
        found.append(("Julia", [*julia(), BINDINGS / "julia/LibZero/examples/list_checkpoint.jl"], julia_environment()))
    except Skip as reason:
        print(reason)
    return found


def test_a_replay_of_other_gradients_is_noticed():
    folder = train(python_trainer, "python", 2)
    data = bytearray((folder / "gradients-1.bin").read_bytes())
    data[4 * 7000 + 2] ^= 64  # of w2, where no gradient is zero
    (folder / "gradients-1.bin").write_bytes(bytes(data))
    try:
        must([PROGRAM, "run", "-n", 2, "--", REPLAY, config(2), folder])
    except AssertionError as error:
        expect("differs" in str(error), error)
        return
    raise AssertionError("nothing was noticed")


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

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
RESUME = REPLAY.parent / "bindings_resume"


def config(stage, **more):
    """The one JSON file, with its stage replaced."""
    made = json.loads((BINDINGS / "examples/char_mlp.json").read_text())
    made["zero_optimization"]["stage"] = stage
    made.update(more)
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / ("char_mlp_%d%s.json" % (stage, "_".join(more)))
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


def julia_trainer_with_loans():
    return [*julia(), BINDINGS / "julia/LibZero/examples/char_mlp_loans.jl"], julia_environment()


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


def test_julia_trains_as_c_does_with_loans_at_stage_3():
    loans = at_stages(julia_trainer_with_loans, "julia_loans", 3)
    whole = WORK / "recorded_julia_2"
    if whole.exists():
        expect((loans / "final.bin").read_bytes() == (whole / "final.bin").read_bytes(), "whole and by layers differ")


def test_all_languages_start_from_the_same_weights():
    folders = [WORK / ("recorded_%s_%d" % pair) for pair in (("python", 3), ("rust", 3), ("julia", 2))]
    found = {(folder / "initial.bin").read_bytes() for folder in folders if (folder / "initial.bin").exists()}
    expect(len(found) <= 1, "they differ")


def python_resumes():
    return [PYTHON, SOURCE / "tests/bindings/resume.py"], {"PYTHONPATH": str(python_package())}


def julia_resumes():
    return [*julia(), SOURCE / "tests/bindings/resume.jl"], julia_environment()


@once
def rust_resumes():
    example = WORK / "rust-tree/libzero/examples/resume.rs"
    example.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOURCE / "tests/bindings/resume.rs", example)
    code, said = run_cargo("build", "--offline", "-p", "libzero", "--example", "resume")
    expect(code == 0, said)
    return [WORK / "rust/debug/examples/resume"], {}


# A language, the ranks and the stage at which it loads and saves.
RESUMERS = {"C": (lambda: ([RESUME], {}), 2, 0), "Python": (python_resumes, 1, 3), "Julia": (julia_resumes, 2, 1),
            "Rust": (rust_resumes, 2, 3)}


def available():
    found = {}
    for language, (make, ranks, stage) in RESUMERS.items():
        try:
            command, more = make()
            found[language] = [PROGRAM, "run", "-n", ranks, "--", *command,
                               config(stage, libzero={"open_buckets": "all"})], more  # no loan orders its gradients
        except Skip as reason:
            print(reason)
    return found


def test_languages_read_each_others_checkpoints():  # R135
    """Each loads what each other saved, into a runtime of another stage and number of ranks, holds the
    same master and moments, and takes the same next step."""
    folder = train(python_trainer, "python", 2)
    saved, heard = {"trained": folder / "saved"}, {}
    must([PROGRAM, "run", "-n", 2, "--", REPLAY, config(2), folder, saved["trained"]])
    languages, read = available(), set()
    for again in ("", " again"):  # the second time everybody reads what came after them
        for language, (command, more) in languages.items():
            wanted = [name for name in saved if (language, name) not in read and not name.startswith(language)]
            if not wanted:
                continue
            out = folder / ("by_" + language + again)
            said = must([*command, out, *(saved[name] for name in wanted)], **more).splitlines()
            # Julia's log goes to stderr with a prefix of its own; what is compared is said by rank 0.
            lines = [line.split("] ", 1)[-1] for line in said]
            lines = [line for line in lines if re.match(r"(step|then|embed|w1|b1|w2|b2) [\w ]+$", line)]
            expect(len(lines) == 11 * len(wanted), language, said)
            for number, name in enumerate(wanted):
                heard[language, name] = lines[11 * number:11 * (number + 1)]
            read.update((language, name) for name in wanted)
            saved.setdefault(language, out)
    expect(all((reader, writer) in read for reader in languages for writer in languages if reader != writer), read)
    expect(len(languages) >= 2 and len({tuple(lines) for lines in heard.values()}) == 1, heard)
    expect(heard["C", "trained"][0] == "step 60", heard["C", "trained"])
    lists = {must([PYTHON, BINDINGS / "python/examples/list_checkpoint.py", saved["Python"]],
                  PYTHONPATH=str(python_package()))}
    for language, command, more in checkpoint_readers():
        for path in saved.values():
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

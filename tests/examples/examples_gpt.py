#!/usr/bin/env python3
"""The real trainer: right gradients, one program for every stage and number of ranks."""
# SPDX-License-Identifier: BSD-3-Clause
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from harness import expect, run_tests  # noqa: E402
from trainer import BUILD, GPT, SOURCE, TEXT, config, run, train  # noqa: E402


def test_the_backward_pass_agrees_with_finite_differences():
    for kind in ("float", "double"):
        code, text, said = run([BUILD / ("examples/gpt/gpt_check_" + kind)])
        expect(code == 0 and text.endswith(kind + ": right\n"), text, said)
        expect(len(re.findall(r"^transformer\.", text, re.M)) == 2 + 2 * 12 + 2, text)


def test_every_stage_leaves_the_same_weights_at_1_2_and_3_ranks():
    for ranks in (1, 2, 3):
        rows = [train(config(stage), ranks) for stage in range(4)]
        expect([row["stage"] for row in rows] == [0, 1, 2, 3])
        expect({row["ranks"] for row in rows} == {ranks}, rows)
        expect(len({row["weights"] for row in rows}) == 1, ranks, [r["weights"] for r in rows])
        for what in ("loss", "validation_loss"):
            expect(len({row[what] for row in rows}) == 1, ranks, [row[what] for row in rows])
        expect(train(config(0), ranks, steps=11)["weights"] != rows[0]["weights"])


def test_the_weights_are_also_equal_with_micro_batches_and_another_seed():
    # Stages 0 and 1 add micro-batches before they reduce, 2 and 3 after.
    settings = {"gradient_accumulation_steps": 3, "train_micro_batch_size_per_gpu": 2}
    rows = [train(config(stage, **settings), 2, seed=7) for stage in range(4)]
    expect(rows[0]["weights"] == rows[1]["weights"], rows)
    expect(rows[2]["weights"] == rows[3]["weights"], rows)
    settings["libzero"] = {"reproducible": "stage"}
    rows = [train(config(stage, **settings), 2, seed=7) for stage in range(4)]
    expect(len({row["weights"] for row in rows}) == 1, [row["weights"] for row in rows])
    expect(train(config(0, **settings), 2, seed=8)["weights"] != rows[0]["weights"])


def test_it_learns():
    row = train(config(3), 2, steps=120)
    # Below the entropy of single bytes of this text: it has learnt what follows what.
    text = TEXT.read_bytes()
    shares = [text.count(byte) / len(text) for byte in set(text)]
    entropy = -sum(share * math.log(share) for share in shares)
    expect(row["loss"] < entropy and row["validation_loss"] < entropy + 0.3, entropy, row)
    lines = re.findall(r"step +\d+/120  loss ([\d.]+)  lr \S+  norm \S+  \d+ tokens/s  \d+ s left",
                       row["text"])
    expect(len(lines) >= 20 and float(lines[0]) > 5 > float(lines[-1]), row["text"])
    expect(len(re.findall("validation loss", row["text"])) >= 4, row["text"])


def test_the_global_batch_decides_not_the_number_of_ranks():
    one = train(config(0, train_micro_batch_size_per_gpu=6), 1)
    three = train(config(2, train_micro_batch_size_per_gpu=2), 3)
    # The same windows are seen; sums of floats differ in their last bits.
    expect(abs(one["loss"] - three["loss"]) < 1e-4, one["loss"], three["loss"])


def test_the_last_line_is_the_hash_and_rank_0_alone_prints():
    row = train(config(1), 2)
    lines = row["text"].splitlines()
    expect(re.fullmatch(r"(\[0\] )?weights [0-9a-f]{16}", lines[-1]), lines[-1])
    expect(lines[-1].endswith(row["weights"]), lines[-1], row["weights"])
    expect(row["text"].count("weights ") == 1, row["text"])


def test_planned_bytes_are_those_measured():
    for stage in range(4):
        row = train(config(stage), 2, steps=3)
        for use in ("params", "grads", "optimizer", "gathered", "buckets"):
            expect(row["planned"][use] == row["measured"][use], stage, use, row)
        expect(row["measured_bytes"] <= row["planned_bytes"], row)


def test_what_it_cannot_use_it_refuses_in_a_sentence():
    good = SOURCE / "examples/configs/gpt_stage0.json"
    cases = [
        (["--config", good, "--size", "huge", "--data", TEXT], "huge"),
        (["--config", good, "--steps", "none", "--data", TEXT], "none"),
        (["--config", good, "--size", "tiny", "--window", "33", "--data", TEXT], "33"),
        (["--config", good, "--data", "/nowhere/book.txt"], "/nowhere/book.txt"),
        (["--config", good, "--data", "/dev/null"], "too short"),
        (["--config", "/nowhere/config.json", "--data", TEXT], "/nowhere/config.json"),
        (["--data", TEXT], "--config FILE"),
        (["--colour", "red"], "--colour"),
    ]
    for words, named in cases:
        code, text, said = run([GPT] + words)
        expect(code in (1, 2) and named in said and not text, words, code, text, said)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

#!/usr/bin/env python3
"""The two DeepSpeed files of the article train examples/gpt: holes, loss scale, skipped steps."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from harness import expect, run_tests  # noqa: E402
from trainer import SOURCE, train  # noqa: E402

STAGE_2 = SOURCE / "examples/configs/zero2_config_accelerate.json"
STAGE_3 = SOURCE / "examples/configs/zero3_offload_config_accelerate.json"


def article(file, **more):
    """The file as a dictionary; a section given in more is merged into the file's."""
    settings = json.loads(file.read_text(encoding="utf-8"))
    for key, value in more.items():
        settings[key] = dict(settings.get(key, {}), **value) if isinstance(value, dict) else value
    return settings


def progress(row):
    """(loss, learning rate) of each progress line."""
    lines = re.findall(r"step +\d+/\d+  loss (\S+)  lr (\S+)  norm", row["text"])
    return [(float(loss), float(rate)) for loss, rate in lines]


def test_the_two_files_train_unchanged_on_2_ranks():
    for file, stage in ((STAGE_2, 2), (STAGE_3, 3)):
        rows = [train(file, 2, steps=60) for _ in range(2)]
        for row in rows:
            losses = [loss for loss, _ in progress(row)]
            expect(row["stage"] == stage and row["ranks"] == 2 and len(losses) >= 20, row["text"])
            expect(all(math.isfinite(loss) for loss in losses), losses)
            # Unscaled: an untrained model knows nothing of 256 bytes.
            expect(abs(losses[0] - math.log(256)) < 0.5 and losses[-1] < losses[0] - 1, losses)
            last = row["text"].splitlines()[-1]
            expect(re.fullmatch(r"(\[0\] )?weights [0-9a-f]{16}", last), last)
        expect(rows[0]["weights"] == rows[1]["weights"], rows)


def test_five_steps_are_enough_for_a_warm_up():
    for file in (STAGE_2, STAGE_3):
        rates = [rate for _, rate in progress(train(file, 2, steps=5))]
        expect(len(rates) == 5 and max(rates) > 0, rates)


def test_the_loss_scale_leaves_no_trace_in_weights_at_any_stage():
    # A power of two is exact; gradients this size are far from the ends of fp32.
    plain = train(article(STAGE_2, fp16={"enabled": False}), 2)
    others = [article(STAGE_2, zero_optimization={"stage": stage}) for stage in range(4)]
    others += [STAGE_3, article(STAGE_2, fp16={"initial_scale_power": 4})]
    for settings in others:
        row = train(settings, 2)
        for what in ("weights", "loss", "validation_loss"):
            expect(row[what] == plain[what], settings, what, row[what], plain[what])


def test_skipped_steps_are_printed_and_are_no_failure():
    # The scale doubles after five good updates: soon the gradients leave fp32, again and again.
    fp16 = {"initial_scale_power": 127, "hysteresis": 1, "loss_scale_window": 5}
    row = train(article(STAGE_3, fp16=fp16), 2, steps=40)
    skipped = re.findall(r"step +(\d+) skipped: .* at loss scale (\S+), next (\S+)", row["text"])
    expect(2 <= len(skipped) < 10 and int(skipped[0][0]) > 4, row["text"])
    for _, scale, after in skipped:
        expect(abs(float(after) / float(scale) - 0.5) < 1e-4, skipped)
    losses = [loss for loss, _ in progress(row)]
    expect(all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0], losses)


def test_values_that_the_file_has_stand():
    row = train(article(STAGE_2, optimizer={"params": {"lr": 0.0125, "weight_decay": "auto"}}), 2)
    expect(max(rate for _, rate in progress(row)) == 0.0125, row["text"])
    for batch, said in (
            ({"train_batch_size": 12}, "1 x 6 x 32"),
            ({"train_batch_size": 12, "gradient_accumulation_steps": 2}, "2 x 3 x 32"),
            ({"train_batch_size": 12, "gradient_accumulation_steps": "auto"}, "1 x 6 x 32"),
            ({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2,
              "gradient_accumulation_steps": "auto"}, "3 x 2 x 32"),
            ({"train_micro_batch_size_per_gpu": 5}, "1 x 5 x 32"),
            ({"gradient_accumulation_steps": 3}, "3 x 8 x 32")):
        row = train(article(STAGE_2, **batch), 2, steps=2)
        expect(" %s tokens a rank and step" % said in row["text"], batch, row["text"])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

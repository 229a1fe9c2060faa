#!/usr/bin/env python3
"""The largest batch that trains under a budget, found by running and compared with `zero plan`.

    batch_max.py --program zero --gpt gpt [--json FILE] [--svg FILE] [--size wide]
                 [--windows 8,16,32,64] [--seeds 3] [--samples 2400] [--data FILE]

Two ranks; the budget is what 24 GB are to the article's DeBERTa, in bytes a parameter. A window's
length sets how many bytes of activations a sample has for each byte of the model. Exit code 1 where
plan and run disagree at any size that was tried.
"""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import batch_max_chart  # noqa: E402

RANKS = 2
DOES_NOT_FIT = 3  # the trainer's exit code
BYTES_A_PARAMETER = 24e9 / 884593152  # deberta-v2-xlarge on the article's cards
PLAIN_VALUES = 5  # fp32 a parameter: itself, gradient, two moments, its place in a bucket
# The trainer has a second parameter group, which a list of parameters cannot say.
GROUP_BYTES = 256
MODES = ("plain", 0, 1, 2, 3)
LARGEST = 1 << 14
DEBERTA = 0  # index of the window whose ratio is nearest to deberta's, in the default sweep


def name_of(mode):
    return "plain data parallel" if mode == "plain" else "stage %d" % mode


class Miniature:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = pathlib.Path(folder)
        self.data = arguments.data or self.book()
        self.parameters = self.describe(8)["parameters"]
        self.budget = int(BYTES_A_PARAMETER * self.parameters)

    def book(self):
        path = self.folder / "book"
        with open(path, "wb") as file:
            subprocess.run(["bible", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, stdout=file,
                           check=True)
        return path

    def describe(self, window):
        done = subprocess.run([self.arguments.gpt, "--list", self.folder / "model.tsv", "--size",
                               self.arguments.size, "--window", str(window)], check=True,
                              stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def config(self, mode, batch):
        path = self.folder / "ds.json"
        path.write_text(json.dumps({
            "train_micro_batch_size_per_gpu": batch, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.99],
                                                      "eps": 1e-8, "weight_decay": 0.01}},
            # Sizes for a model of this size: DeepSpeed's defaults are for billions.
            "zero_optimization": {"stage": 0 if mode == "plain" else mode,
                                  "reduce_bucket_size": 100000, "stage3_prefetch_bucket_size": 0,
                                  "stage3_param_persistence_threshold": 1000},
            "libzero": {"memory_budget": self.budget, "open_buckets": 3}}))
        return path

    def run(self, mode, window, batch, steps, seed=1, validate=1):
        """The trainer's result, None where it does not fit."""
        row = self.folder / "row.json"
        words = [self.arguments.program, "run", "-n", RANKS, "--", self.arguments.gpt, "--config",
                 self.config(mode, batch), "--size", self.arguments.size, "--window", window,
                 "--steps", steps, "--seed", seed, "--sample", 0, "--validate", validate,
                 "--data", self.data, "--json", row,
                 "--parallel", "plain" if mode == "plain" else "zero"]
        done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode == DOES_NOT_FIT:
            return None
        if done.returncode != 0:
            sys.exit("%s, batch %d: exit code %d\n%s%s" % (name_of(mode), batch, done.returncode,
                                                           done.stdout, done.stderr))
        return json.loads(row.read_text(encoding="utf-8"))

    def predicted(self, window):
        """Largest batch and bytes of model states by mode, before anything has run."""
        described = self.describe(window)
        sample, fixed = described["sample_bytes"], described["fixed_bytes"]
        words = [self.arguments.program, "plan", "--json", "--model", self.folder / "model.tsv",
                 "--config", self.config(0, 1), "--world", RANKS, "--on-host", "--host-memory",
                 RANKS * self.budget, "--reserve", fixed + GROUP_BYTES,
                 "--activation-bytes-per-sample", sample]
        done = subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True)
        states = {"plain": 4 * PLAIN_VALUES * self.parameters}
        batches = {"plain": max(0, (self.budget - states["plain"] - fixed) // sample)}
        for row in json.loads(done.stdout)["rows"]:
            states[row["stage"]] = row["device"]["total"] + GROUP_BYTES
            batches[row["stage"]] = row["largest_micro_batch"]
        return sample, states, batches


def search(mini, mode, window, predicted, disagreements):
    """Doubles until it fails, then halves the gap; every size tried is one run."""
    tried = {}

    def trains(batch):
        tried[batch] = mini.run(mode, window, batch, steps=1) is not None
        if tried[batch] != (batch <= predicted):
            disagreements.append("%s, window %d, batch %d: planned %s, ran %s" % (
                name_of(mode), window, batch, batch <= predicted, tried[batch]))
        return tried[batch]

    good, bad = 0, 1
    while bad <= LARGEST and trains(bad):
        good, bad = bad, 2 * bad
    while bad - good > 1:
        middle = (good + bad) // 2
        if trains(middle):
            good = middle
        else:
            bad = middle
    return good, sorted(tried)


def speeds(mini, window, largest, rounds, disagreements, states):
    """Samples a second at each mode's largest batch; rounds in turn, since machines drift."""
    seen = {mode: [] for mode in largest if largest[mode] > 0}
    for _ in range(rounds):
        for mode in seen:
            row = mini.run(mode, window, largest[mode], steps=mini.arguments.steps)
            seen[mode].append(RANKS * largest[mode] / row["step_seconds"])
            held = row["planned_bytes"] if mode != "plain" else states["plain"]
            if held != states[mode]:
                disagreements.append("%s: %d bytes planned, %d held" % (name_of(mode), states[mode],
                                                                        held))
    return {mode: statistics.median(values) for mode, values in seen.items()}


def losses(mini, window, largest, seeds, samples):
    """Validation loss after the same samples, at the same rate."""
    chosen = [("plain", largest["plain"]), (2, largest["plain"]), (2, largest[2])]
    rows = []
    for mode, batch in chosen:
        steps = math.ceil(samples / (RANKS * batch))
        values = [mini.run(mode, window, batch, steps, seed, validate=64)["validation_loss"]
                  for seed in range(1, seeds + 1)]
        rows.append({"mode": str(mode), "batch": batch, "steps": steps, "losses": values})
        print("%-20s batch %3d, %4d steps: validation loss %s" % (
            name_of(mode), batch, steps, ", ".join("%.4f" % value for value in values)), flush=True)
    return rows


def study_window(mini, window, disagreements):
    sample, states, predicted = mini.predicted(window)
    ratio = sample / (4 * mini.parameters)
    print("\n%d tokens: %.3f MB a sample, %.4f of the model's bytes" % (window, sample / 1e6,
                                                                        ratio))
    print("                     states MB   planned   ran   tried")
    largest, tried = {}, {}
    for mode in MODES:
        largest[mode], tried[mode] = search(mini, mode, window, predicted[mode], disagreements)
        print("%-20s %9.1f %9d %5d   %s" % (
            name_of(mode), states[mode] / 1e6, predicted[mode], largest[mode],
            " ".join(map(str, tried[mode]))), flush=True)
    fast = speeds(mini, window, largest, mini.arguments.rounds, disagreements, states)
    for mode, rate in fast.items():
        print("%-20s %9.1f samples/s" % (name_of(mode), rate))
    return {"window": window, "ratio": ratio, "sample_bytes": sample,
            "modes": [{"mode": str(mode), "states": states[mode], "planned": predicted[mode],
                       "largest": largest[mode], "tried": tried[mode],
                       "samples_per_second": fast.get(mode)} for mode in MODES]}


def print_table(study):
    print("\n| activations a sample / model | | plain | stage 0 | 1 | 2 | 3 | 2 against plain |")
    print("|---|---|---|---|---|---|---|---|")
    for sweep in study["sweeps"]:
        batches = [mode["largest"] for mode in sweep["modes"]]
        rates = [mode["samples_per_second"] for mode in sweep["modes"]]
        print("| %.3f | largest batch | %s | %.2f |" % (
            sweep["ratio"], " | ".join(map(str, batches)), batches[3] / max(batches[0], 1)))
        if None not in rates:
            print("| | samples/s | %s | %.2f |" % (
                " | ".join("%.0f" % rate for rate in rates), rates[3] / rates[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--gpt", required=True)
    parser.add_argument("--size", default="wide")
    parser.add_argument("--windows", default="8,16,32,64")
    parser.add_argument("--steps", type=int, default=6, help="of a timed run")
    parser.add_argument("--rounds", type=int, default=3, help="of timed runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2400)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    arguments = parser.parse_args()
    windows = [int(word) for word in arguments.windows.split(",")]
    if any(window % 8 for window in windows):
        parser.error("windows are multiples of 8 tokens")  # so that bytes grow evenly with rows

    disagreements = []
    with tempfile.TemporaryDirectory() as folder:
        mini = Miniature(arguments, folder)
        print("%d parameters, %d ranks, %.1f MB a rank" % (mini.parameters, RANKS,
                                                           mini.budget / 1e6))
        study = {"parameters": mini.parameters, "budget": mini.budget,
                 "sweeps": [study_window(mini, window, disagreements) for window in windows]}
        if arguments.seeds > 0:
            at = study["sweeps"][min(DEBERTA, len(windows) - 1)]
            largest = {"plain": at["modes"][0]["largest"], 2: at["modes"][3]["largest"]}
            study["losses"] = losses(mini, at["window"], largest, arguments.seeds,
                                     arguments.samples)
    study["sizes_tried"] = sum(len(mode["tried"]) for sweep in study["sweeps"]
                               for mode in sweep["modes"])
    study["disagreements"] = disagreements
    print_table(study)
    print("\nplan and run %s at %d sizes" % ("disagree" if disagreements else "agree",
                                             study["sizes_tried"]))
    for line in disagreements:
        print(line)
    if arguments.json:
        arguments.json.write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    if arguments.svg:
        arguments.svg.write_text(batch_max_chart.svg(study), encoding="utf-8")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The three tables of the article "Accelerate Large Model Training using DeepSpeed", predicted.

    examples/article_tables.py [--models FOLDER] [--program zero] [--json]

The three models' lists are in FOLDER (default: examples/models). Model states of
ZeRO and the activations come from `zero plan`; those of plain data parallelism, and every number
that is assumed, from docs/article-assumptions.json (docs/article-assumptions.md says why).
"""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ASSUMED = json.loads((ROOT / "docs/article-assumptions.json").read_text(encoding="utf-8"))
RANKS = ASSUMED["ranks"]
ENDS = ("heavy", "light")  # the band's lower edge first

# The article's rows: the batch a GPU with plain data parallelism (0: out of memory) and with ZeRO.
PUBLISHED = {
    "deberta-v2-xlarge": (8, 40, "zero2_config_accelerate.json", 2, "-"),
    "blenderbot-400m-distill": (100, 200, "zero2_config_accelerate.json", 2, "-"),
    "gpt2-xl-1.5b": (0, 16, "zero3_offload_config_accelerate.json", 3, "optimizer+params"),
}


def end_of(value, end):
    return value[end] if isinstance(value, dict) else value


def zero_plan(arguments, name, config, activations):
    model = ASSUMED["models"][name]
    shape = [model[key] for key in ("hidden", "layers", "heads", "tokens", "vocabulary")]
    words = [arguments.program, "plan", "--json", "--deepspeed", "--world", RANKS,
             "--model", arguments.models / (name + ".tsv"),
             "--config", ROOT / "examples/configs" / config,
             "--transformer", ",".join(map(str, shape)), "--activations", activations]
    if "decoder_layers" in model:
        words += ["--decoder", "%d,%d" % (model["decoder_layers"], model["target"])]
    if "relative" in model:
        words += ["--relative-positions", model["relative"]]
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def embedding_matrices(arguments, name):
    """Elements of matrices that no linear layer multiplies by: they are not cast."""
    prefixes = ASSUMED["models"][name]["embeddings"]
    total = 0
    lines = (arguments.models / (name + ".tsv")).read_text(encoding="utf-8").splitlines()
    columns = lines[0].split("\t")
    for line in lines[1:]:
        row = dict(zip(columns, line.split("\t")))
        if row.get("tied_to") or row.get("kind") == "buffer" or "x" not in row["shape"]:
            continue
        if any(prefix in row["name"] for prefix in prefixes):
            total += int(row["numel"])
    return total


def room(end):
    there = ASSUMED["gpu_bytes"][end]
    return there * (1 - ASSUMED["fragmentation"][end]) - ASSUMED["context_bytes"][end]


def batch(states, sample, end):
    return max(0, int((room(end) - states) // sample))


def plain_batch(arguments, name, config, end):
    """PyTorch DDP under automatic mixed precision: both moments have to fit."""
    plan = zero_plan(arguments, name, config, "paper" if end == "light" else "autocast")
    counts, cost = plan["model"], ASSUMED["ddp_bytes"]
    whole = counts["trained"] * (cost["parameters"] + cost["gradients"] + cost["moments"]
                                 + cost["buckets"])
    cast = cost["cast_weights"] * (counts["matrices"] - embedding_matrices(arguments, name))
    stepping = (cost["step_of_largest"][end] * counts["largest_parameter"]
                + cost["step_of_all"][end] * counts["trained"])
    sample = plan["limits"]["activation_bytes_per_sample"]
    fits = whole + stepping <= room(end)
    return {"states": whole + cast, "step": whole + stepping, "sample": sample,
            "batch": batch(whole + cast, sample, end) if fits else 0}


def deepspeed_states(plan, stage, offload):
    """DeepSpeed's own estimate and, at stage 2, the buckets of the article's file."""
    states = next(one["gpu_bytes"] for one in plan["deepspeed"]
                  if (one["stage"], one["offload"]) == (stage, offload))
    buckets = 3 * 2 * 200_000_000 if stage == 2 else 0
    return states + buckets


def zero_batch(arguments, name, config, stage, offload, end):
    plan = zero_plan(arguments, name, config, "paper" if end == "light" else "eager")
    row = next(one for one in plan["rows"] if (one["stage"], one["offload"]) == (stage, offload))
    host = RANKS * row["host"]["total"]
    sample = plan["limits"]["activation_bytes_per_sample"]
    fits = host <= ASSUMED["host_bytes"]
    theirs = deepspeed_states(plan, stage, offload)
    return {"states": row["device"]["total"], "host": host, "sample": sample,
            "deepspeed_states": theirs, "deepspeed_batch": batch(theirs, sample, end),
            "batch": batch(row["device"]["total"], sample, end) if fits else 0}


def predict(arguments):
    tables = []
    for name, (plain, zero, config, stage, offload) in PUBLISHED.items():
        ends = {end: {"plain": plain_batch(arguments, name, config, end),
                      "zero": zero_batch(arguments, name, config, stage, offload, end)}
                for end in ENDS}
        tables.append({"model": name, "stage": stage, "offload": offload, "ends": ends,
                       "published": {"plain": plain, "zero": zero}})
    return tables


def band(table, side, field):
    values = [table["ends"][end][side][field] for end in ENDS]
    return "%d to %d" % tuple(values) if values[1] else "out of memory"


def gigabytes(table, side, field="states"):
    low, high = ("%.1f" % (table["ends"][end][side][field] / 1e9) for end in ENDS[::-1])
    return low if low == high else low + " to " + high


def print_tables(tables):
    print("| model | | model states, GB | MB a sample | largest batch, predicted | with "
          "DeepSpeed's estimate | published |")
    print("|---|---|---|---|---|---|---|")
    for table in tables:
        zero = "ZeRO-%d" % table["stage"] + (", CPU offload" if table["offload"] != "-" else "")
        for side, name in (("plain", "data parallel"), ("zero", zero)):
            samples = "%.0f to %.0f" % tuple(table["ends"][end][side]["sample"] / 1e6
                                             for end in ENDS[::-1])
            published = table["published"][side] or "out of memory"
            theirs = band(table, side, "deepspeed_batch") if side == "zero" else ""
            print("| %s | %s | %s | %s | %s | %s | %s |" % (
                table["model"], name, gigabytes(table, side), samples, band(table, side, "batch"),
                theirs, published))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "examples/models")
    parser.add_argument("--program", default="zero")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tables = predict(arguments)
    if arguments.json:
        print(json.dumps(tables, indent=1))
    else:
        print_tables(tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the suite needs beside torch: accelerate and transformers, and scripts started as people start them."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "torch"))
import torch_help  # noqa: E402
from torch_help import PROGRAM, SOURCE, TIER, Skip, environment, expect, has_deepspeed, languages  # noqa: E402, F401

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = SOURCE / "examples/accelerate"
STAGES = (0, 1, 2, 3) if TIER == "full" else (2, 3)


@languages.once
def package():
    python, folder = torch_help.package()
    done = subprocess.run([str(python), "-c", "import accelerate, transformers"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Skip("hf: skipped, %s has not both accelerate and transformers: %s" % (
            python, (done.stdout.strip().splitlines() or ["?"])[-1]))
    return python, folder


def config(folder, stage, **more):
    """A file with every value that Accelerate and the Trainer fill in left to them."""
    made = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                         "warmup_num_steps": "auto"}},
            "zero_optimization": {"stage": stage, "overlap_comm": False, "reduce_bucket_size": "auto",
                                  "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
                                  "stage3_gather_16bit_weights_on_model_save": True}}
    zero = more.pop("zero_optimization", {})
    made["zero_optimization"].update(zero)
    for key, value in more.items():
        made[key] = value
        if value is None:
            del made[key]
    path = pathlib.Path(folder) / ("ds_%d.json" % stage)
    path.write_text(json.dumps(made))
    return path


def start(who, script, *words, config_file=None, seconds=500, check=True, **more):
    """A script on two ranks: who is "libzero", "deepspeed" or "plain". What it said."""
    python, kept = environment()
    package()
    kept = dict(kept, PYTHONPATH="%s:%s" % (kept["PYTHONPATH"], EXAMPLES), **more)
    if config_file:
        kept.update(ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_DEEPSPEED_CONFIG_FILE=str(config_file))
    line = [str(python), str(script), *map(str, words)]
    if who == "libzero":
        command = [PROGRAM, "run", "-n", "2", "--as-deepspeed", "--", *line]
    else:
        command = [line[0], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *line[1:]]
    return torch_help.finish(command, kept, seconds, check)


def near(found, wanted, within, what):
    error = abs(found - wanted) / max(abs(wanted), 1e-6)
    expect(error <= within, "%s: %r, expected %r within %g" % (what, found, wanted, within))


def verses(folder):
    """A book for the examples: invented lines of the real one's form, so that the suite needs no package."""
    books = ("Ge", "Job", "Isa", "Mat", "Rom")
    words = "light water heart shepherd stone river bread sword grace seed lamp mountain".split()
    lines = []
    for number, book in enumerate(books):
        for chapter in range(1, 41):
            for verse in range(1, 4):
                draw = [words[(number * 2 + verse * chapter * step) % len(words)] for step in range(1, 9)]
                lines.append("%s%d:%d %s." % (book, chapter, verse, " ".join(draw)))
    path = pathlib.Path(folder) / "book"
    path.write_text("\n".join(lines) + "\n")
    return path


def result(folder, name="result.json"):
    return json.loads((pathlib.Path(folder) / name).read_text(encoding="utf-8"))


__all__ = ["EXAMPLES", "HERE", "PROGRAM", "SOURCE", "STAGES", "Skip", "TIER", "config", "environment", "expect", "has_deepspeed",
           "languages", "near", "os", "package", "result", "shutil", "start", "json", "torch_help", "verses"]

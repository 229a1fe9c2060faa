#!/usr/bin/env python3
"""Accelerate, unmodified, on libzero: what its scripts use, its config files, and the article's two scripts."""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import sys
import tempfile

import hf_help
from hf_help import (EXAMPLES, HERE, SOURCE, STAGES, Skip, TIER, config, expect, has_deepspeed, languages, near, package, result,
                     start, verses)

from harness import run_tests

LIKE_THE_ARTICLE = ("--train", 64, "--held-out", 16, "--width", 64, "--layers", 1, "--vocabulary", 100, "--batch", 4)


def feature_run(who, stage, folder, more=None, words=(), **environment):
    start(who, HERE / "accelerate_script.py", folder, *words, config_file=config(folder, stage, **(more or {})), **environment)
    return result(folder, "accelerate.json")


def same(found, wanted, within):
    for key in ("losses", "norms", "rates"):
        expect(len(found[key]) == len(wanted[key]), key, found[key], wanted[key])
        for one, other in zip(found[key], wanted[key]):
            near(one, other, within, key)
    near(found["evaluation"], wanted["evaluation"], within, "evaluation")


@languages.once
def kept():
    return tempfile.TemporaryDirectory()


_plain_runs = {}


def plain_run(stage):
    """(folder, row) of the run whose config leaves everything to Accelerate."""
    if stage not in _plain_runs:
        folder = pathlib.Path(kept().name) / str(stage)
        folder.mkdir()
        _plain_runs[stage] = folder, feature_run("libzero", stage, folder, {"libzero": {"reproducible": "stage"}})
    return _plain_runs[stage]


def full_alone(what):
    if TIER != "full":
        raise Skip("hf: %s belongs to the full tier" % what)


def run_stages(run, stages=STAGES):
    """Losses and norms of each stage, the same bits."""
    rows = [run(stage) for stage in stages]
    for row in rows:
        expect(row["engine"].startswith("libzero."), row)
    for row in rows[1:]:
        expect(row["evaluation"] == rows[0]["evaluation"] and row["losses"] == rows[0]["losses"], rows[0], row)
        expect(row["norms"] == rows[0]["norms"], rows[0], row)
    return rows[0]


def test_accumulation_clipping_evaluation_save_resume_and_unwrap_with_the_configs_optimizer():
    found = run_stages(lambda stage: plain_run(stage)[1])
    expect(found["evaluation"] < found["losses"][0], found)  # its rows are among the trained ones
    if has_deepspeed() and TIER == "full":
        for stage in (1, 2, 3):
            with tempfile.TemporaryDirectory() as folder:
                same(found, feature_run("deepspeed", stage, folder), 1e-4)


def test_a_clients_optimizer_and_schedule_under_offload_to_the_cpu():
    full_alone("a client's optimizer")
    offload = {"device": "cpu", "pin_memory": True}
    more = {"optimizer": None, "scheduler": None, "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {"offload_optimizer": offload}, "libzero": {"reproducible": "stage"}}

    def run(stage):
        with tempfile.TemporaryDirectory() as folder:
            return feature_run("libzero", stage, folder, more)
    found = run_stages(run, (1, 2, 3))
    expect(found["rates"][-1] < found["rates"][0], found)
    if has_deepspeed():
        more["zero_optimization"] = {}
        with tempfile.TemporaryDirectory() as folder:
            same(found, feature_run("deepspeed", 2, folder, more), 1e-4)


def test_bf16_at_every_stage():
    full_alone("bf16")
    for stage in (0, 1, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            found = feature_run("libzero", stage, folder, {"bf16": {"enabled": "auto"}}, ACCELERATE_MIXED_PRECISION="bf16")
        expect(found["dtypes"] == ["torch.bfloat16"], found)
        expect(found["evaluation"] < found["losses"][0], found)  # its rows are among the trained ones


def test_from_pretrained_under_stage_3_has_parameters_born_sharded():
    first, one = plain_run(3)
    with tempfile.TemporaryDirectory() as second:
        two = feature_run("libzero", 3, second, words=("--model", pathlib.Path(first) / "saved"))
    expect(two["born"] == two["parameters"], two)
    near(two["losses"][0], one["losses"][0], 0.5, "the first loss")
    expect(two["losses"][0] < one["losses"][0], "trained weights were not loaded", one, two)


def launched(config_file, *words):
    """By `accelerate launch` under the name."""
    python, kept = hf_help.environment()
    command = [hf_help.PROGRAM, "run", "--as-deepspeed", "--", python, "-m", "accelerate.commands.launch", "--config_file",
               config_file, *words]
    return hf_help.torch_help.finish(command, dict(kept, PYTHONPATH="%s:%s" % (kept["PYTHONPATH"], EXAMPLES)), 500)


def test_accelerate_launch_starts_from_the_file_that_accelerate_config_writes():
    """The article's way. The file is written by Accelerate's own class, as `accelerate config` does with the answers."""
    python, _ = package()
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "default_config.yaml"
        write = ("import sys; from accelerate.commands.config.config_args import ClusterConfig; ClusterConfig("
                 "compute_environment='LOCAL_MACHINE', distributed_type='DEEPSPEED', mixed_precision='no', use_cpu=False, "
                 "debug=False, num_processes=2, machine_rank=0, num_machines=1, main_training_function='main', "
                 "rdzv_backend='static', same_network=True, deepspeed_config=dict(gradient_accumulation_steps=1, "
                 "offload_optimizer_device='none', offload_param_device='none', zero3_init_flag=False, zero_stage=2, "
                 "gradient_clipping=1.0)).to_yaml_file(sys.argv[1])")
        hf_help.languages.must([python, "-c", write, made])
        out = pathlib.Path(folder) / "out.json"
        said = launched(made, EXAMPLES / "classify.py", "--book", verses(folder), "--json", out, "--epochs", 1,
                        *LIKE_THE_ARTICLE)
        expect("answers to this name" in said, said)
        row = result(folder, "out.json")
        expect(row["ranks"] == 2 and len(row["losses"]) == 8, row)


def test_the_articles_config_file_starts_a_script():
    """zero2_config_accelerate.json: fp16, every other value "auto"."""
    with tempfile.TemporaryDirectory() as folder:
        if TIER == "full":
            said = start("libzero", HERE / "accelerate_script.py", folder, ACCELERATE_MIXED_PRECISION="fp16",
                         config_file=SOURCE / "examples/configs/zero2_config_accelerate.json", check=False)
            expect("gradient_accumulation_steps" in said or "OK stage 2" in said, said)
        out = pathlib.Path(folder) / "out.json"
        start("libzero", HERE / "article_script.py", out, ACCELERATE_MIXED_PRECISION="fp16",
              config_file=SOURCE / "examples/configs/zero2_config_accelerate.json")
        row = result(folder, "out.json")
        expect(row["losses"][-1] < row["losses"][0], row)


def article_run(who, script, folder, *words, stage=None):
    out = pathlib.Path(folder) / "out.json"
    start(who, EXAMPLES / script, "--book", verses(folder), "--json", out, *LIKE_THE_ARTICLE, *words,
          config_file=config(folder, stage, optimizer=None, scheduler=None, zero_allow_untested_optimizer=True)
          if stage is not None else None)
    return result(folder, "out.json")


def article_case(script, quality):
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for stage in STAGES:
            rows[stage] = article_run("libzero", script, folder, stage=stage)
        if TIER == "full":
            rows["plain"] = article_run("plain", script, folder)
            if has_deepspeed():
                rows["deepspeed"] = article_run("deepspeed", script, folder, stage=2)
    for stage in STAGES:
        expect(rows[stage]["losses"] == rows[2]["losses"] and rows[stage][quality] == rows[2][quality], rows)
    # Plain DDP clips with norm + 1e-6 and has its own order of sums.
    for peer, within in (("deepspeed", 1e-4), ("plain", 5e-2)):
        for one, other in zip(rows[2]["losses"], rows.get(peer, rows[2])["losses"]):
            near(one, other, within, peer)


def test_the_articles_classifier_has_the_same_bits_at_every_stage():
    full_alone("the classifier at every stage")  # accelerate launch starts it in the quick one
    article_case("classify.py", "accuracy")


def test_a_sequence_to_sequence_model_has_the_same_bits_at_every_stage():
    full_alone("the sequence-to-sequence model")
    article_case("answer.py", "held_out_loss")


if __name__ == "__main__":
    try:
        package()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    sys.exit(run_tests(sys.modules[__name__]))

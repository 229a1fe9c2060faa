#!/usr/bin/env python3
"""`zero checkpoint import-deepspeed` of universal checkpoints, which have a folder a parameter."""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import resource
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cli_deepspeed import (PROGRAM, Folder, expect_parts, numbers, refused,  # noqa: E402
                           succeed)
from harness import expect, run_tests  # noqa: E402
import torch_files  # noqa: E402


def universal_groups():
    return [[("layer.weight", numbers(0, 24), numbers(100, 24), numbers(200, 24)),
             ("b", numbers(40, 7), numbers(140, 7), numbers(240, 7))],
            [("one", [9.0], [8.0], [7.0])]]


def test_a_universal_checkpoint_is_read_from_its_parameters_folders():
    groups = universal_groups()
    for stage in (0, 1, 2, 3):  # 0: of BF16_Optimizer, which says none
        for steps in ({}, {"b": 4.0}):
            with Folder() as folder:
                tag = torch_files.write_universal(folder / "in", groups, stage, steps=steps,
                                                  extra={"epoch": 7})
                for source, world in ((folder / "in", 1), (tag, 5)):
                    out = folder / ("out-%d" % world)
                    succeed("import-deepspeed", source, out, "--world", world)
                    expect_parts(out, groups)
                    text = succeed("inspect", out)
                    # Stage 3 has no file of the step: what rank 0's optimizer says.
                    updates = 5 if stage == 3 else int(steps.get("b", 6))
                    expect('param "b" 7 fp32 trained, group 0, %d updates' % updates in text, text)
                    updates = 5 if stage == 3 else 6
                    expect('param "one" 1 fp32 trained, group 1, %d updates' % updates in text, text)
                    expect('group "default", lr 0.1' in text and "beta2 0.95999" in text, text)
                expect(succeed("diff", folder / "out-1", folder / "out-5") == "equal\n")


def test_a_native_checkpoint_is_the_same_after_it_was_made_universal():
    groups = universal_groups()
    scaler = torch_files.objects(torch_files.DynamicLossScaler, cur_scale=256.0, cur_iter=9,
                                 last_overflow_iter=4, cur_hysteresis=1, dynamic=True)
    fp16 = {"skipped_steps": 2, "ds_config": {"fp16": {"enabled": True}}}
    with Folder() as folder:
        torch_files.write_checkpoint(folder / "in", 2, 3, groups, scaler=scaler, extra=fp16)
        torch_files.write_universal(folder / "in", groups, 2, world=3, scaler=scaler, extra=fp16)
        succeed("import-deepspeed", folder / "in" / "tag_universal", folder / "universal")
        text = succeed("inspect", folder / "universal")
        expect("loss scale 256 (credits 1, iteration 9, last overflow 4)" in text, text)
        succeed("import-deepspeed", folder / "in", folder / "native")  # `latest` goes first
        expect(succeed("diff", folder / "native", folder / "universal") == "equal\n")
        shutil.rmtree(folder / "in" / "tag_universal")
        succeed("import-deepspeed", folder / "in", folder / "again")
        (folder / "in" / "latest").unlink()
        refused(("import-deepspeed", folder / "in", folder / "none"), "latest_universal")


def test_what_is_missing_or_wrong_in_a_universal_checkpoint_is_named():
    groups = universal_groups()
    for stage in (2, 3):
        files = ["b/fp32.pt", "one/exp_avg.pt", "b/exp_avg_sq.pt", "layer.weight/fp32.pt",
                 "optimizer_state.pt"] + (["one/step.pt"] if stage == 2 else [])
        for name in files:
            with Folder() as folder:
                tag = torch_files.write_universal(folder / "in", groups, stage)
                path = tag / "zero" / name
                whole = path.read_bytes()
                path.unlink()
                refused(("import-deepspeed", folder / "in", folder / "out"), str(path))
                path.write_bytes(whole[:-40])
                refused(("import-deepspeed", folder / "in", folder / "out"), str(path))
                expect(not (folder / "out").exists())
    with Folder() as folder:
        tag = torch_files.write_universal(folder / "in", groups)
        path = tag / "zero" / "b" / "exp_avg.pt"
        whole = path.read_bytes()
        torch_files.save(path, {"param": torch_files.Tensor(numbers(0, 8))})
        refused(("import-deepspeed", folder / "in", folder / "out"), str(path), "8 elements")
        torch_files.save(path, {"param": None})
        refused(("import-deepspeed", folder / "in", folder / "out"), str(path), "a tensor")
        at = whole.index(b"\x00\x00\x0c\x43")  # 140.0, its first
        path.write_bytes(whole[:at] + b"\x01" + whole[at + 1:])
        refused(("import-deepspeed", folder / "in", folder / "out"), str(path), "CRC")
        path.write_bytes(whole)
        torch_files.save(tag / "zero" / "b" / "other.pt", torch_files.Tensor([1.0]))
        refused(("import-deepspeed", folder / "in", folder / "out"), "other.pt", "exp_avg_sq")
        (tag / "zero" / "b" / "other.pt").unlink()
        for text in ("nan", "0.5", "-1"):
            torch_files.save(tag / "zero" / "b" / "step.pt", torch_files.Tensor([float(text)], ()))
            refused(("import-deepspeed", folder / "in", folder / "out"), "step", "count")
        shutil.rmtree(tag / "zero" / "b")
        refused(("import-deepspeed", folder / "in", folder / "out"), '"b"')
        shutil.copy(tag / "mp_rank_00_model_states.pt",
                    tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
        refused(("import-deepspeed", folder / "in", folder / "out"), str(tag), "zero")
        expect(not (folder / "out").exists())
    with Folder() as folder:  # a shape of its own that has as many elements
        torch_files.write_universal(folder / "in", groups, 2, shapes={"layer.weight": (4, 6)})
        refused(("import-deepspeed", folder / "in", folder / "out"), "layer.weight", "axes")


def test_a_universal_checkpoint_of_more_files_than_a_process_may_open():
    groups = [[("p%d" % i, numbers(i, 3), numbers(i + 1, 3), numbers(i + 2, 3))
               for i in range(60)]]
    with Folder() as folder:
        torch_files.write_universal(folder / "in", groups)
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
        done = subprocess.run([PROGRAM, "checkpoint", "import-deepspeed", str(folder / "in"),
                               str(folder / "out")], text=True, capture_output=True,
                              preexec_fn=few)
        expect(done.returncode == 0, done.stderr)
        expect_parts(folder / "out", groups)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))

"""Every name of the page's two tables, on two ranks under the name deepspeed: what works is used here for
what it means, what is refused is called and must say so. Rank 0 prints a line for each."""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import contextlib
import importlib
import io
import json
import logging
import os
import sys
import traceback

import torch

import deepspeed

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = sys.argv[1]


def expect(condition, *facts):
    if not condition:
        raise AssertionError(" ".join(map(str, facts)) or "not so")


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))


def start(stage, model=None, **more):
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": stage},
              "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "libzero": {"comm_timeout_seconds": 60}}
    given = {key: more.pop(key) for key in ("optimizer", "lr_scheduler", "training_data") if key in more}
    if "optimizer" in given:
        del config["optimizer"]
    config.update(more)
    return deepspeed.initialize(model=model or net(), config=config, **given)


def batch(step=0):
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(10 * step + RANK))


def train(engine, steps=1, first=0):
    losses = []
    for step in range(first, first + steps):
        loss = engine(batch(step)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


# ---- table 1.1: row -> (names, a check of their meaning) and (names, refused) ----------------------------------


def initialize():
    engine, optimizer, loader, scheduler = start(1, training_data=[torch.ones(4)] * 12)
    expect(isinstance(engine, torch.nn.Module) and loader.batch_size == 2 and len(loader) == 3 and scheduler is None)
    expect(optimizer.param_groups and next(iter(loader)).shape == (2, 4))
    losses = train(engine, 5)
    expect(losses[-1] != losses[0])


def init_distributed():
    expect(deepspeed.init_distributed(dist_backend="gloo") is None and torch.distributed.get_rank() == RANK)
    expect(torch.distributed.get_world_size() == SIZE)
    deepspeed.init_distributed()  # adopted


def add_config_arguments():
    parser = argparse.ArgumentParser()
    expect(deepspeed.add_config_arguments(parser) is parser)
    args = parser.parse_args(["--deepspeed", "--deepspeed_config", "x.json"])
    expect(args.deepspeed is True and args.deepspeed_config == "x.json" and args.deepscale is False)
    expect(args.deepscale_config is None)


def comm():
    from deepspeed import comm as dist
    expect(dist.is_initialized() and dist.get_rank() == RANK and dist.get_world_size() == SIZE)
    one = torch.tensor([float(RANK + 1)])
    dist.all_reduce(one, op=dist.ReduceOp.SUM)
    expect(one.item() == 3.0)
    dist.broadcast(one.fill_(float(RANK)), src=1)
    expect(one.item() == 1.0)
    parts = [torch.zeros(1) for _ in range(SIZE)]
    dist.all_gather(parts, torch.tensor([float(RANK)]))
    expect([p.item() for p in parts] == [0.0, 1.0])
    things = [RANK + 5]
    dist.broadcast_object_list(things, src=0)
    expect(things == [5])
    dist.barrier()
    expect(deepspeed.comm is dist and importlib.import_module("deepspeed.comm.comm").get_rank() == RANK)


def accelerator():
    from deepspeed.accelerator import get_accelerator
    found = get_accelerator()
    expect(found is deepspeed.get_accelerator() and found.device_name() == "cpu" == found.device_name(1))
    expect(found.current_device_name() == "cpu" and found.communication_backend_name() == "gloo" and found.is_available())
    found.set_device(0)
    found.empty_cache()
    found.manual_seed_all(3)
    first = torch.rand(1)
    found.manual_seed_all(3)
    expect(torch.equal(first, torch.rand(1)) and found.memory_allocated() >= 0 and found.device_count() >= 1)


def zero_init():
    torch.manual_seed(RANK)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=True):
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
        model.apply(lambda m: torch.nn.init.constant_(m.weight, 0.5) if isinstance(m, torch.nn.Linear) else None)
    weight = model[0].weight
    expect(weight.dtype == torch.bfloat16 and weight.ds_numel == 12 and tuple(weight.ds_shape) == (3, 4))
    expect(weight.ds_status.name == "NOT_AVAILABLE" and weight.ds_tensor.numel() == 6, weight.ds_tensor.shape)
    expect(bool(torch.isnan(weight).all()))
    with deepspeed.zero.GatheredParameters(model.parameters()):
        expect(bool((weight == 0.5).all()), "apply inside Init was lost")
        bias = model[0].bias.detach().float().clone()
    torch.distributed.broadcast(bias, 0)
    with deepspeed.zero.GatheredParameters(model[0].bias):
        expect(torch.equal(bias, model[0].bias.float()), "not rank 0's")
    made = deepspeed.zero.Init(module=net(), config_dict_or_path=config)
    expect(isinstance(made, deepspeed.zero.Init))
    weight.data.zero_()
    try:
        start(3, model, bf16={"enabled": True})
    except RuntimeError as error:
        expect("0.weight" in str(error) and "GatheredParameters" in str(error), error)
    else:
        expect(False, "a write into a sharded parameter went unseen")
    with deepspeed.zero.Init(enabled=False):
        expect(not hasattr(torch.nn.Linear(2, 2).weight, "ds_id"))
    with deepspeed.zero.Init(config_dict_or_path=dict(config, zero_optimization={"stage": 2})):
        expect(not hasattr(torch.nn.Linear(2, 2).weight, "ds_id"))
    for stage in (3, 2):
        with deepspeed.zero.Init():
            born = net()
        expect(torch.equal(torch.tensor(train(start(stage, born)[0], 3)), torch.tensor(train(start(stage)[0], 3))), stage)


def gathered():
    engine = start(3)[0]
    weight = engine.module[0].weight
    with deepspeed.zero.GatheredParameters(weight, modifier_rank=1), torch.no_grad():
        weight.fill_(float(RANK))
    with deepspeed.zero.GatheredParameters([weight]) as nothing:
        expect(nothing is None and bool((weight == 1.0).all()))
        try:
            with deepspeed.zero.GatheredParameters(weight):
                expect(False)
        except RuntimeError as error:
            expect("gathered already" in str(error), error)
    for write in (lambda: weight.data.mul_(2), lambda: weight.detach().add_(1)):
        try:
            with deepspeed.zero.GatheredParameters(engine.module.parameters()):
                write()
        except RuntimeError as error:
            expect("modifier_rank" in str(error), error)
        else:
            expect(False, "a dropped write is an error")
    plain = net()
    with deepspeed.zero.GatheredParameters(plain.parameters(), enabled=True), torch.no_grad():
        plain[0].weight.zero_()
    expect(float(plain[0].weight.abs().sum()) == 0.0)


def status():
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
    expect([one.value for one in (ZeroParamStatus.AVAILABLE, ZeroParamStatus.NOT_AVAILABLE, ZeroParamStatus.INFLIGHT)] == [1, 2, 3])
    weight = start(3)[0].module[0].weight
    expect(weight.ds_status == ZeroParamStatus.NOT_AVAILABLE and hasattr(weight, "ds_id"))
    with deepspeed.zero.GatheredParameters(weight):
        expect(weight.ds_status == ZeroParamStatus.AVAILABLE)
    expect(not hasattr(start(2)[0].module[0].weight, "ds_id"))


def external():
    expect(deepspeed.zero.register_external_parameter(net(), net()[0].weight) is None)
    try:
        deepspeed.zero.register_external_parameter(net(), torch.ones(2))
    except RuntimeError as error:
        expect("Parameter" in str(error))
    else:
        expect(False)


def engine_class():
    from deepspeed.runtime.engine import DeepSpeedEngine
    engine = start(0)[0]
    expect(isinstance(engine, deepspeed.DeepSpeedEngine) and DeepSpeedEngine is deepspeed.DeepSpeedEngine)
    expect(isinstance(engine, torch.nn.Module))


def config_class():
    path = os.path.join(FOLDER, "config-%d.json" % RANK)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"train_batch_size": 8, "zero_optimization": {"stage": 2}}, file)
    for given in (path, {"train_batch_size": 8, "zero_optimization": {"stage": 2}}):
        config = deepspeed.DeepSpeedConfig(given)
        expect(config.train_batch_size == 8 and config.zero_optimization_stage == 2)


def versions():
    import importlib.metadata
    from packaging import version
    expect(version.parse(deepspeed.__version__) >= version.parse("0.18.9") and isinstance(deepspeed.version, str))
    expect(importlib.metadata.version("deepspeed") == deepspeed.__version__ and "libzero" in deepspeed.__version__)


def loggers():
    from deepspeed.utils import logger
    from deepspeed.utils.logging import logger as other
    expect(logger is other and isinstance(logger, logging.Logger))
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger.addHandler(handler)
    logger.setLevel("INFO")
    deepspeed.log_dist("to rank 1", ranks=[1])
    deepspeed.log_dist("to all", ranks=[-1])
    logger.removeHandler(handler)
    logger.setLevel(logging.CRITICAL)
    expect(("to rank 1" in said.getvalue()) == (RANK == 1) and "to all" in said.getvalue(), said.getvalue())


def leaves():
    from deepspeed.utils import set_z3_leaf_modules
    model = net()
    expect(set_z3_leaf_modules(model, [torch.nn.Linear]) == [model[0], model[2]])
    expect(set_z3_leaf_modules(model, ["Tanh"]) == [model[1]])
    try:
        set_z3_leaf_modules(model, [torch.nn.Conv1d])
    except ValueError:
        return
    expect(False)


def full_state():
    from deepspeed.utils import (safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state,
                                 safe_set_full_fp32_param, safe_set_full_optimizer_state)
    for stage in range(4):
        for more in ({}, {"bf16": {"enabled": True}}):
            kind = torch.bfloat16 if more else torch.float32
            engine, optimizer, _, _ = start(stage, gradient_clipping=1e-3, gradient_accumulation_steps=2, **more)
            weight = engine.module[0].weight
            plain = net().to(kind)
            for rank in range(SIZE):
                for micro in range(2):
                    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(10 * micro + rank)).to(kind)
                    (plain(x).pow(2).mean() / (2 * SIZE)).backward()
            for micro in range(2):
                engine.backward(engine(batch(micro).to(kind)).pow(2).mean())
                if micro == 0:
                    engine.step()
            found = safe_get_full_grad(weight)
            wanted = plain[0].weight.grad.float()
            expect(found.shape == (3, 4) and found.dtype == torch.float32)
            expect(float((found - wanted).norm() / wanted.norm()) < (0.03 if more else 1e-6), stage, found, wanted)
            engine.step()
            moments = safe_get_full_optimizer_state(weight, "exp_avg")
            norm = engine.get_global_grad_norm()
            expect(float((moments - 0.1 * found * 1e-3 / norm).norm() / moments.norm()) < 1e-2, stage, "clipped moments")
            safe_set_full_optimizer_state(weight, torch.full((3, 4), 0.25), "exp_avg_sq")
            expect(bool((safe_get_full_optimizer_state(weight, "exp_avg_sq") == 0.25).all()))
            safe_set_full_fp32_param(weight, torch.full((3, 4), 0.3))
            expect(bool((safe_get_full_fp32_param(weight) == 0.3).all()) and optimizer is engine.optimizer)
            with deepspeed.zero.GatheredParameters(weight):
                expect(bool((weight.float() - 0.3).abs().max() < 2e-3), "the parameter lags behind its master")
            for wrong in ("step", "nonsense"):
                try:
                    safe_get_full_optimizer_state(weight, wrong)
                except ValueError as error:
                    expect(wrong in str(error))
                else:
                    expect(False)
    from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_grad, safe_get_local_optimizer_state
    from deepspeed.utils import safe_set_local_fp32_param
    mine = safe_get_local_fp32_param(weight)
    first, count = engine.runtime.shard_span(engine.registry.ids[weight])
    expect(mine.numel() == count and bool((mine == 0.3).all()))
    expect(torch.equal(safe_get_local_optimizer_state(weight, "exp_avg"),
                       safe_get_full_optimizer_state(weight, "exp_avg").reshape(-1)[first:first + count]))
    expect(safe_get_local_grad(weight).numel() == count)
    safe_set_local_fp32_param(weight, torch.full((count,), 0.7))
    expect(bool((safe_get_full_fp32_param(weight) == 0.7).all()))
    try:
        safe_get_local_fp32_param(start(2)[0].module[0].weight)
    except AssertionError as error:
        expect("stage 2" in str(error))
    else:
        expect(False)


def adams():
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    made = []
    for kind, mode in ((DeepSpeedCPUAdam, "adamw_mode"), (FusedAdam, "adam_w_mode")):
        for decoupled, plain_kind in ((True, torch.optim.AdamW), (False, torch.optim.Adam)):
            model, plain = net(), net()
            inner = kind(model.parameters(), lr=0.02, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, bias_correction=True,
                         **{mode: decoupled})
            expect(isinstance(inner, torch.optim.Optimizer))
            engine, optimizer, _, _ = start(2, model, optimizer=inner)
            expect(optimizer.param_groups is inner.param_groups)
            theirs = plain_kind(plain.parameters(), lr=0.02, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1)
            train(engine, 3)
            for step in range(3):
                theirs.zero_grad()
                for rank in range(SIZE):
                    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(10 * step + rank))
                    (plain(x).pow(2).mean() / SIZE).backward()
                theirs.step()
            expect(torch.allclose(plain[0].weight, model[0].weight, atol=1e-6), kind, decoupled)
            made.append(kind)
    expect(len(made) == 4)


def other_optimizers():
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
    for kind in (FusedLamb, FusedLion, DeepSpeedCPULion, DeepSpeedCPUAdagrad):
        model = net()
        engine = start(1, model, optimizer=kind(model.parameters(), lr=0.01))[0]
        before = model[0].weight.detach().clone()
        train(engine, 2)
        expect(not torch.equal(before, model[0].weight), kind)


def checkpointing():
    from deepspeed import checkpointing as recompute
    recompute.configure(None, deepspeed_config=None, partition_activations=False, contiguous_checkpointing=False,
                        num_checkpoints=2, checkpoint_in_cpu=False, synchronize=False, profile=False)
    expect(recompute.is_configured())
    recompute.reset()
    recompute.model_parallel_cuda_manual_seed(11)
    tracker = recompute.get_cuda_rng_tracker()
    before = torch.get_rng_state()
    with tracker.fork():
        inside = torch.rand(2)
    expect(torch.equal(before, torch.get_rng_state()) and not torch.equal(inside, torch.rand(2)))
    drop = torch.nn.Dropout(0.5)
    x = torch.ones(64, requires_grad=True)
    out = recompute.checkpoint(drop, x)
    out.sum().backward()
    expect(torch.equal(out.detach() != 0, x.grad != 0), "other random numbers in the second run")
    class Tensors:
        @staticmethod
        def get_model_parallel_world_size():
            return 2
    try:
        recompute.configure(Tensors)
    except NotImplementedError as error:
        expect("model parallelism" in str(error))
    else:
        expect(False)


def clones():
    from deepspeed.checkpoint.utils import clone_tensors_for_torch_save
    big = torch.arange(1000.0)
    made = clone_tensors_for_torch_save({"a": big[:3], "b": [big[3:4], 7]})
    expect(made["b"][1] == 7 and torch.equal(made["a"], big[:3]) and made["a"].untyped_storage().nbytes() == 12)


def consolidation():
    import subprocess
    from deepspeed.utils.zero_to_fp32 import (convert_zero_checkpoint_to_fp32_state_dict, get_fp32_state_dict_from_zero_checkpoint,
                                              load_state_dict_from_zero_checkpoint)
    for stage, more in ((3, {"bf16": {"enabled": True}}), (1, {})):
        kind = torch.bfloat16 if more else torch.float32
        engine = start(stage, **more)[0]
        for step in range(2):
            engine.backward(engine(batch(step).to(kind)).pow(2).mean())
            engine.step()
        folder = os.path.join(FOLDER, "consolidated-%d" % stage)
        engine.save_checkpoint(folder)
        masters = {n: deepspeed.utils.safe_get_full_fp32_param(p) for n, p in engine.module.named_parameters()}
        torch.distributed.barrier()
        state = get_fp32_state_dict_from_zero_checkpoint(folder)
        expect(set(state) == set(masters) and all(torch.equal(state[n], masters[n]) for n in masters), stage)
        model = load_state_dict_from_zero_checkpoint(net(), folder)
        expect(torch.equal(model[0].weight, masters["0.weight"]))
        if RANK == 0:
            out = os.path.join(folder, "out")
            convert_zero_checkpoint_to_fp32_state_dict(folder, out, max_shard_size=40, tag="global_step2")
            found = {}
            for name in os.listdir(out):
                if name.endswith(".bin"):
                    found.update(torch.load(os.path.join(out, name)))
            expect(set(found) == set(masters) and "pytorch_model.bin.index.json" in os.listdir(out), os.listdir(out))
            subprocess.run([sys.executable, "zero_to_fp32.py", ".", "whole.bin"], cwd=folder, check=True)
            expect(torch.equal(torch.load(os.path.join(folder, "whole.bin"))["2.bias"], masters["2.bias"]))
        torch.distributed.barrier()


def offload_enums():
    from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum, OffloadStateTypeEnum
    expect(OffloadDeviceEnum.cpu == "cpu" and OffloadDeviceEnum.none == "none" and OffloadDeviceEnum.nvme == "nvme")
    expect(len(OffloadStateTypeEnum) == 5)
    start(1)[0].offload_states(include=[OffloadStateTypeEnum.optim_states], device=OffloadDeviceEnum.cpu)


def estimates():
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs_all_live
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs_all_live
    sizes = []
    for call in (estimate_zero2_model_states_mem_needs_all_live, estimate_zero3_model_states_mem_needs_all_live):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            call(torch.nn.Linear(4000, 1000), num_gpus_per_node=4, num_nodes=2)
        expect("8 ranks" in said.getvalue() and "4001000 parameters" in said.getvalue(), said.getvalue())
        sizes.append(float(said.getvalue().split("params")[-1].split()[0]))
    expect(sizes[1] < sizes[0], sizes)


def schedules():
    expect(deepspeed.runtime.lr_schedules.VALID_LR_SCHEDULES == ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR",
                                                                 "WarmupCosineLR"])


def constructors():
    from deepspeed.runtime.zero import partition_parameters as pp
    expect(pp._orig_torch_arange is torch.arange and pp.get_accelerator() is deepspeed.get_accelerator())
    expect(pp.zero_wrapper_for_fp_tensor_constructor(torch.ones, torch.float16)(2).dtype == torch.float16)
    pp.zero_wrapper_for_fp_tensor_constructor = pp.zero_wrapper_for_fp_tensor_constructor


def environment_name():
    from deepspeed.launcher.runner import DEEPSPEED_ENVIRONMENT_NAME
    expect(DEEPSPEED_ENVIRONMENT_NAME == ".deepspeed_env")


def groups():
    from deepspeed.utils import groups as found
    expect(found._get_sequence_parallel_world_size() == 1 and found._get_sequence_parallel_rank() == 0)


def repeating():
    from deepspeed.utils import RepeatingLoader
    endless = iter(RepeatingLoader([1, 2]))
    expect([next(endless) for _ in range(5)] == [1, 2, 1, 2, 1])


TABLE = {
    "`deepspeed.initialize`": (initialize, "initialize", ""),
    "`deepspeed.init_distributed`": (init_distributed, "init_distributed", ""),
    "`deepspeed.add_config_arguments`": (add_config_arguments, "add_config_arguments", ""),
    "`deepspeed.comm.*`": (comm, "comm.get_rank comm.get_world_size comm.barrier comm.is_initialized comm.broadcast comm.all_reduce "
                                 "comm.all_gather comm.broadcast_object_list comm.ReduceOp comm.init_distributed", ""),
    "`deepspeed.get_accelerator`, `deepspeed.accelerator.get_accelerator`": (
        accelerator, "get_accelerator accelerator.get_accelerator", ""),
    "`deepspeed.zero.Init`": (zero_init, "zero.Init", ""),
    "`deepspeed.zero.GatheredParameters`": (gathered, "zero.GatheredParameters", ""),
    "`deepspeed.runtime.zero.partition_parameters.ZeroParamStatus`": (
        status, "runtime.zero.partition_parameters.ZeroParamStatus", ""),
    "`deepspeed.zero.register_external_parameter`": (external, "zero.register_external_parameter", ""),
    "`deepspeed.DeepSpeedEngine` (`.runtime.engine.`)": (engine_class, "DeepSpeedEngine runtime.engine.DeepSpeedEngine", ""),
    "`deepspeed.DeepSpeedConfig`": (config_class, "DeepSpeedConfig", ""),
    "`deepspeed.__version__`, `deepspeed.version`": (versions, "__version__ version", ""),
    "`deepspeed.utils.logger`, `.utils.logging.logger`, `deepspeed.log_dist(msg, ranks=)`": (
        loggers, "utils.logger utils.logging.logger log_dist", ""),
    "`deepspeed.utils.set_z3_leaf_modules`": (leaves, "utils.set_z3_leaf_modules", ""),
    "`deepspeed.utils.safe_get_full_*`, `safe_set_full_*`": (
        full_state, "utils.safe_get_full_fp32_param utils.safe_get_full_grad utils.safe_get_full_optimizer_state "
                    "utils.safe_set_full_fp32_param utils.safe_set_full_optimizer_state", "utils.safe_set_full_grad"),
    "`deepspeed.ops.adam.DeepSpeedCPUAdam`": (adams, "ops.adam.DeepSpeedCPUAdam", ""),
    "`deepspeed.ops.adam.FusedAdam`": (adams, "ops.adam.FusedAdam", ""),
    "`ops.lamb.FusedLamb`, `ops.lion.FusedLion`, `runtime.fp16.onebit.*`": (
        other_optimizers, "ops.lamb.FusedLamb ops.lion.FusedLion ops.lion.DeepSpeedCPULion ops.adagrad.DeepSpeedCPUAdagrad",
        "runtime.fp16.onebit.OnebitAdam runtime.fp16.onebit.OnebitLamb runtime.fp16.onebit.ZeroOneAdam "
        "runtime.fp16.onebit.adam.OnebitAdam"),
    "`deepspeed.checkpointing.*`": (
        checkpointing, "checkpointing.configure checkpointing.checkpoint checkpointing.is_configured checkpointing.reset "
                       "checkpointing.get_cuda_rng_tracker checkpointing.model_parallel_cuda_manual_seed", ""),
    "`deepspeed.checkpoint.utils.clone_tensors_for_torch_save`": (clones, "checkpoint.utils.clone_tensors_for_torch_save", ""),
    "`deepspeed.utils.zero_to_fp32.*`": (
        consolidation, "utils.zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint "
                       "utils.zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict "
                       "utils.zero_to_fp32.load_state_dict_from_zero_checkpoint", ""),
    "`runtime.zero.offload_config.OffloadDeviceEnum`, `OffloadStateTypeEnum`": (
        offload_enums, "runtime.zero.offload_config.OffloadDeviceEnum runtime.zero.offload_config.OffloadStateTypeEnum", ""),
    "`runtime.zero.stage_1_and_2.estimate_zero2_…_all_live`, `stage3.estimate_zero3_…`": (
        estimates, "runtime.zero.stage_1_and_2.estimate_zero2_model_states_mem_needs_all_live "
                   "runtime.zero.stage3.estimate_zero3_model_states_mem_needs_all_live", ""),
    "`deepspeed.runtime.lr_schedules.VALID_LR_SCHEDULES`": (schedules, "runtime.lr_schedules.VALID_LR_SCHEDULES", ""),
    "`runtime.zero.partition_parameters.zero_wrapper_for_fp_tensor_constructor`, `._orig_torch_arange`, `.get_accelerator`": (
        constructors, "runtime.zero.partition_parameters.zero_wrapper_for_fp_tensor_constructor "
                      "runtime.zero.partition_parameters._orig_torch_arange "
                      "runtime.zero.partition_parameters.get_accelerator", ""),
    "`deepspeed.launcher.runner.DEEPSPEED_ENVIRONMENT_NAME`": (
        environment_name, "launcher.runner.DEEPSPEED_ENVIRONMENT_NAME", ""),
    "`deepspeed.utils.groups._get_sequence_parallel_*`, `runtime.sequence_parallel.ulysses_sp.*`": (
        groups, "utils.groups._get_sequence_parallel_world_size utils.groups._get_sequence_parallel_rank",
        "utils.groups._get_sequence_parallel_group runtime.sequence_parallel.ulysses_sp.UlyssesSPAttentionHF "
        "runtime.sequence_parallel.ulysses_sp.UlyssesSPDataLoaderAdapter"),
    "`deepspeed.tp_model_init`": (None, "", "tp_model_init"),
    "`pipe.PipelineModule`, `LayerSpec`, `TiedLayerSpec`, topology; `PipelineEngine`": (
        None, "", "pipe.PipelineModule pipe.LayerSpec pipe.TiedLayerSpec PipelineModule PipelineEngine "
                  "runtime.pipe.topology.PipeModelDataParallelTopology runtime.pipe.engine.PipelineEngine"),
    "data efficiency or compression; `moe.*`; sparse attention; transformer kernel; science kernels": (
        None, "", "runtime.data_pipeline.data_sampling.indexed_dataset.MMapIndexedDataset compression.compress.init_compression "
                  "moe.layer.MoE moe.utils.split_params_into_different_moe_groups_for_optimizer "
                  "ops.sparse_attention.SparseSelfAttention ops.transformer.DeepSpeedTransformerLayer "
                  "ops.deepspeed4science.DS4Sci_EvoformerAttention DeepSpeedTransformerLayer"),
    "`utils.RepeatingLoader(loader)`": (repeating, "utils.RepeatingLoader", ""),
}


def resolve(path):
    """As `from deepspeed.a.b import c` finds it, and by attributes from `import deepspeed` where the page does so."""
    above, _, name = ("deepspeed." + path).rpartition(".")
    return getattr(importlib.import_module(above), name)


def refused(path):
    try:
        found = resolve(path)
        class Inherits(found if isinstance(found, type) else object):  # as Megatron's models do at import
            pass
        (Inherits if isinstance(found, type) else found)(*([None, None] if path.endswith("_grad") else []))
    except (NotImplementedError, AttributeError) as error:
        expect(path.rsplit(".", 1)[-1] in str(error) and len(str(error).split()) >= 5, "no sentence: %s" % error)
        return
    raise AssertionError("%s was not refused" % path)


def main():
    import engine_names
    deepspeed.init_distributed("gloo")
    deepspeed.utils.logger.setLevel(logging.CRITICAL)
    done, failed = set(), 0
    for table, rows in (("1.1", TABLE), ("2.3", engine_names.TABLE)):
        for row, (check, works, refuses) in rows.items():
            say = "ROW\t%s\t%s\t%%s\t%d\t%d" % (table, row, len(works.split()), len(refuses.split()))
            try:
                if table == "1.1":
                    for name in works.split():
                        expect(resolve(name) is not None, name)
                    for name in refuses.split():
                        refused(name)
                if check is not None and check not in done:
                    check()
                    done.add(check)
            except Exception:  # pylint: disable=broad-except
                failed += 1
                print(say % "FAILED" + "\n" + traceback.format_exc(), flush=True)
                continue
            if RANK == 0:
                print(say % "OK", flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)

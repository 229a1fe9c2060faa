"""Checkpoints as DeepSpeed scripts make them: a folder a tag, latest, client_state."""
# SPDX-License-Identifier: BSD-3-Clause
import io
import logging
import os
from typing import Any, Dict, Optional, Tuple

import torch

from ..checkpoint import Checkpoint

log = logging.getLogger("libzero.torch")
_KEY = "libzero.torch"
# What DeepSpeed keeps under these names in the same dict: a script's own would break its load.
_RESERVED = {"module", "optimizer", "lr_scheduler", "data_sampler", "random_ltd", "sparse_tensor_module_names",
             "skipped_steps", "global_steps", "dp_world_size", "mp_world_size"}

_SCRIPT = '''#!/usr/bin/env python3
"""Whole fp32 weights out of the checkpoints here: python zero_to_fp32.py . OUTPUT [-t TAG]"""
from libzero.torch.torch_consolidate import main

main()
'''


def _bytes(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _state(blob: bytes) -> Any:
    try:
        return torch.load(io.BytesIO(blob), map_location="cpu", weights_only=False)
    except TypeError:  # torch before 1.13
        return torch.load(io.BytesIO(blob), map_location="cpu")


def save(engine: Any, save_dir: Any, tag: Any, client_state: Dict[str, Any], save_latest: bool) -> bool:
    """Collective. The folder save_dir/tag is whole or absent."""
    folder = os.fspath(save_dir)
    if not folder:
        raise ValueError("save_checkpoint: save_dir is empty")
    taken = sorted(_RESERVED & set(client_state))
    if taken:
        raise ValueError("save_checkpoint: client_state has %s, which the engine keeps itself: expected another name" % (
            ", ".join(map(repr, taken))))
    name = "global_step%d" % engine.global_steps if tag is None else str(tag)
    scheduler = engine.lr_scheduler
    groups = [{k: v for k, v in g.items() if k != "params"} for g in engine.optimizer.param_groups] if engine.optimizer else []
    engine.runtime.put(_KEY, _bytes({
        "client_state": client_state, "global_steps": engine.global_steps, "global_samples": engine.global_samples,
        "skipped_steps": engine.skipped_steps, "groups": groups,
        "lr_scheduler": scheduler.state_dict() if hasattr(scheduler, "state_dict") else None}))
    engine.buffers_to_libzero()
    options: Dict[str, Any] = {"replace": True}
    if save_latest:
        options["latest"] = "latest"
    engine.runtime.save(os.path.join(folder, name), **options)
    if engine.global_rank == 0:
        _leave_script(folder)
    return True


def _leave_script(folder: str) -> None:
    """zero_to_fp32.py lies beside the tags, for whoever has learnt to call it there."""
    path = os.path.join(folder, "zero_to_fp32.py")
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(_SCRIPT)


def folder_of(load_dir: str, tag: Optional[Any]) -> Optional[str]:
    if tag is None:
        latest = os.path.join(load_dir, "latest")
        if not os.path.isfile(latest):
            log.warning("load_checkpoint: there is no %s; nothing was loaded (give a tag, or another folder)", latest)
            return None
        with open(latest, encoding="utf-8") as file:
            tag = file.read().strip()
    folder = os.path.join(load_dir, str(tag))
    assert os.path.isdir(folder), "load_checkpoint: there is no %s" % folder
    return folder


def refuse_deepspeeds_own(folder: str) -> None:
    if any(os.path.exists(os.path.join(folder, n)) for n in ("mp_rank_00_model_states.pt",
                                                             "zero_pp_rank_0_mp_rank_00_model_states.pt")):
        raise ValueError("%s is DeepSpeed's own checkpoint: `zero checkpoint import-deepspeed` makes one that "
                         "libzero reads" % folder)


def load(engine: Any, load_dir: Any, tag: Any, optimizer_states: bool, scheduler_states: bool, module_only: bool,
         strict: bool) -> Tuple[Optional[str], Optional[dict]]:
    """(folder, client_state), or (None, None) where there is nothing. Collective."""
    folder = folder_of(os.fspath(load_dir), tag)
    if folder is None:
        return None, None
    refuse_deepspeeds_own(folder)
    opened = Checkpoint(folder)
    found = opened.describe()
    weights = module_only or not optimizer_states
    engine.runtime.load(opened, weights_only=weights or bool(found.weights_only), allow_missing=not strict,
                        allow_extra=not strict)
    engine.buffers_from_libzero()
    try:
        state = _state(opened.get(engine.global_rank if engine.global_rank < found.world_size else 0, _KEY))
    except KeyError:  # written by a program of another kind
        state = {"client_state": {}, "global_steps": found.step, "global_samples": found.step * engine.train_batch_size(),
                 "skipped_steps": found.skipped_total, "groups": [], "lr_scheduler": None}
    if not module_only:
        engine.global_steps, engine.global_samples = state["global_steps"], state["global_samples"]
        engine.skipped_steps = state["skipped_steps"]
        if not weights and engine.optimizer:
            for group, saved in zip(engine.optimizer.param_groups, state["groups"]):
                group.update(saved)
        if scheduler_states and state["lr_scheduler"] is not None and engine.lr_scheduler is not None:
            engine.lr_scheduler.load_state_dict(state["lr_scheduler"])
    return folder, state["client_state"]


def full_state_dict(engine: Any, exclude_frozen: bool = False) -> Optional[Dict[str, torch.Tensor]]:
    """Rank 0: every value whole, in host memory, ties shared; other ranks None. Collective."""
    made: Dict[str, torch.Tensor] = {}
    whole: Dict[Any, torch.Tensor] = {}
    registry = engine.registry
    for prefix, module in engine.module.named_modules(remove_duplicate=False):
        for own, parameter in dict.items(module._parameters):
            if parameter is None or (exclude_frozen and not parameter.requires_grad):
                continue
            if parameter not in whole:
                value = torch.empty(registry.shapes[parameter], dtype=parameter.dtype)
                whole[parameter] = engine.read(parameter, value)
            made[prefix + "." + own if prefix else own] = whole[parameter]
        for own, buffer in module._buffers.items():
            if buffer is not None and own not in module._non_persistent_buffers_set:
                made[prefix + "." + own if prefix else own] = buffer.detach().cpu()
    return made if engine.global_rank == 0 else None


def save_whole(engine: Any, save_dir: Any, name: str, exclude_frozen: bool) -> bool:
    """Collective; rank 0 writes."""
    if engine.zero_optimization_stage() == 3:
        if not engine.zero_gather_16bit_weights_on_model_save():
            log.warning("save_16bit_model: nothing was written: "
                        "zero_optimization.stage3_gather_16bit_weights_on_model_save is false")
            return False
        state = full_state_dict(engine, exclude_frozen)
    else:
        state = engine.module_state_dict(exclude_frozen)
    if engine.global_rank == 0:
        os.makedirs(save_dir, exist_ok=True)
        torch.save(state, os.path.join(save_dir, name))
    return True

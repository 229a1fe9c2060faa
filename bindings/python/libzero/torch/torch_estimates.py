"""DeepSpeed's memory estimators, answered by libzero's plans: what each rank holds of parameters, gradients
and optimizer, before anything is allocated."""
# SPDX-License-Identifier: BSD-3-Clause
from typing import Any, Dict

import torch

from ..config import Config
from ..model import Model, Plan
from .torch_tensors import DTYPES

_USES = ("params", "grads", "master", "optimizer", "gathered", "buckets", "staging", "tables", "total")


def _table(model: Model, stage: int, ranks: int, what: str) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage},
              "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}
    plan = Plan(Config(config), model, ranks)
    print("libzero: stage %d, %d ranks, %s, bf16 with fp32 masters, AdamW; the fullest rank:" % (stage, ranks, what))
    for use in _USES:
        print("  %-10s %10.3f GiB" % (use, max(plan.memory(rank, use) for rank in range(ranks)) / 2**30))


def _of_module(module: torch.nn.Module) -> Model:
    made = Model()
    for name, parameter in module.named_parameters():
        dtype = "bf16" if parameter.is_floating_point() else DTYPES[parameter.dtype]
        made.add(name, shape=getattr(parameter, "ds_shape", parameter.shape), dtype=dtype,
                 role="trained" if parameter.requires_grad else "frozen" if parameter.is_floating_point() else "buffer")
    return made


def _of_sizes(total: int, largest: int) -> Model:
    made = Model()
    largest = max(1, min(largest or total, total))
    for number, start in enumerate(range(0, total, largest)):
        made.add("layer%d" % number, shape=(min(largest, total - start),), dtype="bf16")
    return made


def names(stage: int) -> Dict[str, Any]:
    """The functions of one stage's module."""

    def live(model: torch.nn.Module, num_gpus_per_node: int = 1, num_nodes: int = 1, additional_buffer_factor: float = 1.5) -> None:
        count = sum(p.numel() for p in model.parameters())
        _table(_of_module(model), stage, num_gpus_per_node * num_nodes, "%d parameters" % count)

    def cold(total_params: int, largest_layer_params: int = 0, num_gpus_per_node: int = 1, num_nodes: int = 1,
             additional_buffer_factor: float = 1.5) -> None:
        _table(_of_sizes(total_params, largest_layer_params), stage, num_gpus_per_node * num_nodes,
               "%d parameters" % total_params)

    start = "estimate_zero%d_model_states_mem_needs" % stage
    return {start + "_all_live": live, start + "_all_cold": cold}

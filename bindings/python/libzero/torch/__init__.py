"""DeepSpeed's training interface over libzero: import libzero.torch as deepspeed.

    engine, optimizer, loader, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                                                config="ds_config.json")
    for batch in loader:
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
"""
# SPDX-License-Identifier: BSD-3-Clause
import types as _types
from typing import Any

from .. import __version__ as _libzero_version
from . import torch_ops as _ops
from . import torch_utils as utils
from . import torch_zero as zero
from .torch_accelerator import get_accelerator
from .torch_engine import DeepSpeedEngine
from .torch_initialize import DeepSpeedConfig, initialize
from .torch_launch import add_config_arguments, comm, init_distributed
from .torch_loans import ZeroParamStatus
from .torch_schedules import VALID_LR_SCHEDULES
from .torch_utils import log_dist

#: The DeepSpeed release whose interface this follows.
__version__ = "0.19.8"
version = __version__
libzero_version = _libzero_version

ops = _ops.ops
utils.logging = _types.SimpleNamespace(logger=utils.logger, log_dist=log_dist)
accelerator = _types.SimpleNamespace(get_accelerator=get_accelerator)
runtime = _types.SimpleNamespace(
    engine=_types.SimpleNamespace(DeepSpeedEngine=DeepSpeedEngine),
    lr_schedules=_types.SimpleNamespace(VALID_LR_SCHEDULES=VALID_LR_SCHEDULES),
    zero=_types.SimpleNamespace(partition_parameters=_types.SimpleNamespace(ZeroParamStatus=ZeroParamStatus)))

_ABSENT = {
    "PipelineEngine": "pipelines", "PipelineModule": "pipelines", "pipe": "pipelines", "moe": "mixtures of experts",
    "checkpointing": "Megatron's activation checkpointing (torch.utils.checkpoint works)",
    "init_inference": "inference", "InferenceEngine": "inference", "tp_model_init": "tensor parallelism",
    "sequence": "sequence parallelism", "compression": "compression", "OnDevice": "inference on a meta device",
    "DeepSpeedTransformerLayer": "the transformer kernel", "launcher": "a launcher (torchrun and `zero run` are)",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError("libzero.torch has no %s: %s is not in libzero" % (name, _ABSENT[name]))
    raise AttributeError("libzero.torch has no %s" % name)


__all__ = ["DeepSpeedConfig", "DeepSpeedEngine", "VALID_LR_SCHEDULES", "ZeroParamStatus", "add_config_arguments", "comm",
           "get_accelerator", "init_distributed", "initialize", "log_dist", "ops", "utils", "zero"]

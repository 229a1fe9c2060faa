"""DeepSpeed's training interface over libzero: import libzero.torch as deepspeed.

    engine, optimizer, loader, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                                                config="ds_config.json")
    for batch in loader:
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
"""
# SPDX-License-Identifier: BSD-3-Clause
import sys as _sys
from typing import Any

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _error:
    if _error.name != "torch":
        raise
    raise ModuleNotFoundError("libzero.torch needs PyTorch, and this Python (%s) has none: install torch there, or use libzero "
                              "itself, which needs none" % _sys.executable, name="torch") from None

from . import torch_names as _names  # noqa: E402
from .torch_engine import DeepSpeedEngine  # noqa: E402
from .torch_initialize import DeepSpeedConfig, initialize  # noqa: E402
from .torch_launch import add_config_arguments, init_distributed  # noqa: E402
from .torch_loans import ZeroParamStatus  # noqa: E402
from .torch_utils import log_dist  # noqa: E402

_names.names_under(_sys.modules[__name__])


def __getattr__(name: str) -> Any:
    return _names.top(name)


__all__ = ["DeepSpeedConfig", "DeepSpeedEngine", "ZeroParamStatus", "add_config_arguments", "init_distributed", "initialize",
           "log_dist"]

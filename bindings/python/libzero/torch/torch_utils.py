"""deepspeed.utils and deepspeed.comm, as far as training loops touch them."""
# SPDX-License-Identifier: BSD-3-Clause
import logging
from typing import Any, List, Optional

import torch

logger = logging.getLogger("libzero.torch")
_STATES = {"exp_avg": 0, "exp_avg_sq": 1, "momentum_buffer": 0, "sum": 0}


def log_dist(message: str, ranks: Optional[List[int]] = None, level: int = logging.INFO) -> None:
    dist = torch.distributed
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    if not ranks or -1 in ranks or rank in ranks:
        logger.log(level, "[Rank %d] %s", rank, message)


class RepeatingLoader:
    """A loader without an end."""

    def __init__(self, loader: Any):
        self.loader, self._iterator = loader, iter(loader)

    def __iter__(self) -> "RepeatingLoader":
        return self

    def __next__(self) -> Any:
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self.loader)
            return next(self._iterator)


def _engine(parameter: Any, call: str) -> Any:
    engine = getattr(parameter, "libzero_engine", None)
    engine = engine() if engine is not None else None
    if engine is None:
        raise ValueError("%s: this parameter belongs to no engine" % call)
    return engine


def safe_get_full_fp32_param(parameter: Any) -> torch.Tensor:
    """The master, whole. Collective."""
    engine = _engine(parameter, "safe_get_full_fp32_param")
    return engine.read(parameter, torch.empty(engine.registry.shapes[parameter]), "master")


def safe_get_full_optimizer_state(parameter: Any, optim_state_key: str) -> torch.Tensor:
    """"exp_avg", "exp_avg_sq", "momentum_buffer", whole. Collective."""
    engine = _engine(parameter, "safe_get_full_optimizer_state")
    if optim_state_key not in _STATES:
        raise ValueError("state %r: expected one of %s" % (optim_state_key, ", ".join(_STATES)))
    return engine.read(parameter, torch.empty(engine.registry.shapes[parameter]), "state", _STATES[optim_state_key])


def safe_set_full_fp32_param(parameter: Any, value: torch.Tensor) -> None:
    """Overwrites the master, and the parameter with it. Collective."""
    _engine(parameter, "safe_set_full_fp32_param").write(parameter, value, "master")


def safe_set_full_optimizer_state(parameter: Any, value: torch.Tensor, optim_state_key: str) -> None:
    """Collective."""
    engine = _engine(parameter, "safe_set_full_optimizer_state")
    if optim_state_key not in _STATES:
        raise ValueError("state %r: expected one of %s" % (optim_state_key, ", ".join(_STATES)))
    engine.write(parameter, value, "state", _STATES[optim_state_key])


def set_z3_leaf_modules(model: torch.nn.Module, leaf_module_classes: List[Any]) -> List[torch.nn.Module]:
    """The modules that match; each borrows what it holds by itself, so there is nothing to set."""
    found = [m for m in model.modules() for kind in leaf_module_classes
             if (isinstance(m, kind) if isinstance(kind, type) else type(m).__name__ == kind)]
    if not found:
        raise ValueError("set_z3_leaf_modules: no module is one of %s" % (leaf_module_classes,))
    return found

"""deepspeed.utils.safe_get_* and safe_set_*: fp32 values, optimizer states and gradients, whole or this
rank's part, wherever they lie. The full ones are collective."""
# SPDX-License-Identifier: BSD-3-Clause
from typing import Any, List

import torch

from .. import checked
from ..runtime import PARTS
from .torch_tensors import tensor_at

_STATES = {"exp_avg": 0, "exp_avg_sq": 1, "momentum_buffer": 0, "sum": 0}


def _engine(parameter: Any, call: str) -> Any:
    engine = getattr(parameter, "libzero_engine", None)
    engine = engine() if engine is not None else None
    if engine is None:
        raise ValueError("%s: this parameter belongs to no engine" % call)
    return engine


def _state(key: str) -> int:
    if key not in _STATES:
        raise ValueError("state %r: expected one of %s" % (key, ", ".join(_STATES)))
    return _STATES[key]


def safe_get_full_fp32_param(param: Any) -> torch.Tensor:
    """The master, whole. Collective."""
    engine = _engine(param, "safe_get_full_fp32_param")
    return engine.read(param, torch.empty(engine.registry.shapes[param]), "master")


def safe_get_full_optimizer_state(param: Any, optim_state_key: str) -> torch.Tensor:
    """"exp_avg", "exp_avg_sq", "momentum_buffer", whole. Zeros before the first step. Collective."""
    engine = _engine(param, "safe_get_full_optimizer_state")
    return engine.read(param, torch.empty(engine.registry.shapes[param]), "state", _state(optim_state_key))


def safe_set_full_fp32_param(param: Any, value: torch.Tensor) -> None:
    """Overwrites the master, and the parameter with it. Collective."""
    _engine(param, "safe_set_full_fp32_param").write(param, value, "master")


def safe_set_full_optimizer_state(param: Any, value: torch.Tensor, optim_state_key: str) -> None:
    """Collective."""
    _engine(param, "safe_set_full_optimizer_state").write(param, value, "state", _state(optim_state_key))


# ---- this rank's part: libzero's own cut of the flat parameter, not padded; stage 3 alone, as there ---------


def shard_of(engine: Any, param: Any, part: str = "value", index: int = 0) -> torch.Tensor:
    found = checked.shard_buffer(engine.runtime.handle, engine.registry.ids[param], PARTS[part], index)
    return tensor_at(found, (found.count,), engine.runtime._life)


def _part(param: Any, call: str, part: str, index: int = 0) -> torch.Tensor:
    engine = _engine(param, call)
    assert engine.zero_optimization_stage() == 3, "%s: stage %d has whole parameters; expected stage 3" % (
        call, engine.zero_optimization_stage())
    return shard_of(engine, param, part, index)


def safe_get_local_fp32_param(param: Any) -> torch.Tensor:
    return _part(param, "safe_get_local_fp32_param", "master").clone()


def safe_get_local_optimizer_state(param: Any, optim_state_key: str) -> torch.Tensor:
    return _part(param, "safe_get_local_optimizer_state", "state", _state(optim_state_key)).clone()


def safe_set_local_fp32_param(param: Any, value: torch.Tensor) -> None:
    """Seen by the 16-bit parameter after the next step."""
    _part(param, "safe_set_local_fp32_param", "master").copy_(value.reshape(-1))


def safe_set_local_optimizer_state(param: Any, value: torch.Tensor, optim_state_key: str) -> None:
    _part(param, "safe_set_local_optimizer_state", "state", _state(optim_state_key)).copy_(value.reshape(-1))


def safe_get_local_grad(param: Any) -> torch.Tensor:
    engine = _engine(param, "safe_get_local_grad")
    assert engine.zero_optimization_stage() == 3, "safe_get_local_grad: expected stage 3"
    first, count = engine.runtime.shard_span(engine.registry.ids[param])
    return safe_get_full_grad(param).reshape(-1)[first:first + count].clone()


# ---- gradients: copies, kept only where a script has looked up one of these names ---------------------------


class Watch:
    """Sums of what backward passes bring, beside what goes to libzero."""

    wanted = False

    @classmethod
    def begin(cls, parameters: List[torch.nn.Parameter]) -> None:
        """Before an engine is made: its own hooks take the gradients away."""
        for parameter in parameters:
            parameter.libzero_watched = None
            if parameter.requires_grad and hasattr(parameter, "register_post_accumulate_grad_hook"):
                parameter.register_post_accumulate_grad_hook(cls._came)

    @classmethod
    def _came(cls, parameter: torch.nn.Parameter) -> None:
        engine = parameter.libzero_engine() if cls.wanted and parameter.grad is not None else None
        if engine is None:
            return
        step, before = parameter.libzero_watched or (-1, None)
        gradient = parameter.grad.detach()
        gradient = gradient.to_dense() if gradient.layout != torch.strided else gradient
        gradient = gradient.to("cpu", torch.float32, copy=True)
        parameter.libzero_watched = (engine.global_steps, gradient + before if step == engine.global_steps else gradient)


def safe_get_full_grad(param: Any) -> torch.Tensor:
    """The mean over ranks of what came since the last step, fp32, unscaled, before clipping. Collective."""
    engine = _engine(param, "safe_get_full_grad")
    Watch.wanted = True
    kept = getattr(param, "libzero_watched", None)
    mine = kept[1] if kept else torch.zeros(engine.registry.shapes[param])
    came = engine.runtime.comm.all_reduce(float(kept is not None), "max")
    if not came:
        raise ValueError("safe_get_full_grad: no gradient of this parameter has been kept: gradients go to libzero at once, and "
                         "copies begin where the script first looks this name up; expected `from deepspeed.utils import "
                         "safe_get_full_grad` before initialize, and a backward since")
    total = mine.double().reshape(-1).contiguous()
    engine.runtime.comm.all_reduce(total.numpy())
    scale = engine.world_size * engine.runtime.loss_scale
    return (total / scale).float().view(engine.registry.shapes[param])


def safe_set_full_grad(param: Any, value: torch.Tensor) -> None:
    raise NotImplementedError("safe_set_full_grad: a gradient belongs to libzero once it has come; change it on its way: "
                              "parameter.register_hook(lambda gradient: ...) before backward")


def safe_set_local_grad(param: Any, value: torch.Tensor) -> None:
    raise NotImplementedError("safe_set_local_grad: see safe_set_full_grad: parameter.register_hook changes a gradient")


NAMES = ("safe_get_full_fp32_param safe_get_full_optimizer_state safe_set_full_fp32_param safe_set_full_optimizer_state "
         "safe_get_local_fp32_param safe_get_local_optimizer_state safe_set_local_fp32_param safe_set_local_optimizer_state "
         "safe_set_full_grad safe_set_local_grad")
WATCHING = ("safe_get_full_grad", "safe_get_local_grad")

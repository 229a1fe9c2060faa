"""deepspeed.zero: Init, GatheredParameters, register_external_parameter."""
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
from typing import Any, Dict, Iterable, List

import torch

from ..arrays import bytes_at
from .torch_loans import Loans, ZeroParamStatus, loans_of

__all__ = ["GatheredParameters", "Init", "ZeroParamStatus", "register_external_parameter"]


class Init(contextlib.ContextDecorator):
    """Parameters stay whole until initialize shards them: there is nothing to do here. What a script asks
    for beside that and would be silently different is refused."""

    def __init__(self, module: Any = None, data_parallel_group: Any = None, mem_efficient_linear: bool = True,
                 remote_device: Any = None, pin_memory: bool = False, config_dict_or_path: Any = None, config: Any = None,
                 enabled: bool = True, dtype: Any = None, mpu: Any = None, **unknown: Any):
        if unknown:
            raise NotImplementedError("zero.Init: %s is not in libzero.torch" % ", ".join(sorted(unknown)))
        if enabled and remote_device not in (None, "cpu", "none"):
            raise NotImplementedError("zero.Init: remote_device=%r is not in libzero.torch" % (remote_device,))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


class GatheredParameters:
    """Whole parameters inside; at stages 0 to 2 they are that anyway. modifier_rank=r: r's values become
    every rank's, masters included. Without it a write is an error at the end, not dropped. Collective."""

    def __init__(self, params: Any, modifier_rank: Any = None, fwd_module: Any = None, enabled: bool = True):
        if isinstance(params, torch.Tensor):
            params = [params]
        found: List[torch.nn.Parameter] = list(params) if enabled else []
        self._modifier = modifier_rank
        self._by_loans: Dict[int, Any] = {}
        seen = set()
        for parameter in found:
            loans = loans_of(parameter)
            if loans is not None and parameter not in seen:
                seen.add(parameter)
                self._by_loans.setdefault(id(loans), (loans, []))[1].append(parameter)
        self._versions: List[Any] = []

    def _pairs(self) -> Iterable[Any]:
        return self._by_loans.values()

    def __enter__(self) -> None:
        for loans, parameters in self._pairs():
            if any(loans.is_whole(p) for p in parameters):
                raise RuntimeError("GatheredParameters: some of these parameters are gathered already")
        for loans, parameters in self._pairs():
            loans.borrow(parameters)
            self._versions += [(p, p._version, p.data_ptr()) for p in parameters]

    def __exit__(self, kind: Any, *_: Any) -> None:
        written = [p for p, version, address in self._versions if p._version != version or p.data_ptr() != address]
        for loans, parameters in self._pairs():
            keep = self._modifier is not None and kind is None
            if keep:
                for parameter in parameters:
                    self._send(loans, parameter)
            loans.give_back(parameters, keep_changes=keep)
        self._versions = []
        if written and self._modifier is None and kind is None:
            raise RuntimeError("GatheredParameters: a parameter was written, but without modifier_rank the change is lost; "
                               "expected modifier_rank=0 (that rank's values become all ranks')")

    def _send(self, loans: Loans, parameter: torch.nn.Parameter) -> None:
        values = parameter.data
        home = loans.home(parameter)
        if values.data_ptr() != home.data_ptr():  # parameter.data = ... inside
            home.copy_(values)
            parameter.data = home
        loans.comm.broadcast(bytes_at(home.data_ptr(), home.numel() * home.element_size()), int(self._modifier))


def register_external_parameter(module: torch.nn.Module, parameter: Any) -> None:
    """Nothing to register: a look-up of another module's parameter borrows it."""
    if not isinstance(parameter, torch.nn.Parameter):
        raise RuntimeError("register_external_parameter: expected a Parameter, not %s" % type(parameter).__name__)


def unregister_external_parameter(module: torch.nn.Module, parameter: Any) -> None:
    """The other half of a call that does nothing."""
    register_external_parameter(module, parameter)


def zero_wrapper_for_fp_tensor_constructor(fn: Any, target_fp_dtype: Any) -> Any:
    """A torch constructor whose floats come in a dtype. Init does not use it: transformers puts its own here."""
    def made(*words: Any, **options: Any) -> Any:
        tensor = fn(*words, **options)
        return tensor.to(target_fp_dtype) if tensor.is_floating_point() else tensor
    return made

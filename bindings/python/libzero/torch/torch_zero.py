"""deepspeed.zero: Init, GatheredParameters, register_external_parameter."""
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
from typing import Any, Dict, Iterable, List

import torch

from ..arrays import bytes_at
from .torch_born import Births
from .torch_loans import Loans, ZeroParamStatus, loans_of
from .torch_settings import Settings, read_source
from .torch_tensors import born_of

__all__ = ["GatheredParameters", "Init", "ZeroParamStatus", "register_external_parameter"]


class Init(contextlib.ContextDecorator):
    """Parameters made inside are born sharded (stage 3): each rank keeps its part of rank 0's values.
    Init(module=m, ...) shards m where it is. Buffers, and tensors that constructors make, keep their
    dtype; parameters take the config's. Collective."""

    def __init__(self, module: Any = None, data_parallel_group: Any = None, mem_efficient_linear: bool = True,
                 remote_device: Any = None, pin_memory: bool = False, config_dict_or_path: Any = None, config: Any = None,
                 enabled: bool = True, dtype: Any = None, mpu: Any = None, **unknown: Any):
        if unknown:
            raise NotImplementedError("zero.Init: %s is not in libzero.torch" % ", ".join(sorted(unknown)))
        if enabled and remote_device not in (None, "cpu", "none"):
            raise NotImplementedError("zero.Init: remote_device=%r is not in libzero.torch; its shards lie in host memory until "
                                      "initialize" % (remote_device,))
        given = config_dict_or_path if config_dict_or_path is not None else config
        read = read_source(None, given) if given is not None else None
        self._births: Any = None
        if enabled and (read is None or Settings(read).stage == 3):
            kind = dtype or {"fp16": torch.float16, "bf16": torch.bfloat16}.get(Settings(read or {}).compute_dtype)
            self._births = Births(read, kind)
            if module is not None:
                for one in module.modules():
                    self._births.shard(one)

    def __enter__(self) -> None:
        if self._births:
            self._births.start()

    def __exit__(self, *_: Any) -> None:
        if self._births:
            self._births.stop()


def _bits(tensor: torch.Tensor) -> int:
    """A sum that a write changes, also one through .data, which no version counts."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return int(torch.sum(tensor.detach().contiguous().view(-1).view(kinds[tensor.element_size()]), dtype=torch.int64)) \
        if tensor.numel() else 0


class GatheredParameters:
    """Whole parameters inside; at stages 0 to 2 they are that anyway. modifier_rank=r: r's values become
    every rank's, masters included. Without it a write is an error at the end, not dropped. Collective."""

    def __init__(self, params: Any, modifier_rank: Any = None, fwd_module: Any = None, enabled: bool = True):
        if isinstance(params, torch.Tensor):
            params = [params]
        found: List[torch.nn.Parameter] = list(params) if enabled else []
        self._modifier = modifier_rank
        self._by_loans: Dict[int, Any] = {}
        self._born: List[torch.nn.Parameter] = []
        for parameter in dict.fromkeys(found):
            loans = loans_of(parameter)
            if loans is not None:
                self._by_loans.setdefault(id(loans), (loans, []))[1].append(parameter)
            elif born_of(parameter):
                self._born.append(parameter)
        self._before: List[Any] = []

    def _pairs(self) -> Iterable[Any]:
        return self._by_loans.values()

    def __enter__(self) -> None:
        if any(loans.is_whole(p) for loans, parameters in self._pairs() for p in parameters) or any(
                born_of(p).holders for p in self._born):
            raise RuntimeError("GatheredParameters: some of these parameters are gathered already")
        for loans, parameters in self._pairs():
            loans.borrow(parameters)
        for parameter in self._born:
            born = born_of(parameter)
            born.holders = 1
            parameter.data = born.whole()
            parameter.ds_status = ZeroParamStatus.AVAILABLE
        if self._modifier is None:
            self._before = [(p, p._version, p.data_ptr(), _bits(p)) for p in self._all()]

    def _all(self) -> List[torch.nn.Parameter]:
        return [p for _, parameters in self._pairs() for p in parameters] + self._born

    def __exit__(self, kind: Any, *_: Any) -> None:
        written = [p for p, version, address, bits in self._before
                   if p._version != version or p.data_ptr() != address or _bits(p) != bits]
        keep = self._modifier is not None and kind is None
        for loans, parameters in self._pairs():
            if keep:
                for parameter in parameters:
                    self._send(loans, parameter)
            loans.give_back(parameters, keep_changes=keep)
        for parameter in self._born:
            born = born_of(parameter)
            born.holders = 0
            if keep:
                born.keep(parameter, int(self._modifier))
            born.put_away(parameter)
        self._before = []
        if written and kind is None:
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

"""Parameters born sharded: inside zero.Init each module's parameters become this rank's part of rank 0's
values the moment its __init__ ends; initialize hands them on to the engine one at a time."""
# SPDX-License-Identifier: BSD-3-Clause
import functools
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch

from ..arrays import bytes_at
from .torch_loans import ZeroParamStatus
from .torch_settings import Settings
from .torch_tensors import born_of

_comm: Any = None


def _meet(config: Optional[dict]) -> Any:
    """One communicator for all that is born in this process; engines have their own. Collective."""
    global _comm
    if _comm is None:
        _comm = Settings(config or {}).meet("torch-born")
    return _comm


def _send(comm: Any, tensor: torch.Tensor, root: int) -> None:
    if tensor.numel():
        comm.broadcast(bytes_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()), root)


class Born:
    """One sharded parameter: this rank's part of it, flat, the last ones padded."""

    def __init__(self, parameter: torch.nn.Parameter, comm: Any, number: int, dtype: Optional[torch.dtype]):
        self.comm, self.shape, self.dtype = comm, parameter.shape, dtype or parameter.dtype
        self.part = -(-parameter.numel() // comm.size)
        self.shard = torch.empty(0)
        self.holders = 0  # contexts in which it is whole
        self.keep(parameter, 0)
        parameter.libzero_born = self
        parameter.ds_id, parameter.ds_shape, parameter.ds_numel = number, self.shape, self.shape.numel()
        self.put_away(parameter)

    def keep(self, parameter: torch.nn.Parameter, root: int) -> None:
        """root's values become every rank's, each keeps its part. Collective."""
        values = parameter.detach()
        if values.shape != self.shape:
            raise RuntimeError("zero.Init: a parameter of shape %s was given values of shape %s; expected its own shape" % (
                tuple(self.shape), tuple(values.shape)))
        flat = torch.zeros(self.part * self.comm.size, dtype=self.dtype)
        flat[:values.numel()].copy_(values.reshape(-1))
        _send(self.comm, flat, root)
        self.shard = flat[self.comm.rank * self.part:][:self.part].clone()

    def whole(self) -> torch.Tensor:
        """All ranks' parts. Collective."""
        flat = torch.empty(self.part * self.comm.size, dtype=self.dtype)
        flat[self.comm.rank * self.part:][:self.part] = self.shard
        for rank in range(self.comm.size):
            _send(self.comm, flat[rank * self.part:][:self.part], rank)
        return flat[:self.shape.numel()].view(self.shape)

    def put_away(self, parameter: torch.nn.Parameter) -> None:
        parameter.data = torch.full((), float("nan"), dtype=self.dtype).expand(self.shape)
        parameter.ds_status = ZeroParamStatus.NOT_AVAILABLE
        parameter.ds_tensor = self.shard

    def cast(self, parameter: torch.nn.Parameter, dtype: torch.dtype) -> None:
        self.dtype, self.shard = dtype, self.shard.to(dtype)
        self.put_away(parameter)

    def check_untouched(self, parameter: torch.nn.Parameter, name: str) -> None:
        away = parameter.data
        if away.numel() and not bool(torch.isnan(away[(0,) * away.dim()])):
            raise RuntimeError("param %r was written while it is sharded (zero.Init): the change is lost; expected "
                               "zero.GatheredParameters(parameter, modifier_rank=0) around it" % name)


def forget(parameter: torch.nn.Parameter) -> None:
    """The engine has its values; below stage 3 it is a plain parameter again."""
    names = ["libzero_born", "ds_tensor"]
    if not hasattr(parameter, "libzero_loans"):
        names += ["ds_id", "ds_shape", "ds_numel", "ds_status"]
    for name in names:
        if hasattr(parameter, name):
            delattr(parameter, name)


def _subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


class Births:
    """While it is active, modules are sharded as their __init__ ends, and apply(fn) sees whole parameters."""

    active: List["Births"] = []
    count = 0

    def __init__(self, config: Optional[dict], dtype: Optional[torch.dtype]):
        self._comm, self._dtype = _meet(config), dtype
        self._inits: Dict[type, Callable] = {}
        self._depth: Dict[int, int] = {}

    def start(self) -> None:
        if not Births.active:
            for kind in set(_subclasses(torch.nn.Module)):
                self._wrap(kind)
            self._apply, self._init_subclass = torch.nn.Module.apply, torch.nn.Module.__dict__.get("__init_subclass__")
            torch.nn.Module.apply = self._gathering_apply()  # type: ignore[method-assign,assignment]
            torch.nn.Module.__init_subclass__ = classmethod(self._new_kind)  # type: ignore[assignment]
        Births.active.append(self)

    def stop(self) -> None:
        Births.active.remove(self)
        if Births.active:
            return
        for kind, init in self._inits.items():
            kind.__init__ = init  # type: ignore[misc]
        self._inits.clear()
        torch.nn.Module.apply = self._apply  # type: ignore[method-assign]
        if self._init_subclass is not None:
            torch.nn.Module.__init_subclass__ = self._init_subclass
        else:
            del torch.nn.Module.__init_subclass__

    def _new_kind(self, kind: type, **words: Any) -> None:
        super(torch.nn.Module, kind).__init_subclass__(**words)
        self._wrap(kind)

    def _wrap(self, kind: type) -> None:
        init = kind.__dict__.get("__init__")
        if init is None or kind in self._inits:
            return
        self._inits[kind] = init

        @functools.wraps(init)
        def wrapped(module: Any, *words: Any, **options: Any) -> None:
            depth = self._depth
            depth[id(module)] = depth.get(id(module), 0) + 1
            try:
                init(module, *words, **options)
            finally:
                depth[id(module)] -= 1
                outermost = not depth[id(module)]
                if outermost:
                    del depth[id(module)]
            if outermost and Births.active:
                Births.active[-1].shard(module)

        kind.__init__ = wrapped  # type: ignore[misc]

    def shard(self, module: torch.nn.Module) -> None:
        """What the module holds itself. Collective."""
        with torch.no_grad():
            for parameter in module.__dict__.get("_parameters", {}).values():
                if (parameter is None or born_of(parameter) or not parameter.is_floating_point() or
                        parameter.device.type != "cpu" or hasattr(parameter, "libzero_loans")):
                    continue
                Born(parameter, self._comm, Births.count, self._dtype)
                Births.count += 1

    def _gathering_apply(self) -> Callable:
        def apply(module: torch.nn.Module, fn: Callable) -> torch.nn.Module:
            from .torch_zero import GatheredParameters
            for child in module.children():
                child.apply(fn)
            with GatheredParameters(list(module.parameters(recurse=False)), modifier_rank=0):
                fn(module)
            return module
        return apply

"""Stage 3: each module's parameters are whole while it runs, and again where autograd wants them.

Forward: hooks before and after every module borrow and give back what it holds itself; a parameter of
another module that is looked up meanwhile (tied weights, nn.MultiheadAttention) is borrowed too, until
the module that looked ends. What autograd saves of a loan is remembered as a place in a parameter, and
the parameter borrowed again when backward reads it. Between loans a parameter has its shape and no
values: reading gives NaN, writing is torch's own error."""
# SPDX-License-Identifier: BSD-3-Clause
import enum
import math
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.utils.checkpoint

from .. import checked
from ..errors import OutOfMemory
from ..runtime import Runtime
from .torch_registry import Registry
from .torch_tensors import placeholder, storage_address, stream_of, tensor_at

Parameter = torch.nn.Parameter
_OPEN_IN_BACKWARD = 2  # units: one operation may read parameters of two modules


class ZeroParamStatus(enum.Enum):
    """What a stage 3 parameter's ds_status says."""
    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class _Place(NamedTuple):
    """A tensor that autograd saved: a view of a parameter that was on loan."""
    parameter: Parameter
    size: Tuple[int, ...]
    stride: Tuple[int, ...]
    offset: int


class _Frame:
    """A module that is running, and what is borrowed until it ends."""

    def __init__(self, module: torch.nn.Module):
        self.module = module
        self.borrowed: List[List[Parameter]] = []


class _Lookup(dict):
    """A module's _parameters: a look-up while modules run borrows what is not there."""

    loans: "Loans"

    def __getitem__(self, name: str) -> Any:
        found = dict.__getitem__(self, name)
        if found is not None:
            self.loans.looked_up(found)
        return found

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def in_backward() -> bool:
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    return graph_task is not None and graph_task() != -1


def others_save() -> bool:
    """Whether what autograd saves goes to somebody's hooks already (a checkpoint that recomputes)."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if top is not None:
        return top(True) is not None
    # torch before 2 does not say: whoever recomputes does.
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is torch.utils.checkpoint.CheckpointFunction.backward.__code__:
            return False
        if frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            return True
        frame = frame.f_back
    raise RuntimeError("a module was run during backward (stage 3, torch %s) by something else than torch.utils.checkpoint; "
                       "expected torch 2 or later for that" % torch.__version__)


class Loans:
    """The loans of one engine."""

    def __init__(self, runtime: Runtime, registry: Registry, module: torch.nn.Module, device: torch.device):
        self._runtime, self._registry, self._device = runtime, registry, device
        self._ids = {p: i for p, i in registry.ids.items() if registry.role(p) != "buffer"}
        self._units = [[p for p in unit if p in self._ids] for unit in registry.units]
        self._unit_of = {p: number for number, unit in enumerate(self._units) for p in unit}
        self._whole: Dict[Parameter, int] = {}  # how many hold it whole
        self._at: Dict[int, Parameter] = {}  # by the address of its loan
        self._tensors: Dict[Tuple[int, Parameter], torch.Tensor] = {}
        self._now: Dict[Parameter, torch.Tensor] = {}  # of its newest loan
        self._frames: List[_Frame] = []
        self._recent: List[int] = []  # units that a backward pass holds
        self._saving: Any = None
        self._placeholders = {p: placeholder(p) for p in self._ids}
        self._hooks: List[Any] = []
        self.engine_backward = False
        for parameter in self._ids:
            self._describe(parameter)
            self._take_away(parameter)
        self._install(module)

    def _describe(self, parameter: Parameter) -> None:
        parameter.ds_id = self._ids[parameter]
        parameter.ds_shape, parameter.ds_numel = parameter.shape, parameter.numel()
        parameter.libzero_loans = self

    def _install(self, root: torch.nn.Module) -> None:
        known = torch.nn.Module.register_forward_hook.__code__.co_varnames
        always = {"always_call": True} if "always_call" in known else {}
        for module in root.modules():
            self._hooks.append(module.register_forward_pre_hook(self._before))
            self._hooks.append(module.register_forward_hook(self._after, **always))
            if module._parameters:
                found = _Lookup(module._parameters)
                found.loans = self
                module.__dict__["_parameters"] = found

    def remove(self, root: torch.nn.Module) -> None:
        for hook in self._hooks:
            hook.remove()
        for module in root.modules():
            module.__dict__["_parameters"] = dict(module._parameters)

    # ---- whole or away --------------------------------------------------------------------------

    def _take_away(self, parameter: Parameter) -> None:
        parameter.data = self._placeholders[parameter]
        parameter.ds_status = ZeroParamStatus.NOT_AVAILABLE

    def _acquire(self, parameters: List[Parameter]) -> List[torch.Tensor]:
        ids = [self._ids[p] for p in parameters]
        try:
            found = checked.params_acquire(self._runtime.handle, ids, stream_of(self._device))
        except OutOfMemory:
            if not self._recent:
                raise
            self._close_recent()
            found = checked.params_acquire(self._runtime.handle, ids, stream_of(self._device))
        tensors = []
        for parameter, buffer in zip(parameters, found):
            key = (buffer.data, parameter)
            tensor = self._tensors.get(key)
            if tensor is None:
                tensor = self._tensors[key] = tensor_at(buffer, parameter.ds_shape, self._runtime._life)
            self._now[parameter] = tensor
            tensors.append(tensor)
        return tensors

    def _release(self, parameters: List[Parameter], keep_changes: bool = False) -> None:
        checked.params_release(self._runtime.handle, [self._ids[p] for p in parameters], int(keep_changes),
                               stream_of(self._device))

    def borrow(self, parameters: List[Parameter]) -> None:
        """Whole until give_back; borrowed twice, given back twice. Collective."""
        if not parameters:
            return
        for parameter, tensor in zip(parameters, self._acquire(parameters)):
            count = self._whole.get(parameter, 0)
            self._whole[parameter] = count + 1
            if count == 0:
                parameter.data = tensor
                parameter.ds_status = ZeroParamStatus.AVAILABLE
                self._at[tensor.data_ptr()] = parameter

    def give_back(self, parameters: List[Parameter], keep_changes: bool = False) -> None:
        if not parameters:
            return
        for parameter in parameters:
            self._whole[parameter] -= 1
            if self._whole[parameter] == 0:
                del self._whole[parameter]
                self._at.pop(self._now[parameter].data_ptr(), None)
                self._take_away(parameter)
        self._release(parameters, keep_changes)

    def home(self, parameter: Parameter) -> torch.Tensor:
        """Where the loan in hand lies."""
        return self._now[parameter]

    @property
    def comm(self) -> Any:
        return self._runtime.comm

    def check_untouched(self) -> None:
        """Writing into a parameter that is away is torch's error, but for fill_ and zero_: they are found here."""
        for parameter, away in self._placeholders.items():
            if away.numel() and not math.isnan(away[(0,) * away.dim()].item()):
                away.fill_(float("nan"))
                raise RuntimeError("param %r was written while its values are elsewhere (stage 3): the change is lost; "
                                   "expected zero.GatheredParameters(parameter, modifier_rank=0) around it" % (
                                       self._registry.names[parameter]))

    def is_whole(self, parameter: Parameter) -> bool:
        return parameter in self._whole

    # ---- forward ----------------------------------------------------------------------------------

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        if not self._frames and torch.is_grad_enabled() and not (self._passes_back() and others_save()):
            self._saving = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            self._saving.__enter__()
        frame = _Frame(module)
        self._frames.append(frame)
        own = [p for p in dict.values(module._parameters) if p is not None and p in self._ids]
        self._lend(frame, own)

    def _passes_back(self) -> bool:
        return self.engine_backward or in_backward()

    def _lend(self, frame: _Frame, parameters: List[Parameter]) -> None:
        if not parameters:
            return
        if self._saving is None and self._passes_back():
            # A recomputation whose checkpoint keeps what is saved as it is: it gets values that stay.
            parameters = [p for p in parameters if p not in self._whole]
            self._close_recent()
            for parameter, tensor in zip(parameters, self._acquire(parameters) if parameters else []):
                parameter.data = tensor.clone()
                self._whole[parameter] = 1
            if parameters:
                self._release(parameters)
                frame.borrowed.append([*parameters, None])  # None: no loan, a copy
            return
        self.borrow(parameters)
        frame.borrowed.append(parameters)

    def _after(self, module: torch.nn.Module, _: Any, output: Any) -> Any:
        if not self._frames or self._frames[-1].module is not module:
            return None
        frame = self._frames.pop()
        kept = self._kept(output) if frame.borrowed and output is not None else None
        self._end(frame)
        if not self._frames:
            self._stop_saving()
        return kept

    def _end(self, frame: _Frame) -> None:
        for parameters in reversed(frame.borrowed):
            if parameters[-1] is None:
                for parameter in parameters[:-1]:
                    del self._whole[parameter]
                    self._take_away(parameter)
            else:
                self.give_back(parameters)

    def _stop_saving(self) -> None:
        if self._saving is not None:
            self._saving.__exit__(None, None, None)
            self._saving = None

    def unwind(self) -> None:
        """After an exception: ends what its modules still had on loan."""
        while self._frames:
            self._end(self._frames.pop())
        self._stop_saving()
        self._close_recent()

    def looked_up(self, parameter: Parameter) -> None:
        if self._frames and parameter not in self._whole and parameter in self._ids:
            self._lend(self._frames[-1], [parameter])

    def _kept(self, output: Any) -> Any:
        """An output that is itself a view of a loan is copied: the loan ends now. None: nothing was."""
        if isinstance(output, torch.Tensor):
            return output.clone() if storage_address(output) in self._at else None
        if isinstance(output, (list, tuple)):
            kept = [self._kept(one) for one in output]
            if all(one is None for one in kept):
                return None
            values = [one if new is None else new for one, new in zip(output, kept)]
            return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)
        if isinstance(output, dict):
            found = None
            for key, one in list(output.items()):
                new = self._kept(one)
                if new is not None:
                    output[key] = new
                    found = output
            return found
        return None

    # ---- what autograd saves, and backward ----------------------------------------------------------

    def _pack(self, tensor: torch.Tensor) -> Any:
        parameter = self._at.get(storage_address(tensor))
        if parameter is None:
            return tensor.detach() if tensor.grad_fn is not None else tensor
        if tensor.dtype != parameter.dtype:
            return tensor.detach().clone()
        return _Place(parameter, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def _unpack(self, packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        unit = self._unit_of[packed.parameter]
        if unit in self._recent:
            self._recent.remove(unit)
            self._recent.append(unit)
        else:
            while len(self._recent) >= _OPEN_IN_BACKWARD:
                self._release(self._units[self._recent.pop(0)])
            self._acquire(self._units[unit])
            self._recent.append(unit)
            if not self.engine_backward and len(self._recent) == 1 and in_backward():
                torch.autograd.Variable._execution_engine.queue_callback(self._close_recent)
        return torch.as_strided(self._now[packed.parameter], packed.size, packed.stride, packed.offset)

    def _close_recent(self) -> None:
        """The pass is over, or room is needed. Collective in its order."""
        while self._recent:
            self._release(self._units[self._recent.pop(0)])

    def end_of_backward(self) -> None:
        self._close_recent()


def loans_of(parameter: Parameter) -> Optional[Loans]:
    return getattr(parameter, "libzero_loans", None)

"""A module's parameters and buffers in a libzero model: roles, groups, ties, units."""
# SPDX-License-Identifier: BSD-3-Clause
from typing import Dict, List, Optional, Set

import torch

from ..model import Model
from .torch_optimizers import group_values
from .torch_tensors import DTYPES, born_of, memory_of_tensor

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
Parameter = torch.nn.Parameter


def cast(module: torch.nn.Module, compute: str) -> None:
    """Parameters, not buffers, to the config's dtype, in place."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(compute)
    if dtype is None:
        return
    for parameter in module.parameters():
        if parameter.dtype in _FLOATS and parameter.dtype != dtype:
            born = born_of(parameter)
            if born:
                born.cast(parameter, dtype)
            else:
                parameter.data = parameter.data.to(dtype)


def units_of(module: torch.nn.Module) -> List[List[Parameter]]:
    """What a module holds itself is gathered together at stage 3."""
    seen: Set[Parameter] = set()
    units = []
    for one in module.modules():
        own = [p for p in one._parameters.values() if p is not None and p not in seen]
        seen.update(own)
        if own:
            units.append(own)
    return units


def live_elements(module: torch.nn.Module) -> int:
    """What stage 3 needs whole at once: a chain of modules, each inside the one before, and the two largest units
    beside it that backward may hold. Ties count once; a unit takes a whole slot of its kind. An eighth of the
    model where that is more, as libzero takes by itself."""
    units = units_of(module)
    sizes = [sum(p.numel() for p in unit) for unit in units]
    unit_of = {parameter: number for number, unit in enumerate(units) for parameter in unit}
    large = 4 * max(2**18, sum(sizes) // 64)
    slot = max((size for size in sizes if size <= large), default=0)
    costs = [size if size > large else slot for size in sizes]
    order = sorted(range(len(units)), key=lambda number: -costs[number])

    def most(one: torch.nn.Module, chain: Set[int]) -> int:
        chain = chain | {unit_of[p] for p in one._parameters.values() if p is not None}
        beside = [number for number in order[:len(chain) + 2] if number not in chain][:2]
        whole = sum(costs[number] for number in chain) + sum(costs[number] for number in beside)
        return max([whole, *(most(child, chain) for child in one.children())])

    return max(most(module, set()), sum(sizes) // 8)


class Registry:
    """Which parameter has which id, name, unit and group; what is not libzero's is in neither."""

    def __init__(self, module: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer]):
        self.model = Model()
        self.ids: Dict[Parameter, int] = {}
        self.names: Dict[Parameter, str] = {}
        self.shapes: Dict[Parameter, torch.Size] = {}
        self.trained: List[Parameter] = []
        self.buffers: Dict[str, int] = {}
        self.groups: List[int] = []
        self._role_of: Dict[Parameter, str] = {}
        self._group_of: Dict[Parameter, int] = {}
        self._module = module
        groups = self._add_groups(optimizer)
        self.units = units_of(module)
        unit_of = {parameter: number for number, unit in enumerate(self.units) for parameter in unit}
        self._add_parameters(groups, unit_of)
        self._add_buffers()

    def _add_groups(self, optimizer: Optional[torch.optim.Optimizer]) -> Dict[Parameter, int]:
        names = {parameter: name for name, parameter in self._module.named_parameters()}
        groups: Dict[Parameter, int] = {}
        for index, group in enumerate(optimizer.param_groups if optimizer else []):
            number = self.model.group("group_%d" % index, **group_values(group))
            self.groups.append(number)
            for parameter in group["params"]:
                if parameter not in names:
                    raise ValueError("group %d of the optimizer holds a parameter of shape %s that is not the model's" % (
                        index, tuple(parameter.shape)))
                groups[parameter] = number
        return groups

    def _add_parameters(self, groups: Dict[Parameter, int], unit_of: Dict[Parameter, int]) -> None:
        addresses: Dict[int, str] = {}
        for prefix, module in self._module.named_modules(remove_duplicate=False):
            for own, parameter in module._parameters.items():
                if parameter is None:
                    continue
                name = prefix + "." + own if prefix else own
                if parameter in self.ids:
                    self.model.add(name, shape=parameter.shape, dtype=DTYPES[parameter.dtype], tied_to=self.ids[parameter],
                                   group=self._group_of[parameter], role=self._role_of[parameter])
                    continue
                if parameter.dtype not in DTYPES:
                    raise NotImplementedError("parameter %r is %s, which libzero has not" % (name, parameter.dtype))
                born = born_of(parameter)
                address = parameter.data_ptr() if parameter.numel() and not born else 0
                if address and address in addresses:
                    raise NotImplementedError("parameters %r and %r share memory but are two objects; expected one "
                                              "Parameter in both places" % (addresses[address], name))
                addresses[address] = name
                is_trained = parameter.requires_grad and parameter in groups
                role = "trained" if is_trained else "frozen" if parameter.dtype in _FLOATS else "buffer"
                group = groups.get(parameter, 0)
                self._role_of[parameter], self._group_of[parameter] = role, group
                unit = unit_of[parameter] if role != "buffer" else -1
                values = {"shape": parameter.shape, "dtype": DTYPES[parameter.dtype]} if born else {
                    "data": memory_of_tensor(parameter)}
                self.ids[parameter] = self.model.add(name, group=group, role=role, unit=unit, **values)
                self.names[parameter], self.shapes[parameter] = name, parameter.shape
                if is_trained:
                    self.trained.append(parameter)

    def role(self, parameter: Parameter) -> str:
        return self._role_of[parameter]

    def _add_buffers(self) -> None:
        """The persistent ones; a dtype that libzero has not stays each rank's own."""
        skipped: Set[str] = set()
        for prefix, module in self._module.named_modules(remove_duplicate=False):
            skipped |= {prefix + "." + n if prefix else n for n in module._non_persistent_buffers_set}
        for name, buffer in self._module.named_buffers():
            if name not in skipped and buffer.dtype in DTYPES and buffer.layout == torch.strided and buffer.numel():
                self.buffers[name] = self.model.add(name, memory_of_tensor(buffer), role="buffer")

    def forget_values(self) -> None:
        """The first values, which the runtime has read, are not needed any more; its own hold on the model goes on."""
        self.model._life.keeps.clear()
        self.model.destroy()

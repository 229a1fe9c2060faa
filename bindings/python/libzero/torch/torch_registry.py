"""A module's parameters and buffers in a libzero model: roles, groups, ties, units."""
# SPDX-License-Identifier: BSD-3-Clause
from typing import Dict, List, Optional, Set

import torch

from ..model import Model
from .torch_optimizers import group_values
from .torch_tensors import DTYPES, memory_of_tensor

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
Parameter = torch.nn.Parameter


def cast(module: torch.nn.Module, compute: str) -> None:
    """Parameters, not buffers, to the config's dtype, in place."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(compute)
    if dtype is None:
        return
    for parameter in module.parameters():
        if parameter.dtype in _FLOATS and parameter.dtype != dtype:
            parameter.data = parameter.data.to(dtype)


class Registry:
    """Which parameter has which id, name, unit and group; what is not libzero's is in neither."""

    def __init__(self, module: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer]):
        self.model = Model()
        self.ids: Dict[Parameter, int] = {}
        self.names: Dict[Parameter, str] = {}
        self.trained: List[Parameter] = []
        self.units: List[List[Parameter]] = []
        self.buffers: Dict[str, int] = {}
        self.groups: List[int] = []
        self._role_of: Dict[Parameter, str] = {}
        self._group_of: Dict[Parameter, int] = {}
        self._module = module
        groups = self._add_groups(optimizer)
        unit_of = self._find_units()
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

    def _find_units(self) -> Dict[Parameter, int]:
        """What a module holds itself is gathered together at stage 3."""
        unit_of: Dict[Parameter, int] = {}
        for module in self._module.modules():
            own = [p for p in module._parameters.values() if p is not None and p not in unit_of]
            if own:
                for parameter in own:
                    unit_of[parameter] = len(self.units)
                self.units.append(own)
        return unit_of

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
                address = parameter.data_ptr() if parameter.numel() else 0
                if address and address in addresses:
                    raise NotImplementedError("parameters %r and %r share memory but are two objects; expected one "
                                              "Parameter in both places" % (addresses[address], name))
                addresses[address] = name
                is_trained = parameter.requires_grad and parameter in groups
                role = "trained" if is_trained else "frozen" if parameter.dtype in _FLOATS else "buffer"
                group = groups.get(parameter, 0)
                self._role_of[parameter], self._group_of[parameter] = role, group
                unit = unit_of[parameter] if role != "buffer" else -1
                self.ids[parameter] = self.model.add(name, memory_of_tensor(parameter), group=group, role=role, unit=unit)
                self.names[parameter] = name
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
        """The model's copies of the first values are not needed any more."""
        self.model.destroy()

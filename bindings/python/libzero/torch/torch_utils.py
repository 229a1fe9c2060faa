"""deepspeed.utils and deepspeed.comm, as far as training loops touch them."""
# SPDX-License-Identifier: BSD-3-Clause
import enum
import logging
import os
from typing import Any, List, Optional, Set

import torch

logger = logging.getLogger("libzero.torch")


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


def log_dist_once(message: str, ranks: Optional[List[int]] = None, level: int = logging.INFO) -> None:
    if message not in _said:
        _said.add(message)
        log_dist(message, ranks, level)


_said: Set[str] = set()


def set_log_level_from_string(log_level_str: str, custom_logger: Any = None) -> None:
    """A level by its name in any case."""
    level = logging.getLevelName(str(log_level_str).upper())
    if not isinstance(level, int):
        raise ValueError("%r is no level of logging" % log_level_str)
    (custom_logger or logger).setLevel(level)


# ---- leaf modules: each module borrows what it holds by itself, so nothing has to be set ----------------


def set_z3_leaf_modules(model: torch.nn.Module, leaf_module_classes: List[Any]) -> List[torch.nn.Module]:
    """The modules that match, marked."""
    found = [m for m in model.modules() for kind in leaf_module_classes
             if (isinstance(m, kind) if isinstance(kind, type) else
                 kind in (type(m).__name__, "%s.%s" % (type(m).__module__, type(m).__qualname__)))]
    if not found:
        raise ValueError("set_z3_leaf_modules: no module is one of %s" % (leaf_module_classes,))
    for module in found:
        module._z3_leaf = True
    return found


def set_z3_leaf_module(model: torch.nn.Module, flag: bool = True) -> None:
    model._z3_leaf = flag


def unset_z3_leaf_modules(model: torch.nn.Module, leaf_module_classes: List[Any]) -> List[torch.nn.Module]:
    found = set_z3_leaf_modules(model, leaf_module_classes)
    for module in found:
        module._z3_leaf = False
    return found


def get_z3_leaf_modules(model: torch.nn.Module) -> List[torch.nn.Module]:
    return [m for m in model.modules() if z3_leaf_module(m)]


def z3_leaf_module(model: torch.nn.Module) -> bool:
    return bool(getattr(model, "_z3_leaf", False))


# ---- ranks: one group of data-parallel ranks, and every other kind of group has one member ----------------


def _get_data_parallel_group() -> Any:
    return torch.distributed.group.WORLD


def _get_data_parallel_world_size() -> int:
    dist = torch.distributed
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _get_data_parallel_rank() -> int:
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _get_model_parallel_world_size() -> int:
    return 1


def _get_sequence_parallel_world_size() -> int:
    return 1


def _get_sequence_parallel_rank() -> int:
    return 0


GROUPS = ("_get_data_parallel_group _get_data_parallel_world_size _get_data_parallel_rank _get_model_parallel_world_size "
          "_get_sequence_parallel_world_size _get_sequence_parallel_rank")


# ---- what is left -------------------------------------------------------------------------------------------


class OffloadDeviceEnum(str, enum.Enum):
    none = "none"
    cpu = "cpu"
    nvme = "nvme"


class OffloadStateTypeEnum(str, enum.Enum):
    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"


class ZeroStageEnum(enum.IntEnum):
    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3


class ThroughputTimer:
    """Counts epochs and steps, which is all that scripts do with it."""

    def __init__(self, *_: Any, **__: Any):
        self.epoch_count = self.global_step_count = 0

    def update_epoch_count(self) -> None:
        self.epoch_count += 1

    def start(self) -> None:
        return None

    def stop(self, global_step: bool = False, report_speed: bool = True) -> None:
        self.global_step_count += int(global_step)


def see_memory_usage(message: str, force: bool = False) -> None:
    """The process's resident bytes, to the log."""
    if force:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        log_dist("%s: resident %.2f GiB" % (message, pages * os.sysconf("SC_PAGE_SIZE") / 2**30), [0])


def move_to_device(item: Any, device: Any, criterion_func: Any = None) -> Any:
    """Tensors in lists, tuples and dicts on a device."""
    if isinstance(item, torch.Tensor):
        return item.to(device) if criterion_func is None or criterion_func(item) else item
    if isinstance(item, (list, tuple)):
        return type(item)([move_to_device(one, device, criterion_func) for one in item])
    if isinstance(item, dict):
        return {key: move_to_device(one, device, criterion_func) for key, one in item.items()}
    return item


def clone_tensors_for_torch_save(item: Any, device: Any = torch.device("cpu")) -> Any:
    """The same containers, each tensor in storage of its own size: what a view shares is not saved with it."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone().to(device)
    if isinstance(item, (list, tuple)):
        return type(item)([clone_tensors_for_torch_save(one, device) for one in item])
    if isinstance(item, dict):
        return type(item)({key: clone_tensors_for_torch_save(one, device) for key, one in item.items()})
    return item


NAMES = "logger log_dist log_dist_once set_log_level_from_string RepeatingLoader set_z3_leaf_module see_memory_usage"

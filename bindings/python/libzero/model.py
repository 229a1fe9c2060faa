"""Models (names, shapes, groups) and plans (every byte before anything is allocated)."""
# SPDX-License-Identifier: BSD-3-Clause
import os
from typing import Any, Dict, List, Optional, Sequence

from . import checked, raw
from .arrays import DTYPES, dtype_number, in_logical_order, in_place, memory_of, wrong
from .config import config_of
from .errors import new
from .life import Life, Owned

ROLES = {"trained": raw.ZERO_PARAM_TRAINED, "frozen": raw.ZERO_PARAM_FROZEN, "buffer": raw.ZERO_PARAM_BUFFER}
PLACES = {"host": raw.ZERO_PLACE_HOST, "pinned": raw.ZERO_PLACE_PINNED, "device": raw.ZERO_PLACE_DEVICE,
          "file": raw.ZERO_PLACE_FILE}
USES = {"total": raw.ZERO_MEMORY_TOTAL, "params": raw.ZERO_MEMORY_PARAMS, "grads": raw.ZERO_MEMORY_GRADS,
        "master": raw.ZERO_MEMORY_MASTER, "optimizer": raw.ZERO_MEMORY_OPTIMIZER,
        "gathered": raw.ZERO_MEMORY_GATHERED, "buckets": raw.ZERO_MEMORY_BUCKETS,
        "staging": raw.ZERO_MEMORY_STAGING, "tables": raw.ZERO_MEMORY_TABLES}
COMMS = {"self": raw.ZERO_COMM_SELF, "local": raw.ZERO_COMM_LOCAL, "gloo": raw.ZERO_COMM_GLOO,
         "nccl": raw.ZERO_COMM_NCCL, "user": raw.ZERO_COMM_USER}


def choice(table: Dict[str, int], value: Any, what: str) -> int:
    """A name of the table, or its number."""
    if isinstance(value, str):
        if value not in table:
            raise wrong("%s %r is none of %s" % (what, value, ", ".join(table)))
        return table[value]
    return int(value)


def group_options(frozen: bool = False, **values: float) -> Any:
    """lr, lr_scale, weight_decay, beta1, beta2, epsilon, momentum; left out: the config's."""
    made = new(raw.zero_group_options)
    made.frozen = int(frozen)
    for name, value in values.items():
        if not hasattr(made, name):
            raise TypeError("a group has no %r" % name)
        setattr(made, name, value)
    return made


class Model(Owned):
    """Parameters by name, in order of registration; ids count from 0."""

    def __init__(self, _handle: Any = None):
        self._life = Life(_handle if _handle is not None else checked.model_create(), raw.zero_model_destroy)
        self.names: List[str] = []
        self.shapes: List[tuple] = []
        self._in_place: List[Any] = []  # a runtime uses these as long as it lives

    @staticmethod
    def load(path: Any) -> "Model":
        """Names, shapes and dtypes from a TSV list, a safetensors file, an index or a folder."""
        return Model(checked.model_load(os.fspath(path)))

    def group(self, name: str, frozen: bool = False, **values: float) -> int:
        """A new parameter group: lr, lr_scale, weight_decay, beta1, beta2, epsilon, momentum."""
        return checked.group_add(self.handle, name, group_options(frozen, **values))

    def add(self, name: str, data: Any = None, shape: Optional[Sequence[int]] = None, dtype: Any = None,
            group: int = 0, role: str = "trained", storage: str = "library", tied_to: int = -1,
            unit: int = -1) -> int:
        """Registers a parameter and returns its id.

        data     any array: its values, in logical order. With storage="library" they are read once, by
                 Runtime.shard; with "caller" (stages 0 to 2) the array itself is kept up to date,
                 so it must be writable and contiguous. None: zeros (shape is then needed).
        shape    of data where that is given; () is a scalar
        dtype    "fp32", "fp16", "bf16", ...; of data where that is given ("bf16": bits in uint16)
        unit     stage 3: parameters of one unit are gathered together
        """
        options = new(raw.zero_param_options)
        options.group, options.tied_to, options.unit = group, tied_to, unit
        options.role = choice(ROLES, role, "role")
        options.storage = choice({"library": raw.ZERO_STORAGE_LIBRARY, "caller": raw.ZERO_STORAGE_CALLER},
                                 storage, "storage")
        if data is not None:
            memory = memory_of(data, dtype)
            if dtype is not None and dtype_number(dtype) != DTYPES[memory.dtype][0]:
                raise wrong("parameter %r: an array of %s, but dtype %r" % (name, memory.dtype, dtype))
            if options.storage == raw.ZERO_STORAGE_CALLER:
                memory = in_place(memory, "the array of parameter %r" % name)
            else:
                memory = in_logical_order(memory)
            if shape is not None and tuple(shape) != memory.shape:
                raise wrong("parameter %r: an array of shape %s, but shape %s" % (name, memory.shape, tuple(shape)))
            shape = memory.shape
            found = memory.buffer()
            options.dtype, options.place, options.device = found.dtype, found.place, found.device
            options.data = found.data
            self._life.keeps.append(memory)
            if options.storage == raw.ZERO_STORAGE_CALLER:
                self._in_place.append(memory)
        else:
            options.dtype = dtype_number(dtype if dtype is not None else "fp32")
        if shape is None:
            raise wrong("parameter %r: neither data nor a shape" % name)
        added = checked.param_add(self.handle, name, [int(n) for n in shape], options)
        self.names.append(name)
        self.shapes.append(tuple(shape))
        return added

    def backward_order(self, params: Sequence[Any]) -> None:
        """The order in which gradients are finished, where it is not the reverse of the registration."""
        ids = [self.names.index(p) if isinstance(p, str) else p for p in params]
        checked.model_backward_order(self.handle, ids)


class Plan(Owned):
    """What every rank would hold, byte for byte; needs no device and no other rank."""

    def __init__(self, config: Any, model: Model, world_size: int, place: str = "host", comm: str = "local",
                 own_allocator: bool = False):
        options = new(raw.zero_plan_options)
        options.world_size, options.own_allocator = world_size, int(own_allocator)
        options.place, options.comm = choice(PLACES, place, "place"), choice(COMMS, comm, "communicator")
        config = config_of(config)  # a name: a handle does not keep its object alive
        self._life = Life(checked.plan_create(config.handle, model.handle, options), raw.zero_plan_destroy)

    def memory(self, rank: int = 0, use: Any = "total", place: Any = "host") -> int:
        """Bytes of one use on one rank."""
        return checked.plan_memory(self.handle, rank, choice(PLACES, place, "place"), choice(USES, use, "use"))

    def text(self) -> str:
        """The plan, one line a bucket."""
        return checked.plan_text(self.handle)

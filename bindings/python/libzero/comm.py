"""Communicators: libzero's own, or two Python functions that move bytes."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
from typing import Any, Callable, Dict, Optional

from . import checked, layout, raw
from .arrays import bytes_at, in_place, memory_of, wrong
from .config import config_of
from .errors import callback_exceptions, new
from .life import Life, Owned

_OPS = {"sum": raw.ZERO_REDUCE_SUM, "max": raw.ZERO_REDUCE_MAX, "min": raw.ZERO_REDUCE_MIN}
_FUNCTIONS: Dict[str, Any] = {field[0]: field[1] for field in layout.zero_comm_callbacks._fields_}


class Comm(Owned):
    """One rank's end of a communicator; serves one runtime at a time."""

    def __init__(self, handle: Any, *keeps: Any, life: Any = None):
        self._life = life or Life(handle, raw.zero_comm_destroy, *keeps)

    @staticmethod
    def alone() -> "Comm":
        """One rank, no transport."""
        return Comm(checked.comm_create_self())

    @staticmethod
    def local(group: str, rank: int, size: int, timeout_s: float = 600.0) -> "Comm":
        """Ranks of one machine, processes or threads, that meet under a name. Collective."""
        return Comm(checked.comm_create_local(group, rank, size, int(timeout_s * 1e9)))

    @staticmethod
    def from_config(config: Any) -> "Comm":
        """Whichever the config and the environment name. Collective."""
        config = config_of(config)
        return Comm(checked.comm_create_from_config(config.handle))

    @staticmethod
    def user(rank: int, size: int, all_gather: Callable, all_to_all: Callable,
             abort: Optional[Callable[[], None]] = None) -> "Comm":
        """The host program's own (MPI, ...). all_gather(send, recv) and all_to_all(send, recv) get
        memoryviews of bytes and fill recv: len(recv) is size * len(send), or the same for all_to_all.
        An exception in them comes back as the cause of the UserError of the call they ran in."""

        def guarded(function: Callable, sends: int) -> Callable:
            def call(_: Any, channel: int, send: int, recv: int, each: int, place: int, stream: Any) -> int:
                try:
                    function(bytes_at(send or 0, each * sends).toreadonly(), bytes_at(recv or 0, each * size))
                    return raw.ZERO_OK
                except BaseException as error:  # must not cross C
                    callback_exceptions.append(error)
                    raw.zero_set_last_error(raw.ZERO_ERR_USER, "%s: %s" % (type(error).__name__, error))
                    return raw.ZERO_ERR_USER
            return call

        def aborted(_: Any) -> None:
            try:
                if abort:
                    abort()
            except BaseException as error:  # must not cross C
                callback_exceptions.append(error)

        functions = [_FUNCTIONS["all_gather"](guarded(all_gather, 1)), _FUNCTIONS["all_to_all"](guarded(all_to_all, size)),
                     _FUNCTIONS["abort"](aborted)]
        callbacks = new(raw.zero_comm_callbacks)
        callbacks.channels = 1
        callbacks.set_functions(*(ctypes.cast(f, ctypes.c_void_p).value for f in functions), None)
        return Comm(checked.comm_create_user(rank, size, callbacks, None), functions)

    @property
    def rank(self) -> int:
        return raw.zero_comm_rank(self.handle)

    @property
    def size(self) -> int:
        return raw.zero_comm_size(self.handle)

    def all_reduce(self, values: Any, op: str = "sum") -> Any:
        """Adds (or "max", "min") doubles over all ranks, in place; returns the array. A float comes
        back as a float. Collective."""
        if op not in _OPS:
            raise wrong("op %r is none of %s" % (op, ", ".join(_OPS)))
        if isinstance(values, (int, float)):
            one = (ctypes.c_double * 1)(values)
            checked.comm_all_reduce(self.handle, memoryview(one).cast("B").cast("d"), _OPS[op])
            return one[0]
        memory = in_place(memory_of(values), "the array")
        if memory.dtype != "fp64":
            raise wrong("all_reduce adds doubles, not %s" % memory.dtype)
        view = bytes_at(memory.address, 8 * memory.count).cast("d")
        checked.comm_all_reduce(self.handle, view, _OPS[op])
        return values

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """root's bytes to all, in place. Collective."""
        view = memoryview(array).cast("B")
        checked.comm_broadcast(self.handle, view, root)
        return array

    def barrier(self) -> None:
        """Waits for all ranks. Collective."""
        checked.comm_barrier(self.handle)

    def abort(self) -> None:
        """Makes every blocked or later call on it raise CommError; from any thread."""
        raw.zero_comm_abort(self.handle)

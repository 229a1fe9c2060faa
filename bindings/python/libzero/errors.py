"""Statuses as exceptions: one class a family, each a ZeroError."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
from typing import Any, Callable, List, Optional

from . import layout, raw

_SIZES = {struct.__name__: ctypes.sizeof(struct) for struct in layout.STRUCTS}


class ZeroError(Exception):
    """What a libzero call answered. status is the number, name its C name, rank the rank at fault
    (None where not known), native_code an errno, cudaError_t or ncclResult_t (0: none), origin who
    said it ("libzero", "os", "callback", ...)."""

    def __init__(self, message: str, status: int = 0, rank: Optional[int] = None, native_code: int = 0,
                 origin: str = "libzero"):
        super().__init__(message)
        self.message, self.status, self.rank = message, status, rank
        self.native_code, self.origin = native_code, origin

    @property
    def name(self) -> str:
        return raw.zero_status_name(self.status)


class ArgumentError(ZeroError, ValueError):
    """The call was wrong: an argument, an array's dtype, size or strides."""


class StateError(ZeroError):
    """Right call, wrong moment; also a closed handle, or one that another thread uses."""


class UnsupportedError(ZeroError, NotImplementedError):
    """Not in this build."""


class NotFoundError(ZeroError, KeyError):
    """No such name, id or line."""

    __str__ = Exception.__str__


class FailedError(ZeroError):
    """An earlier COMM or DEVICE error ended this runtime."""


class OverflowedError(ZeroError, OverflowError):
    """Non-finite gradients at the smallest loss scale."""


class NoOpenBucketError(ZeroError):
    """Nothing changed: hand the same gradient over later."""


class ConfigError(ZeroError, ValueError):
    """The configuration: syntax, unknown key, value, conflict."""


class ResourceError(ZeroError):
    """Memory, disk or a system call."""


class OutOfMemory(ResourceError, MemoryError):
    """Host or device memory."""


class CommError(ZeroError):
    """A peer or the transport; the runtime is failed."""


class DeviceError(ZeroError):
    """The device; the runtime is failed."""


class FileError(ZeroError):
    """A checkpoint or weights file: format, version, corrupt, incomplete, of another model."""


class UserError(ZeroError):
    """A callback's own status; the callback's exception is the cause where there was one."""


class InternalError(ZeroError):
    """A bug in libzero."""


_EXACT = {
    raw.ZERO_ERR_INVALID_ARGUMENT: ArgumentError, raw.ZERO_ERR_INVALID_STATE: StateError,
    raw.ZERO_ERR_UNSUPPORTED: UnsupportedError, raw.ZERO_ERR_NOT_FOUND: NotFoundError,
    raw.ZERO_ERR_BUFFER_TOO_SMALL: ArgumentError, raw.ZERO_ERR_FAILED: FailedError,
    raw.ZERO_ERR_OVERFLOW: OverflowedError, raw.ZERO_ERR_NO_OPEN_BUCKET: NoOpenBucketError,
    raw.ZERO_ERR_OUT_OF_MEMORY: OutOfMemory, raw.ZERO_ERR_OUT_OF_DEVICE_MEMORY: OutOfMemory,
}
_FAMILIES = [(20, 40, ConfigError), (40, 60, ResourceError), (60, 80, CommError), (80, 100, DeviceError),
             (100, 120, FileError), (200, 250, UserError), (250, 251, InternalError)]


def class_of(status: int) -> type:
    """The exception class of a status; ZeroError for a number this version does not know."""
    if status in _EXACT:
        return _EXACT[status]
    return next((kind for low, high, kind in _FAMILIES if low <= status < high), ZeroError)


def new(struct: Any) -> Any:
    """A growing struct with its size and defaults filled in: new(raw.zero_step_options)."""
    made = struct()
    getattr(raw, struct.__name__ + "_init")(made, _SIZES[struct.__name__])
    return made


# What a callback raised, until the call it ran in comes back.
callback_exceptions: List[BaseException] = []


def fail(status: int) -> None:
    """Raises what the last call on this thread said; a callback's exception is its cause."""
    info = new(raw.zero_error_info)
    message, rank, native, origin = "", None, 0, "libzero"
    raw.zero_last_error(info)
    if info.status == status:
        message, native, origin = info.message, info.native_code, info.origin
        rank = info.rank if info.rank >= 0 else None
        if len(message) >= 900:
            try:
                message = grow(lambda buffer: raw.zero_last_error_text(buffer))[-1].decode()
            except ZeroError:
                pass
    message = message or raw.zero_status_name(status)
    error = class_of(status)(message, status, rank, native, origin)
    try:
        if callback_exceptions:
            cause = callback_exceptions.pop()
            callback_exceptions.clear()
            raise error from cause
        raise error
    finally:
        del error  # else the frame and the exception keep each other, and what the callers' frames hold, alive


def grow(call: Callable[[Optional[bytearray]], list]) -> Any:
    """Calls with a buffer that is large enough; returns the outputs before the length, then the bytes."""
    buffer = bytearray(1024)
    while True:
        status, *outputs, length = call(buffer)
        if status == raw.ZERO_ERR_BUFFER_TOO_SMALL and length >= len(buffer):
            buffer = bytearray(length + 1)
            continue
        if status:
            fail(status)
        text = bytes(buffer[:length])
        return (*outputs, text) if outputs else text

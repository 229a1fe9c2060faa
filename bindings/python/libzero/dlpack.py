"""DLPack capsules read and made with ctypes; no copy either way."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
from typing import Any, Dict

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_CODES = {("fp32"): (2, 32), ("fp16"): (2, 16), ("bf16"): (4, 16), ("fp64"): (2, 64), ("int64"): (0, 64),
          ("int32"): (0, 32), ("uint8"): (1, 8)}
_NAMES = {code: name for name, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter)]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def from_dlpack(array: Any) -> tuple:
    """(owner, address, shape, strides in bytes, dtype or None, device or None). The capsule is not
    consumed: it is the owner, and gives the memory back when it is collected."""
    capsule = array.__dlpack__()
    tensor = _Managed.from_address(_pointer(capsule, b"dltensor")).tensor
    name = _NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] * tensor.bits // 8 for i in range(tensor.ndim)) if tensor.strides else None
    device = tensor.device_id if tensor.device_type == _CUDA else None
    if tensor.device_type not in (_CPU, _CUDA, _CUDA_HOST):
        name = None
    return (capsule, array), (tensor.data or 0) + tensor.byte_offset, shape, strides, name, device


# Capsules handed out: address of the managed tensor -> what must stay alive with it.
_alive: Dict[int, Any] = {}


@_Deleter
def _delete(address: int) -> None:
    _alive.pop(address, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _destroy_capsule(capsule: int) -> None:
    """A capsule that nobody consumed."""
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    if valid(capsule, b"dltensor"):
        prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
        _alive.pop(prototype(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, b"dltensor"), None)


def to_dlpack(buffer: Any) -> Any:
    """A capsule over a Buffer's memory, which stays alive until the consumer lets go."""
    managed = _Managed()
    rank = len(buffer.shape)
    shape = (ctypes.c_int64 * max(rank, 1))(*buffer.shape)
    code, bits = _CODES[buffer.dtype]
    tensor = managed.tensor
    tensor.data, tensor.device_type = buffer.address, _CUDA if buffer.on_device else _CPU
    tensor.device_id, tensor.ndim = (buffer.device if buffer.on_device else 0), rank
    tensor.code, tensor.bits, tensor.lanes = code, bits, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _delete
    address = ctypes.addressof(managed)
    _alive[address] = (managed, shape, buffer)
    return _new(address, b"dltensor", ctypes.cast(_destroy_capsule, ctypes.c_void_p))

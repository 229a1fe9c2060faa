"""Arrays of others as memory of ours, and memory of ours as arrays: numpy, any buffer,
__array_interface__, __cuda_array_interface__ and DLPack, in place."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
from typing import Any, Optional, Tuple

from . import raw
from .dlpack import from_dlpack, to_dlpack
from .errors import ArgumentError, StateError

FP32, FP16, BF16 = raw.ZERO_DTYPE_FP32, raw.ZERO_DTYPE_FP16, raw.ZERO_DTYPE_BF16
#: name -> number, bytes an element, numpy's typestr (bf16 has none: its bits as uint16)
DTYPES = {"fp32": (FP32, 4, "<f4"), "fp16": (FP16, 2, "<f2"), "bf16": (BF16, 2, "<u2"),
          "fp64": (raw.ZERO_DTYPE_FP64, 8, "<f8"), "int64": (raw.ZERO_DTYPE_INT64, 8, "<i8"),
          "int32": (raw.ZERO_DTYPE_INT32, 4, "<i4"), "uint8": (raw.ZERO_DTYPE_UINT8, 1, "|u1")}
_NAMES = {number: name for name, (number, _, _) in DTYPES.items()}
_TYPESTR = {typestr: name for name, (_, _, typestr) in DTYPES.items() if name != "bf16"}
_FORMAT = {"f": "fp32", "e": "fp16", "d": "fp64", "q": "int64", "l": "int64", "i": "int32", "B": "uint8"}
_OTHER = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "float": "fp32",
          "half": "fp16"}


def wrong(message: str) -> ArgumentError:
    return ArgumentError(message, raw.ZERO_ERR_INVALID_ARGUMENT)


def dtype_number(dtype: Any) -> int:
    """FP32 for "fp32", "float32", numpy.float32, torch.float32 or the number itself."""
    if isinstance(dtype, int) and dtype in _NAMES:
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.rsplit(".", 1)[-1]
    name = _OTHER.get(name, name)
    if name not in DTYPES:
        raise wrong("dtype %r is none of %s" % (dtype, ", ".join(DTYPES)))
    return DTYPES[name][0]


def dtype_name(number: int) -> str:
    return _NAMES.get(number, "dtype %d" % number)


def dtype_bytes(number: int) -> int:
    return DTYPES[dtype_name(number)][1]


def elements(shape: Tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


class Memory:
    """Where an array lies. strides are in bytes, None where the array is contiguous row by row."""

    def __init__(self, owner: Any, address: int, shape: tuple, strides: Optional[tuple], dtype: str,
                 readonly: bool = False, device: Optional[int] = None):
        size = DTYPES[dtype][1]
        if strides is not None and elements(shape) > 0:
            expected, plain = size, True
            for length, stride in zip(reversed(shape), reversed(strides)):
                plain = plain and (length == 1 or stride == expected)
                expected *= length
            strides = None if plain else strides
        else:
            strides = None
        self.owner, self.address, self.shape, self.strides = owner, address, tuple(shape), strides
        self.dtype, self.readonly, self.device = dtype, readonly, device

    @property
    def count(self) -> int:
        return elements(self.shape)

    def buffer(self) -> Any:
        """As a zero_buffer; alive as long as the owner is."""
        made = raw.zero_buffer()
        number, size, _ = DTYPES[self.dtype]
        made.data, made.count, made.bytes = self.address or None, self.count, self.count * size
        made.dtype = number
        made.place = raw.ZERO_PLACE_HOST if self.device is None else raw.ZERO_PLACE_DEVICE
        made.device = -1 if self.device is None else self.device
        return made


def _name_of(array: Any, typestr: str) -> str:
    given = str(getattr(array, "dtype", "")).rsplit(".", 1)[-1]
    if typestr in _TYPESTR:
        return _TYPESTR[typestr]
    if given == "bfloat16" and typestr[1:] in ("V2", "u2"):
        return "bf16"
    raise wrong("an array of %s; expected one of %s (bf16 bits in uint16: say dtype='bf16')" % (
        given or typestr, ", ".join(DTYPES)))


def _from_interface(array: Any, interface: dict, device: Optional[int], as_bf16: bool) -> Memory:
    address, readonly = interface.get("data") or (None, False)
    if address is None:
        raise wrong("an array interface without an address")
    typestr = interface["typestr"]
    name = "bf16" if as_bf16 and typestr[1:] in ("u2", "V2") else _name_of(array, typestr)
    return Memory(array, address, tuple(interface["shape"]), interface.get("strides"), name, bool(readonly), device)


def memory_of(array: Any, dtype: Any = None) -> Memory:
    """The memory of an array-like object, in place. dtype "bf16" reads two-byte integers as bf16."""
    as_bf16 = dtype is not None and dtype_number(dtype) == BF16
    if isinstance(array, Memory):
        return array
    interface = getattr(array, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        pointer = getattr(array, "device", None)
        index = getattr(pointer, "index", None)
        return _from_interface(array, interface, index if isinstance(index, int) else getattr(pointer, "id", 0), as_bf16)
    interface = getattr(array, "__array_interface__", None)
    if isinstance(interface, dict):
        return _from_interface(array, interface, None, as_bf16)
    try:
        view = memoryview(array)
    except TypeError:
        view = None
    if view is not None:
        code = (view.format or "B").lstrip("@=<")
        name = "bf16" if as_bf16 and code == "H" else _FORMAT.get(code)
        if name is None:
            raise wrong("a buffer of format %r; expected one of %s" % (view.format, ", ".join(_FORMAT)))
        return Memory(view, _address(view), view.shape or (), view.strides, name, view.readonly)
    if hasattr(array, "__dlpack__"):
        owner, address, shape, strides, name, device = from_dlpack(array)
        if name is None:
            raise wrong("a DLPack tensor of a dtype that is none of %s" % ", ".join(DTYPES))
        return Memory(owner, address, shape, strides, name, False, device)
    raise wrong("%s is no array: no buffer, __array_interface__, __cuda_array_interface__ or __dlpack__" % (
        type(array).__name__))


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


def _address(view: memoryview) -> int:
    """The address behind a memoryview, also a read-only or strided one (PyBUF_STRIDES is 0x18)."""
    found = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(found), 0x18)
    address = found.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    return address


def in_logical_order(memory: Memory) -> Memory:
    """The same values one after the other, row by row: itself where it is so already."""
    if memory.strides is None:
        return memory
    if memory.device is not None:
        raise wrong("a device array with strides %s: hand over a contiguous one" % (memory.strides,))
    size = DTYPES[memory.dtype][1]
    copy = bytearray(memory.count * size)

    try:
        copy[:] = memoryview(memory.owner).tobytes(order="C")
    except (TypeError, ValueError, NotImplementedError):  # no buffer: an interface or DLPack alone
        addresses = [memory.address]
        for length, stride in zip(memory.shape, memory.strides):
            addresses = [a + i * stride for a in addresses for i in range(length)]
        for i, address in enumerate(addresses):
            copy[i * size:(i + 1) * size] = ctypes.string_at(address, size)
    view = memoryview(copy)
    return Memory(view, _address(view) if copy else 0, memory.shape, None, memory.dtype)


def in_place(memory: Memory, what: str) -> Memory:
    """Refuses what cannot be written where it lies."""
    if memory.strides is not None:
        raise wrong("%s has strides %s: it can only be kept in place where it is contiguous, row by row" % (
            what, memory.strides))
    if memory.readonly:
        raise wrong("%s is read-only, and would be written" % what)
    return memory


def bytes_at(address: int, count: int) -> memoryview:
    """Writable bytes at an address; whoever asks keeps the memory alive."""
    return memoryview((ctypes.c_uint8 * count).from_address(address)).cast("B") if count else memoryview(bytearray())


def scatter(values: bytearray, target: Memory) -> None:
    """Row-major bytes into an array, in its own logical order."""
    size, offset = DTYPES[target.dtype][1], 0
    if target.strides is None:
        bytes_at(target.address, len(values))[:] = values
        return
    addresses = [target.address]
    for length, stride in zip(target.shape, target.strides):
        addresses = [a + i * stride for a in addresses for i in range(length)]
    for address in addresses:
        bytes_at(address, size)[:] = values[offset:offset + size]
        offset += size


class Buffer:
    """Memory of libzero's as an array: numpy.asarray(buffer), buffer.numpy(), memoryview by
    buffer.view(), torch.from_dlpack(buffer); __cuda_array_interface__ on a device. It keeps the
    runtime's memory alive; where it is a loan, it ends with the loan."""

    def __init__(self, found: Any, shape: Tuple[int, ...], owner: Any, offset_bytes: int = 0):
        self.address: int = found.data or 0
        self.nbytes: int = found.bytes
        self.count: int = found.count
        self.dtype: str = dtype_name(found.dtype)
        self.place: int = found.place
        self.device: int = found.device
        self.shape = shape if elements(shape) == found.count else (found.count,)
        self._owner = owner
        self._ended = ""

    def end(self, why: str) -> None:
        self._ended = why

    def _check(self) -> None:
        if self._ended:
            raise StateError(self._ended, raw.ZERO_ERR_INVALID_STATE)

    @property
    def on_device(self) -> bool:
        return self.place == raw.ZERO_PLACE_DEVICE

    def _interface(self) -> dict:
        self._check()
        return {"version": 3, "shape": self.shape, "typestr": DTYPES[self.dtype][2], "strides": None,
                "data": (self.address or 0, False)}

    @property
    def __array_interface__(self) -> dict:
        if self.on_device:
            raise AttributeError("this memory is on a device: __cuda_array_interface__")
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict:
        if not self.on_device:
            raise AttributeError("this memory is the host's: __array_interface__")
        return self._interface()

    def __dlpack__(self, stream: Any = None, **_: Any) -> Any:
        self._check()
        return to_dlpack(self)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (2, self.device) if self.on_device else (1, 0)

    def view(self) -> memoryview:
        """The bytes in place, writable."""
        self._check()
        if self.on_device:
            raise wrong("this memory is on a device: no memoryview")
        array: Any = (ctypes.c_uint8 * self.nbytes).from_address(self.address) if self.nbytes else bytearray()
        if self.nbytes:
            array._owner = self._owner
        return memoryview(array).cast("B")

    def numpy(self) -> Any:
        """As a numpy array in place; bf16 as ml_dtypes.bfloat16 where that is installed, else uint16."""
        import numpy
        if self.count == 0:
            return numpy.zeros(self.shape, DTYPES[self.dtype][2])
        array = numpy.asarray(self)
        if self.dtype == "bf16":
            try:
                import ml_dtypes
                return array.view(ml_dtypes.bfloat16)
            except ImportError:
                pass
        return array

    def copy_from(self, array: Any) -> None:
        """Overwrites it, in logical order; the dtype and the number of elements must be the same."""
        source = in_logical_order(memory_of(array, self.dtype))
        if source.dtype != self.dtype or source.count != self.count:
            raise wrong("%d elements of %s into %d of %s" % (source.count, source.dtype, self.count, self.dtype))
        if self.on_device or source.device is not None:
            raise wrong("copy_from is for host memory")
        self._check()
        if self.nbytes:
            ctypes.memmove(self.address, source.address, self.nbytes)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return "<libzero.Buffer %s %s at %s>" % (self.dtype, self.shape, hex(self.address))

"""torch tensors as libzero's memory and back, in place."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
from typing import Any, Optional

import torch

from .. import raw
from ..arrays import Buffer, Memory, dtype_name

DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64",
          torch.int64: "int64", torch.int32: "int32", torch.uint8: "uint8"}
_TORCH = {name: dtype for dtype, name in DTYPES.items()}


def memory_of_tensor(tensor: torch.Tensor) -> Memory:
    """Where a tensor lies; values in logical order where it is not contiguous."""
    tensor = tensor.detach().contiguous()
    device = tensor.device.index if tensor.device.type == "cuda" else None
    return Memory(tensor, tensor.data_ptr(), tuple(tensor.shape), None, DTYPES[tensor.dtype], False, device)


def tensor_at(found: Any, shape: Any, owner: Any) -> torch.Tensor:
    """A zero_buffer's memory as a tensor, which keeps owner alive."""
    dtype = _TORCH[dtype_name(found.dtype)]
    if found.count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    if found.place == raw.ZERO_PLACE_DEVICE:
        return torch.from_dlpack(Buffer(found, tuple(shape), owner))
    array = (ctypes.c_uint8 * found.bytes).from_address(found.data)
    array._owner = owner
    return torch.frombuffer(array, dtype=dtype, count=found.count).view(tuple(shape))


def storage_address(tensor: torch.Tensor) -> int:
    """The start of the storage that a tensor is a view of; 0 where it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse and meta tensors
        return 0
    except AttributeError:  # torch before 2
        return tensor.storage().data_ptr() if tensor.layout == torch.strided else 0


def placeholder(parameter: torch.Tensor) -> torch.Tensor:
    """The shape of a parameter that is elsewhere: read it is NaN, written it is an error."""
    one = torch.full((), float("nan"), dtype=parameter.dtype, device=parameter.device)
    return one.expand(parameter.shape)


def stream_of(device: torch.device) -> Optional[int]:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None


def born_of(parameter: Any) -> Any:
    """What a parameter that zero.Init sharded is until an engine has it, a torch_born.Born; else None."""
    return getattr(parameter, "libzero_born", None)

"""Out of memory in torch: the error says what libzero holds, and what would make it fit."""
# SPDX-License-Identifier: BSD-3-Clause
import re
from contextlib import contextmanager
from typing import Any, Iterator

import torch

from ..errors import ZeroError

_KINDS = tuple(kind for kind in (getattr(torch, "OutOfMemoryError", None), getattr(torch.cuda, "OutOfMemoryError", None))
               if kind is not None)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ASKED = re.compile(r"allocate ([0-9.]+) (bytes|KiB|MiB|GiB)")


def _place(error: BaseException) -> str:
    """"device" or "host" where this error is of memory, else ""."""
    if isinstance(error, _KINDS):
        return "device"
    if isinstance(error, RuntimeError) and "CPUAllocator" in str(error):
        return "host"
    return ""


@contextmanager
def explained(runtime: Any) -> Iterator[None]:
    """Adds zero_memory_explain's text to the same exception."""
    try:
        yield
    except RuntimeError as error:
        place = _place(error)
        if place:
            asked = _ASKED.search(str(error))
            count = int(float(asked.group(1)) * _UNITS[asked.group(2)]) if asked else 0
            try:
                text = runtime.explain_memory(count, place)
            except ZeroError as reason:
                text = "libzero cannot say more: %s" % reason
            error.args = ("%s\n%s" % (error, text),)
        raise
